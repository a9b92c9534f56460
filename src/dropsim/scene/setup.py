"""A setup: all that a run needs."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dropsim.control.following import clip_simulator
from dropsim.files.units import Seconds
from dropsim.motion.reading import read_motion
from dropsim.motion.synthetic import somersault_clip
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.named import is_checkpoint, open_pose, open_prior
from dropsim.priors.prior import Prior
from dropsim.priors.recording import ClipPrior
from dropsim.scene import Drag, Element, Follow, Pin, Scene, Trip, World
from dropsim.scene.element import table_name

MAX_SECONDS = 3600.0
SOMERSAULT = "somersault"
"""Name in place of a recording's file: a somersault made by our own code."""


@dataclass(frozen=True)
class Setup:
    """All that a run needs: a scene, how long it lasts, and how it is simulated."""

    name: str = "scene"
    """Name of the files that a run writes."""
    description: str = ""
    """Description of the scene in a sentence."""
    seconds: Seconds = 6.0
    """Length of the simulation."""
    seed: int = 0
    """Seed of all random numbers."""
    clip: str | None = None
    """A recording (.bvh or .npz) to follow from the start, relative to this file; "somersault" is one made by our own
    code."""
    handover: Seconds | None = None
    """Time at which the motion prior takes over from the recording; its end unless given."""
    prior: str | None = None
    """The motion prior: field, cvae, or a .bank, .safetensors or .pth file or a folder of recordings, relative to this
    file."""
    body: str | None = None
    """SMPL's file of the body that HuMoR was trained on, if the prior is its best_model.pth."""
    pose: str | None = None
    """The model of natural poses: a .safetensors file, or VPoser's checkpoint or folder; by default the package's."""
    scene: Scene = field(default_factory=Scene)
    simulator: SimulatorOptions = field(default_factory=SimulatorOptions)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,99}", self.name):
            raise ValueError(f"the name {self.name[:40]!r} cannot be a file's: use up to 100 letters, digits, - and _")
        if not 0 < self.seconds <= MAX_SECONDS:
            raise ValueError(f"seconds must be above 0 and at most {MAX_SECONDS:g}, not {self.seconds:g}")
        if not 0 <= self.seed < 2**62:
            raise ValueError("a seed is a whole number from 0 to 2^62")
        if self.handover is not None and (self.clip is None or not self.handover > 0):
            raise ValueError("handover needs a clip, and a time later than 0 s at which the motion prior takes over")
        if self.clip is not None and len(self.scene.people) > 1:
            raise ValueError(f"a scene that follows a clip has one person, not {len(self.scene.people)}")
        planner = self.scene.planner
        if planner.num_rollouts * planner.horizon > 100_000:
            raise ValueError(f"the planner's {planner.num_rollouts} x {planner.horizon} frames are more than 100000")
        refuse_contradictions(self.scene.elements)

    def world(self, prior: Prior | None = None) -> World:
        """Build the world, with the scene's own prior unless another is given."""
        if prior is None:
            name = self.prior or "field"
            prior = open_prior(name, body=self.body if is_checkpoint(name) else None)
        pose = open_pose(self.pose)
        if self.clip is None:
            return World(self.scene, Simulator(prior, options=self.simulator, pose=pose))
        handover = None if self.handover is None else round(self.handover * prior.fps)
        recording = somersault_clip() if self.clip == SOMERSAULT else read_motion(self.clip, prior.skeleton)
        follower = ClipPrior(recording, then=prior, handover=handover)
        simulator = Simulator(follower, options=self.simulator, pose=pose)
        return World(self.scene, simulator, opening=clip_simulator(follower))

    def num_frames(self, fps: float) -> int:
        """Count the frames of a run."""
        return max(1, round(self.seconds * fps))


def refuse_contradictions(elements: Sequence[Element[Any]]) -> None:
    """Refuse two follows of one person, and a joint that two elements hold at the same time."""
    claims: dict[str, list[tuple[str, Element[Any], float, float]]] = {}
    kinds = [table_name(type(element)) for element in elements]
    for i, element in enumerate(elements):
        name, start, end = f"{kinds[i]} {kinds[:i].count(kinds[i])}", 0.0, math.inf
        if isinstance(element, Follow):
            what = f"lead person {element.person}: put their velocities into one follow"
        elif isinstance(element, Pin | Drag | Trip):
            what = f"hold the {element.joint} of person {element.person} at one time: move or remove one of them"
            if not isinstance(element, Trip):  # whose foot may come to the obstacle at any time
                start, end = element.events[0].start, element.events[0].start + element.events[0].duration
        else:
            continue
        for other_name, other, since, until in claims.setdefault(what, []):
            if (
                start < until - 1e-9
                and since < end - 1e-9
                and not (isinstance(element, Trip) and isinstance(other, Trip))
            ):
                raise ValueError(f"{other_name} and {name} both {what}")
        claims[what].append((name, element, start, end))
