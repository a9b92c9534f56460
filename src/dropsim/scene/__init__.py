"""Scenes: people, ground, balls and obstacles, and what happens to them in time."""

from dropsim.scene.batches import batch_scenes
from dropsim.scene.element import BODY_PARTS, Balls, Element, MaskedEnergy, Goal, StepInputs, SceneContext
from dropsim.scene.objects import Ball, Ground, Obstacle, Throw, Trip
from dropsim.scene.perturbations import DIRECTIONS, Dodge, Drag, Follow, Pin, Push, StiffJoint
from dropsim.scene.rollout import Take, WorldDivergedError, above_ground, run
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
    "StepInputs",
    "SceneContext",
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
    "batch_scenes",
]
