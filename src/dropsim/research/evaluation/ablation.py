"""What each setting of the simulator does to quality and speed: one is changed at a time, and the same people get the same pushes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch

from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.wrench import WrenchOptions
from dropsim.priors.pose import PosePrior
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.paper.plan import random_trials
from dropsim.research.evaluation.trials import Body, Trial, frames_of, batch_scenes, simulate_trials
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
    default: bool = False
    """Whether it is what people get who set nothing."""


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
    switches: tuple[str, ...] = ("unit masses", "start at the mode", "no ground reaction", "no contact", "no range of motion")
    """What is on or off."""
    prior: Path | None = None
    """Weights of the prior; those of the package unless given."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.motions < 1 or self.num_frames < RECOVERY.stop:
            raise ValueError(f"cannot judge by {self.motions} motions of {self.num_frames} frames: take at least 1 of {RECOVERY.stop}")

    @classmethod
    def quick(cls) -> "AblationOptions":
        """Return a small version."""
        return cls(motions=4, num_frames=150, samples=(1, 8), iterations=(1,), corrections=(0.0,), weights=(1.0,))

    def settings(self) -> list[Setting]:
        """Return every value of every setting, the default first."""
        whole = Body.of(Body().options.num_samples, self.prior)
        default = whole.options
        plain = {"kinematic": "prior", "contact": "contact", "range_of_motion": "pose"}
        switched = {
            "unit masses": replace(whole, unit_masses=True), "start at the mode": replace(whole, wish_mode=True),
            "no ground reaction": whole.changed(react=False), "no contact": whole.changed(contact=False),
            "no range of motion": whole.changed(range_of_motion=False),
        }  # fmt: skip
        values = [
            *(("K", k, whole.changed(num_samples=k), k == default.num_samples) for k in self.samples),
            *(("iterations", n, whole.changed(num_iterations=n), n == default.num_iterations) for n in self.iterations),
            *(("correction", w, replace(whole, correction=w), w == WrenchOptions().weight) for w in self.corrections),
            *((f"weight of the {label}", w, replace(whole, weights=((name, w),)), w == _weight(whole, name))
              for name, label in plain.items() for w in self.weights),
            *((name, 1.0, switched[name], False) for name in self.switches),
        ]  # fmt: skip
        others = [Setting(name, float(value), body) for name, value, body, usual in values if not usual]
        return [Setting("default", 0.0, whole, default=True), *others]

    def default_of(self, name: str) -> float | None:
        """Return the value that a setting has unless it is changed, for the figure; nothing for a switch."""
        whole = Body()
        energies = {"weight of the prior": "kinematic", "weight of the contact": "contact", "weight of the pose": "range_of_motion"}
        if name in energies:
            return _weight(whole, energies[name])
        numbers = {"K": whole.options.num_samples, "iterations": whole.options.num_iterations, "correction": WrenchOptions().weight}
        return None if name not in numbers else float(numbers[name])


def _weight(body: Body, name: str) -> float:
    return getattr(body.simulator(), name).weight


@dataclass(frozen=True)
class AblationChunk(Chunk):
    """Pushed people under one setting."""

    body: Body
    trials: tuple[Trial, ...]
    num_frames: int

    @property
    def label(self) -> str:
        """Begins the name of its file."""
        return f"ablation-{self.trials[0].seed:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the trials that went through, in order."""
        simulator = self.body.simulator()
        simulate_trials(simulator, self.trials[:1], 3)  # compiled and warm
        began = time.process_time()
        motion, finished = simulate_trials(simulator, self.trials, self.num_frames)
        spent = (time.process_time() - began) / (len(self.trials) * (self.num_frames - 1))
        found = {"finished": finished.numpy(), "seconds_a_frame": np.array([spent])}
        return found if motion is None else found | _measured(motion, [t for t, f in zip(self.trials, finished.tolist(), strict=True) if f])


