"""Scenes: people, ground, balls and obstacles, and what happens to them in time."""

from dropsim.physics.energies import MaskedEnergy
from dropsim.physics.step import StepInputs
from dropsim.priors.intent import Intent
from dropsim.scene.batches import batch_scenes
from dropsim.scene.element import BODY_PARTS, Balls, Element, SceneContext, Solid
from dropsim.scene.loose import BodyState, Loose
from dropsim.scene.objects import Ball, Carry, Ground, Obstacle, Patch, Throw, Trip
from dropsim.scene.perturbations import DIRECTIONS, Dodge, Drag, Follow, Pin, Push, StiffJoint
from dropsim.scene.rollout import Rollout, RunInterrupted, SolidTrack, WorldDivergedError, above_ground, run
from dropsim.scene.solids import Box, Cylinder, MeshObject, Ramp, SolidObject, Stairs, Terrain
from dropsim.scene.world import Person, Scene, World, WorldState

__all__ = [
    "BODY_PARTS",
    "DIRECTIONS",
    "Ball",
    "Balls",
    "BodyState",
    "Box",
    "Carry",
    "Cylinder",
    "Dodge",
    "Drag",
    "Element",
    "Follow",
    "Ground",
    "Intent",
    "Loose",
    "MaskedEnergy",
    "MeshObject",
    "Obstacle",
    "Patch",
    "Person",
    "Pin",
    "Push",
    "Ramp",
    "Rollout",
    "RunInterrupted",
    "Scene",
    "SceneContext",
    "Solid",
    "SolidObject",
    "SolidTrack",
    "Stairs",
    "StepInputs",
    "StiffJoint",
    "Terrain",
    "Throw",
    "Trip",
    "World",
    "WorldDivergedError",
    "WorldState",
    "above_ground",
    "batch_scenes",
    "run",
]
