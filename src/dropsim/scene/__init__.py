"""Scenes: people, ground, balls and obstacles, and what happens to them in time."""

from dropsim.scene.acts import DIRECTIONS, Dodge, Drag, Follow, Pin, Push, StiffJoint
from dropsim.scene.element import BODY_PARTS, Balls, Element, For, Goal, Influence, Moment
from dropsim.scene.side_by_side import side_by_side
from dropsim.scene.take import Take, WorldDivergedError, above_ground, run
from dropsim.scene.things import Ball, Ground, Obstacle, Throw, Trip
from dropsim.scene.world import Person, Scene, World, WorldState

__all__ = [
    "BODY_PARTS",
    "DIRECTIONS",
    "Ball",
    "Balls",
    "Dodge",
    "Drag",
    "Element",
    "Follow",
    "For",
    "Goal",
    "Ground",
    "Influence",
    "Moment",
    "Obstacle",
    "Person",
    "Pin",
    "Push",
    "Scene",
    "StiffJoint",
    "Take",
    "Throw",
    "Trip",
    "World",
    "WorldDivergedError",
    "WorldState",
    "above_ground",
    "run",
    "side_by_side",
]
