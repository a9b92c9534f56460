"""Scenes: people, ground, balls and obstacles, and what happens to them in time."""

from dropsim.physics.energies import MaskedEnergy
from dropsim.physics.step import StepInputs
from dropsim.priors.intent import Intent
from dropsim.scene.batches import batch_scenes
from dropsim.scene.element import BODY_PARTS, Balls, Element, SceneContext
from dropsim.scene.objects import Ball, Ground, Obstacle, Patch, Throw, Trip
from dropsim.scene.perturbations import DIRECTIONS, Dodge, Drag, Follow, Pin, Push, StiffJoint
from dropsim.scene.rollout import Rollout, WorldDivergedError, above_ground, run
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
    "Ground",
    "Intent",
    "MaskedEnergy",
    "Obstacle",
    "Patch",
    "Person",
    "Pin",
    "Push",
    "Rollout",
    "Scene",
    "SceneContext",
    "StepInputs",
    "StiffJoint",
    "Throw",
    "Trip",
    "World",
    "WorldDivergedError",
    "WorldState",
    "above_ground",
    "batch_scenes",
    "run",
]
