"""Scenes: people, ground, balls and obstacles, and what happens to them in time."""

from dropsim.physics.energies import MaskedEnergy
from dropsim.physics.step import StepInputs
from dropsim.priors.intent import Intent
from dropsim.scene.element import BODY_PARTS, Element, SceneContext, Solid
from dropsim.scene.loose import BodyState
from dropsim.scene.objects import Ball, Carry, Ground, Patch, Throw, Trip
from dropsim.scene.perturbations import DIRECTIONS, Dodge, Drag, Follow, Pin, Push, StiffJoint
from dropsim.scene.rollout import Rollout, RunInterrupted, WorldDivergedError, above_ground, run
from dropsim.scene.solids import Box, Cylinder, MeshObject, Obstacle, Ramp, SolidObject, Stairs, Terrain
from dropsim.scene.world import Person, Scene, World, WorldState, batch_scenes

__all__ = [
    "BODY_PARTS",
    "DIRECTIONS",
    "Ball",
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
