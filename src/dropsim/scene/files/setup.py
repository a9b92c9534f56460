"""All that a run needs, and what it refuses."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from dropsim.control.following import clip_simulator
from dropsim.motion.motion import Motion
from dropsim.motion.reading import read_motion
from dropsim.motion.synthetic import somersault_clip
from dropsim.physics.energies.kinematic import Kinematic
from dropsim.physics.energies.physical import Contact, RangeOfMotion
from dropsim.physics.step import Simulator
from dropsim.physics.wrench import WrenchOptions
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.pose import PosePrior
from dropsim.priors.recording import ClipPrior
from dropsim.scene import Drag, Element, Follow, Pin, Scene, Trip, World

MAX_SECONDS = 3600.0
SOMERSAULT = "somersault"
"""Instead of a recording's file name: the somersault that our own code makes."""


@dataclass(frozen=True)
class SimulatorOptions:
    """What of the simulator a scene may choose; the switches are for seeing what a part is good for."""

    num_samples: int = Simulator.num_samples
    """Candidates of the prior a frame."""
    num_iterations: int = Simulator.num_iterations
    """Local and global steps a frame."""
    contact: bool = True
    """Whether people touch the ground, things and each other."""
    range_of_motion: bool = True
    """Whether poses that no person can take are drawn back."""
    kinematic: bool = True
    """Whether the motion prior has a say."""
    correct: bool = Simulator.correct
    """Whether motion that contact does not explain is softly corrected."""
    react: bool = Simulator.react
    """Whether the ground's reaction enters the momentum; the paper's literal form is without."""
    friction: float = Simulator.friction
    """Between people and what they touch."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not (1 <= self.num_samples <= 4096 and 1 <= self.num_iterations <= 100):
            raise ValueError(
                "num_samples must be at least 1 and at most 4096, and num_iterations at least 1 and at most 100, "
                f"not {self.num_samples} and {self.num_iterations}"
            )
        if not 0 < self.friction <= 10:
            raise ValueError(f"friction must be above 0 and at most 10, not {self.friction:g}")

    def simulator(self, prior: CVAEPrior | ClipPrior) -> Simulator:
        """Build the simulator."""
        return Simulator(
            prior,
            contact=Contact() if self.contact else None,
            range_of_motion=RangeOfMotion(PosePrior.shipped()) if self.range_of_motion else None,
            kinematic=Kinematic() if self.kinematic else None,
            wrench=WrenchOptions(friction=self.friction),
            correct=self.correct,
            react=self.react,
            num_samples=self.num_samples,
            num_iterations=self.num_iterations,
            friction=self.friction,
        )


@dataclass(frozen=True)
class Setup:
    """All that a run needs: a scene, and how long and how it is simulated."""

    name: str = "scene"
    """Of the files that a run writes."""
    description: str = ""
    """What there is to see, in a sentence."""
    seconds: float = 6.0
    """How long to simulate [s]."""
    seed: int = 0
    """Of everything random."""
    clip: str | None = None
    """A recording (.bvh or .npz) to follow from the start, relative to this file; "somersault" is one that our own code makes."""
    handover: float | None = None
    """When the motion prior takes over from the recording [s]; at its end unless given."""
    scene: Scene = field(default_factory=Scene)
    simulator: SimulatorOptions = field(default_factory=SimulatorOptions)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not re.fullmatch(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,99}", self.name):
            raise ValueError(f"the name {self.name!r} cannot be a file's: use up to 100 letters, digits, - and _")
        if not 0 < self.seconds <= MAX_SECONDS:
            raise ValueError(f"seconds must be between 0 and {MAX_SECONDS:g}, not {self.seconds:g}")
        if not 0 <= self.seed < 2**62:
            raise ValueError(f"a seed is a whole number from 0 to 2^62, not {self.seed}")
        if self.handover is not None and (self.clip is None or not self.handover > 0):
            raise ValueError("handover is when the motion prior takes over from a clip: give a clip, and a time later than 0 s")
        if self.clip is not None and len(self.scene.people) > 1:
            raise ValueError(f"a scene that follows a clip has one person, not {len(self.scene.people)}")
        planner = self.scene.planner
        if planner.num_rollouts * planner.horizon > 100_000:
            raise ValueError(f"a planner of {planner.num_rollouts} roll-outs of {planner.horizon} frames is more than 100000 frames in all")
        refuse_contradictions(self.scene.elements, [name for name, _ in _numbered(self.scene.elements)])

    def world(self, prior: CVAEPrior | None = None) -> World:
        """Build the world, with the shipped prior unless another is given."""
        prior = prior or CVAEPrior.shipped()
        if self.clip is None:
            return World(self.scene, self.simulator.simulator(prior))
        handover = None if self.handover is None else round(self.handover * prior.fps)
        follower = ClipPrior(self._recording(prior), then=prior, handover=handover)
        return World(self.scene, self.simulator.simulator(follower), opening=clip_simulator(follower))

    def _recording(self, prior: CVAEPrior) -> Motion:
        assert self.clip is not None
        return somersault_clip() if self.clip == SOMERSAULT else read_motion(Path(self.clip), prior.skeleton)

    def num_frames(self, fps: float) -> int:
        """Count the frames of a run."""
        return max(1, round(self.seconds * fps))


def _numbered(elements: Sequence[Element[Any]]) -> Iterator[tuple[str, Element[Any]]]:
    """Name elements by their kind and how many of it came before."""
    seen: dict[str, int] = {}
    for element in elements:
        kind = name_of(type(element))
        yield f"{kind} {seen.setdefault(kind, 0)}", element
        seen[kind] += 1


def name_of(cls: type) -> str:
    """Return the name of a class' table, such as stiff_joint for StiffJoint."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


STRIDE = 1.0
"""A trip without a place catches the foot within about this time [s]."""


def refuse_contradictions(elements: Sequence[Element[Any]], names: Sequence[str]) -> None:
    """Refuse events that cannot both be: two follows of one person, or one joint held by two at once."""
    for (name, one), (other_name, other) in combinations(zip(names, elements, strict=True), 2):
        if isinstance(one, Follow) and isinstance(other, Follow) and one.person == other.person:
            raise ValueError(f"{name} and {other_name} both lead person {one.person}: put their velocities into one follow")
        a, b = _hold(one), _hold(other)
        if a is None or b is None or (isinstance(one, Trip) and isinstance(other, Trip)):
            continue
        if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]:
            person, joint = a[0]
            raise ValueError(f"{name} and {other_name} both hold the {joint} of person {person} at one time: move or remove one of them")


def _hold(element: Element[Any]) -> tuple[tuple[int, str], float, float] | None:
    """Return whose joint an element holds, from when until when [s]."""
    match element:
        case Pin(joint=joint, person=person, start=start, duration=duration):
            return (person, joint), start, start + duration
        case Drag(joint=joint, person=person, path=path):
            return (person, joint), path[0][0], path[-1][0]
        case Trip(joint=joint, person=person, start=start, hold=hold, obstacle=None):
            return (person, joint), start, start + STRIDE + hold
        case Trip(joint=joint, person=person):
            return (person, joint), 0.0, math.inf
    return None