def _measured(motion: Motion, trials: Sequence[Trial]) -> Arrays:
    first, end = frames_of(trials, end=False), frames_of(trials, end=True)
    assert motion.root_wrench is not None
    kinematic = motion.energies["kinematic"]
    numbers = {
        "recovered": metrics.recovered(motion, end),
        "fell": metrics.fell(motion, first),
        "fell_unpushed": metrics.fallen(motion)[:, BEFORE].any(-1),
        "kinematic_before": kinematic[:, BEFORE].mean(-1),
        "kinematic_recovery": kinematic[:, RECOVERY].mean(-1),
        "root_wrench": motion.root_wrench[:, 1:, 1],
        "skate": metrics.foot_skate(motion),
        "penetration_mm": metrics.penetration_mm(motion),
        "jerk": metrics.jerk(motion),
        "out_of_range_percent": metrics.out_of_range_percent(motion, PosePrior.shipped()),
        "features": window_features(motion),
    }
    return {name: values.numpy() for name, values in numbers.items()}


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
    groups = batch_scenes(random_trials(options.motions, options.seed, NEWTONS))
    settings = options.settings()
    chunks = [AblationChunk(setting.body, group, options.num_frames) for setting in settings for group in groups]
    results = run_chunks(chunks, folder, workers=workers, watch=watch)
    parts = [results[i * len(groups) : (i + 1) * len(groups)] for i in range(len(settings))]
    usual = _windows(parts[0])
    return tuple(_row(setting, part, usual) for setting, part in zip(settings, parts, strict=True))


def _windows(part: Sequence[Arrays]) -> torch.Tensor:
    found = [torch.from_numpy(arrays["features"]).reshape(-1, NUM_FEATURES).double() for arrays in part if "features" in arrays]
    return torch.cat(found) if found else torch.zeros(0, NUM_FEATURES, dtype=torch.float64)


_MEANS = ("recovered", "fell", "fell_unpushed", "penetration_mm", "out_of_range_percent")
_MEDIANS = ("kinematic_before", "kinematic_recovery", "skate", "jerk")


def _row(setting: Setting, part: Sequence[Arrays], usual: torch.Tensor) -> AblationRow:
    whole = [arrays for arrays in part if "recovered" in arrays]
    finished = np.concatenate([arrays["finished"] for arrays in part])
    column = {n: np.concatenate([a[n] for a in whole]) if whole else np.zeros(0) for n in (*_MEANS, *_MEDIANS)}
    wrench = np.concatenate([a["root_wrench"].ravel() for a in whole]) if whole else np.zeros(0)
    numbers = {name: _of(np.mean, column[name]) for name in _MEANS} | {name: _of(np.median, column[name]) for name in _MEDIANS}
    return AblationRow(
        setting.name, setting.value, people=int(finished.sum()), diverged=int((~finished).sum()), **numbers,
        root_wrench=_of(lambda values: np.quantile(values, 0.95), wrench), frechet=frechet(_windows(part), usual),
        frames_per_second=1 / float(np.median([arrays["seconds_a_frame"] for arrays in part])),
    )  # fmt: skip


def _of(measure: Callable[[np.ndarray], object], values: np.ndarray) -> float:
    return float(measure(values)) if len(values) else float("nan")  # pyright: ignore[reportArgumentType]


def row_names() -> list[str]:
    """Return the names of a row's fields."""
    return [one.name for one in fields(AblationRow)]


def panels(rows: Sequence[AblationRow], options: AblationOptions) -> list[tuple[str, list[tuple[float, AblationRow]]]]:
    """Return the settings that are numbers with their rows by value, the default among them."""
    found = []
    for name in dict.fromkeys(row.setting for row in rows):
        usual = options.default_of(name)
        if usual is not None:
            points = [(row.value, row) for row in rows if row.setting == name] + [(usual, rows[0])]
            found.append((name, sorted(points, key=lambda point: point[0])))
    return found
