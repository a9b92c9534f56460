"""The simulator's options, in one place for Python, scene files, evaluation and the app."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dropsim.files.names import suggestion
from dropsim.files.units import Metres, MetresPerSecond, Seconds


@dataclass(frozen=True)
class SimulatorOptions:
    """How people are simulated; the switches are for seeing what a part is good for."""

    num_samples: int | None = None
    """K: candidates of the prior a frame, its mode among them; by default what suits the prior."""
    num_iterations: int = 3
    """Local and global steps a frame."""
    start_at_mode: bool | None = None
    """Start the iterations at the mode, as in the paper, or at the first sample; by default at the candidate that
    physics chooses."""
    wrench_weight: float = 1.0
    """Weight of a candidate's root wrench, squared, in the choice [m^2 per squared body weight]."""
    nearest_sample: bool = False
    """Let the candidate nearest to the solution drive the next state, as in the paper, instead of the one at which the
    iterations start."""
    contact: bool = True
    """Whether people touch the ground, objects, each other and themselves."""
    range_of_motion: bool = True
    """Whether poses that no person can take are drawn back."""
    kinematic: bool = True
    """Whether the motion prior has a say."""
    correct: bool = True
    """Whether motion that contact does not explain is softly corrected."""
    react: bool = True
    """Whether the ground's reaction enters the momentum; the paper's literal form is without."""
    rigidity_weight: float = 60.0
    """Of the bones as springs, relative to M / h^2 as all weights are."""
    contact_weight: float = 3.0
    range_of_motion_weight: float = 3.0
    kinematic_weight: float = 3.0
    friction: float = 0.8
    """Largest tangential force over the normal one between people and what they touch; a rubber sole on a floor."""
    leaf_damping: float = 0.03
    """Share by which the rotations of head, hands and toes, which no joint tells, go back to rest each frame."""
    twist_from_sample: bool = False
    """Whether bones are twisted as in the nearest candidate, as in the paper, which turns limbs over when candidates
    change."""
    drift: MetresPerSecond | None = None
    """Bound on the unexplained velocity that adds up within half a second, of the body and of its turning at the moment
    arm [m/s]; by default what suits the prior. With 0 each step is corrected on its own, as in the paper."""
    threshold: float = 0.0
    """Size below which an excess of the root wrench is left alone [body weights]."""
    correction_weight: float = 20.0
    """Strength of the correction, w_p: it removes w_p / (1 + w_p) of an unexplained force, and less of an unexplained
    moment."""
    correction_cap: Metres = 0.1
    """Farthest that the correction moves any joint [m]."""
    moment_arm: Metres = 0.4
    """Arm at which a moment weighs as much as a force, in the fit and in the correction [m]: about a body's radius of
    gyration."""
    largest_load: float = 4.0
    """Most that ankles and toes together bear along their normals [body weights]; people land from jumps with about as
    much."""
    largest_bearing: float = 1.0
    """Most that all other joints bear together [body weights]: hands, hips and backs carry a body but do not throw it
    into the air."""
    soles: bool = True
    """Whether bodies bear forces with soles, toes, palms and flesh, and none that helps where they slide; the paper's
    points are below the joints alone."""
    unit_masses: bool = False
    """Give all particles the same mass, as in the paper, instead of a body's."""
    braces: bool = True
    """Hold pelvis and chest in shape by more springs than the bones."""
    slides: bool = True
    """Let contacts slide where friction cannot hold them; in the paper they stick."""
    gentle_range: bool = True
    """Draw limbs back into the range of motion within 0.13 s; the paper draws the whole body to the natural pose at
    once."""
    settle: bool = True
    """Push people out of objects, each other and themselves after the solve, and restore the lengths of bones."""
    tell_prior: bool = True
    """Tell the prior about intents, and about impulses that people get."""
    reaction_time: Seconds | None = None
    """Time for which people who are off balance go on as before [s]; by default the prior's own."""
    scripts: bool = True
    """Let scripts act for what priors do not know: plans, getting up, crouching, places to stand, uneven ground, walls
    and loads."""

    @classmethod
    def of_method(cls, method: str, **changes: Any) -> "SimulatorOptions":  # noqa: ANN401
        """Return the options of a method, `default` or `paper` (DROP as it was published), with some changes."""
        if method not in METHODS:
            raise ValueError(f"there is no method {method!r}: {suggestion(method, METHODS)}")
        return cls(**{**METHODS[method], **changes})

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), _BETWEEN.get(field.name, (0.0, 1e9))
            if value is not None and not low <= value <= high:
                raise ValueError(f"{field.name} has to be between {low:g} and {high:g}, not {value:g}")


_BETWEEN = {"num_samples": (1, 4096), "num_iterations": (1, 100), "leaf_damping": (0, 1), "friction": (1e-3, 10)}
_BETWEEN |= dict.fromkeys(("moment_arm", "largest_load", "largest_bearing"), (1e-3, 1e6))
"""Smallest and largest values of options that are not just 0 or more."""
METHODS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": {
        "unit_masses": True,
        "rigidity_weight": 1.0,
        "braces": False,
        "start_at_mode": True,
        "nearest_sample": True,
        "react": False,
        "slides": False,
        "gentle_range": False,
        "settle": False,
        "soles": False,
        "largest_load": 1000.0,
        "largest_bearing": 1000.0,
        "moment_arm": 1.0,
        "drift": 0.0,
        "threshold": 0.1,
        "correction_weight": 1.0,
        "correction_cap": 10.0,
        "twist_from_sample": True,
        "tell_prior": False,
        "reaction_time": 0.0,
        "scripts": False,
    },
}
"""Options by method; docs/architecture.md has a line for each difference between the paper and the defaults."""
