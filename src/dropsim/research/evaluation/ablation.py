"""What each setting of the simulator does to quality and speed: one is changed at a time, under the same pushes of the same people."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.options import SimulatorOptions
from dropsim.priors.pose import PosePrior
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.paper.plan import random_trials
from dropsim.research.evaluation.trials import Body, Trial, batched, check_seed, frames_of, simulate_trials
from dropsim.research.evaluation.windows import NUM_FEATURES, frechet, window_features

NEWTONS = (150.0, 450.0)
"""Range of the pushes [N], from what nearly all bear to what fells most: where settings differ."""
BEFORE = slice(10, 63)
"""Frames without a push."""
RECOVERY = slice(100, 150)


@dataclass(frozen=True)
class Setting:
    """One value of one setting."""

    name: str
    value: float
    body: Body


@dataclass(frozen=True)
class AblationOptions:
    """Which values are tried, and on how many motions."""

    motions: int = 50
    seed: int = 0
    num_frames: int = 180
    samples: tuple[int, ...] = (1, 4, 16, 64, 256)
    """K."""
    iterations: tuple[int, ...] = (1, 2, 3, 6)
    corrections: tuple[float, ...] = (0.0, 1.0, 3.0, 10.0, 30.0)
    """Strengths of the soft correction."""
    weights: tuple[float, ...] = (1.0, 3.0, 9.0)
    """Of the prior's, the contacts' and the poses' energies in turn."""
    switches: tuple[str, ...] = (
        "unit masses",
        "start at the mode",
        "no ground reaction",
        "no contact",
        "no range of motion",
    )
    """What is on or off."""
    prior: str = "field"
    """As `open_prior` takes it."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.motions < 1 or self.num_frames < RECOVERY.stop:
            raise ValueError(
                f"cannot judge by {self.motions} motions of {self.num_frames} frames: take at least 1 of {RECOVERY.stop}"
            )

    @classmethod
    def quick(cls) -> "AblationOptions":
        return cls(motions=4, num_frames=150, samples=(1, 8), iterations=(1,), corrections=(0.0,), weights=(1.0,))

    def settings(self) -> list[Setting]:
        """Return every value of every setting, the default first."""
        whole = Body.of(DEFAULTS.num_samples, self.prior)
        switched = {
            "unit masses": replace(whole, unit_masses=True), "start at the mode": whole.changed(start_at_mode=True),
            "no ground reaction": whole.changed(react=False), "no contact": whole.changed(contact=False),
            "no range of motion": whole.changed(range_of_motion=False),
        }  # fmt: skip
        values = {
            "K": self.samples,
            "iterations": self.iterations,
            "correction": self.corrections,
            **dict.fromkeys(WEIGHTS, self.weights),
        }
        changed = [
            Setting(name, float(value), whole.changed(**{OPTIONS[name]: value}))
            for name, tried in values.items() for value in tried if value != default_of(name)
        ]  # fmt: skip
        return [
            Setting("default", 0.0, whole),
            *changed,
            *(Setting(name, 1.0, switched[name]) for name in self.switches),
        ]


WEIGHTS = ("weight of the prior", "weight of the contact", "weight of the pose")
OPTIONS = {"K": "num_samples", "iterations": "num_iterations", "correction": "correction_weight"} | dict(
    zip(WEIGHTS, ("kinematic_weight", "contact_weight", "range_of_motion_weight"), strict=True)
)
"""Settings that are numbers, and the simulator's options that they change."""


DEFAULTS = SimulatorOptions(num_samples=64)


def default_of(name: str) -> float:
    """Return the value of a setting unless it is changed."""
    return float(getattr(DEFAULTS, OPTIONS[name]))


@dataclass(frozen=True)
class AblationChunk(Chunk):
    """Pushed people under one setting."""

    body: Body
    trials: tuple[Trial, ...]
    num_frames: int

    @property
    def label(self) -> str:
        return f"ablation-{self.trials[0].seed:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the trials that went through, in order."""
        simulator = self.body.simulator()
        simulate_trials(simulator, self.trials[:1], 3)  # compiled and warm
        began = time.process_time()
        motion, finished = simulate_trials(simulator, self.trials, self.num_frames)
        spent = (time.process_time() - began) / (len(self.trials) * (self.num_frames - 1))
        found = {"finished": finished, "seconds_a_frame": np.array([spent])}
        return (
            found
            if motion is None
            else found | _measured(motion, [t for t, f in zip(self.trials, finished, strict=True) if f])
        )


def _measured(motion: Motion, trials: Sequence[Trial]) -> Arrays:
    first, end = frames_of(trials, end=False), frames_of(trials, end=True)
    kinematic = motion.energies["kinematic"]
    assert motion.wrench_after is not None
    return {
        "recovered": metrics.recovered(motion, end),
        "fell": metrics.fell(motion, first),
        "fell_unpushed": np.asarray(metrics.fallen(motion)[:, BEFORE].any(-1)),
        "kinematic_before": kinematic[:, BEFORE].mean(-1),
        "kinematic_recovery": kinematic[:, RECOVERY].mean(-1),
        "root_wrench": motion.wrench_after[:, 1:],
        "skate": metrics.foot_skate(motion),
        "penetration_mm": metrics.penetration_mm(motion),
        "jerk": metrics.jerk(motion),
        "out_of_range_percent": metrics.out_of_range_percent(motion, PosePrior.shipped()),
        "features": window_features(motion),
    }


@dataclass(frozen=True)
class AblationRow:
    """What one setting does."""

    setting: str
    value: float
    people: int
    diverged: int
    recovered: float
    """Share upright three seconds after the push's end, or at the end where that comes sooner."""
    fell: float
    fell_unpushed: float
    """Share that lay before anybody was pushed."""
    kinematic_before: float
    """Median of E_kin before the push [m^2]."""
    kinematic_recovery: float
    """Median of E_kin in frames 100-150 [m^2]."""
    root_wrench: float
    """95th percentile after the correction [body weights]."""
    skate: float
    """Median foot skate [m/s]."""
    penetration_mm: float
    jerk: float
    """Median [m/s^3]."""
    out_of_range_percent: float
    frechet: float
    """Distance of the seconds to the default's."""
    frames_per_second: float
    """Frames of people side by side that one core makes in a second."""


def evaluate_ablation(
    options: AblationOptions, folder: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None
) -> tuple[AblationRow, ...]:  # fmt: skip
    """Run every setting, in chunks that are kept in a folder; the first row is the default."""
    groups = batched(random_trials(options.motions, options.seed, NEWTONS))
    settings = options.settings()
    chunks = [AblationChunk(setting.body, group, options.num_frames) for setting in settings for group in groups]
    results = run_chunks(chunks, folder, workers=workers, watch=watch)
    parts = [results[i * len(groups) : (i + 1) * len(groups)] for i in range(len(settings))]
    usual = _windows(parts[0])
    return tuple(_row(setting, part, usual) for setting, part in zip(settings, parts, strict=True))


def _windows(part: Sequence[Arrays]) -> np.ndarray:
    return np.concatenate(
        [np.zeros((0, NUM_FEATURES)), *(a["features"].reshape(-1, NUM_FEATURES) for a in part if "features" in a)]
    )


_MEASURES: dict[str, Callable[[np.ndarray], np.floating]] = {
    **dict.fromkeys(("recovered", "fell", "fell_unpushed", "penetration_mm", "out_of_range_percent"), np.mean),
    **dict.fromkeys(("kinematic_before", "kinematic_recovery", "skate", "jerk"), np.median),
    "root_wrench": lambda values: np.quantile(values, 0.95),
}
"""How the numbers of people become one."""


def _row(setting: Setting, part: Sequence[Arrays], usual: np.ndarray) -> AblationRow:
    whole = [arrays for arrays in part if "recovered" in arrays]
    finished = np.concatenate([arrays["finished"] for arrays in part])
    numbers = {
        name: float(measure(np.concatenate([arrays[name].ravel() for arrays in whole]))) if whole else math.nan
        for name, measure in _MEASURES.items()
    }
    return AblationRow(
        setting.name, setting.value, people=int(finished.sum()), diverged=int((~finished).sum()), **numbers,
        frechet=frechet(_windows(part), usual), frames_per_second=1 / float(np.median([arrays["seconds_a_frame"] for arrays in part])),
    )  # fmt: skip


def panels(rows: Sequence[AblationRow]) -> dict[str, list[tuple[float, AblationRow]]]:
    """Return the rows of each setting that is a number, by value, the default among them."""
    names = [name for name in dict.fromkeys(row.setting for row in rows) if name in OPTIONS]
    points = {
        name: [(default_of(name), rows[0]), *((row.value, row) for row in rows if row.setting == name)]
        for name in names
    }
    return {name: sorted(of, key=lambda point: point[0]) for name, of in points.items()}
