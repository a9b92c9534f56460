"""Does it hold? Random pushes, random scenes, and damaged files for every reader.

A simulation must go on with finite numbers, whole bones and nobody through the floor, whatever happens in it. A damaged
file must be read or refused with a ValueError of one line, within bounds of time and memory; anything else counts as a
failure.
"""

import resource
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from dropsim.body.joints import JOINTS
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.fuzz import Reader, mutant, usable_readers
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, Watch, check_seed, chunks_of, run_chunks
from dropsim.research.evaluation.people import Trial, simulate_trials
from dropsim.research.evaluation.random_scenes import BELOW, DEEP, measure_scenes
from dropsim.research.evaluation.report import Report, Table
from dropsim.scene.element import BODY_PARTS

STARTS = ("stand", "walk", "run", "crouch")
PUSHED_AT, SHORTEST, LONGEST = 15, 1, 20
"""Frame of a random push, and the fewest and the most frames that it lasts."""
STRONGEST = 1500.0
"""Force of a random push at most [N]: that of a car at walking pace, for a moment."""
FRAMES = 90
"""Length of every random motion."""
DEEPEST, LONGEST_BONE = 0.03, 2.0
"""Worst that a frame may be: a sphere in the ground [m], an error of a bone's length [%]."""
FASTEST = 40.0
"""Speed of a joint beyond which a body is not thrown but broken [m/s]: an impulse of 1500 N for 20 frames gives a hand
less."""
SCENE_SECONDS, MOST_PEOPLE = 3.0, 4
"""Length of a random scene [s], and the largest number of people in one."""
BATCH = 25
"""Pushes or scenes of a chunk."""
MUTANT_SECONDS, MUTANT_MEMORY = 10.0, 1_000_000_000
"""Processor time [s] and memory [bytes] within which a damaged file is read or refused."""


@dataclass(frozen=True)
class ReliabilityOptions:
    """Numbers of trials."""

    pushes: int = 10_000
    scenes: int = 3_000
    mutants: int = 5_000
    """Damaged files of each kind."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.pushes, self.scenes, self.mutants) < 0:
            raise ValueError("the numbers of pushes, scenes and mutants are 0 or more")
        check_seed(self.seed)


@dataclass(frozen=True)
class Counted:
    """Outcomes of one kind of trial."""

    name: str
    tried: int
    failures: int
    """Outcomes that should not be."""
    details: Mapping[str, int | float] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    """Some of the failures."""


def faults_of(motion: Motion) -> dict[str, np.ndarray]:
    """Return the faults of each person's motion."""
    joints = motion.joints
    finite = np.isfinite(joints).all((-1, -2, -3))
    with np.errstate(invalid="ignore"):
        # The first frame is the prior's own.
        depth = -sphere_heights(motion)[..., 1:, :].min((-1, -2))
        speed = np.linalg.norm(np.diff(joints, axis=-3), axis=-1).max((-1, -2)) * motion.fps
        bones = metrics.bone_error_percent(motion)
    worst = {"through the floor": depth > DEEPEST, "broken bones": bones > LONGEST_BONE, "too fast": speed > FASTEST}
    return {"not finite": np.asarray(~finite)} | {name: np.asarray(finite & flags) for name, flags in worst.items()}


def random_pushes(count: int, seed: int) -> list[Trial]:
    """Draw pushes of any part of anybody from any side, also from above and below; more begin with the same ones."""
    rng, parts, trials = np.random.default_rng(seed), (*BODY_PARTS, *JOINTS), list[Trial]()
    for i in range(count):
        way = rng.normal(size=3)
        force = STRONGEST * rng.random() * way / np.linalg.norm(way)
        start, part = STARTS[rng.integers(len(STARTS))], parts[rng.integers(len(parts))]
        frames = int(rng.integers(SHORTEST, LONGEST + 1))
        trials.append(Trial(start, seed * 1_000_000 + i, tuple(force.tolist()), part, PUSHED_AT, frames))
    return trials


def measure_pushes(body: Body, trials: Sequence[Trial]) -> Arrays:
    """Simulate random pushes."""
    motion, finished = simulate_trials(body.simulator(), trials, FRAMES)
    if motion is None:
        return {"diverged": ~finished}
    return {"diverged": ~finished, "fell": metrics.fallen(motion).any(-1)} | faults_of(motion)


def scene_faults(laws: Arrays) -> Arrays:
    """Return the faults of each random scene."""
    finite = laws["finite"]
    worst = {
        "too deep": laws["solid"] > DEEP,
        "too deep in a loose object": laws["loose"] > DEEP,
        "below the ground": laws["lowest"] < -BELOW,
        "broken bones": laws["bones"] > LONGEST_BONE,
        "too fast": laws["speed"] > FASTEST,
    }
    return {"not finite": ~finite} | {name: finite & flags for name, flags in worst.items()}


def scene_failures(laws: Arrays) -> list[str]:
    """Name the random scenes that fail, so that `random_scenes.possible_scene` makes each of them again."""
    faults = scene_faults(laws)
    failures = []
    for i, (seed, people) in enumerate(zip(laws["seed"], laws["people"], strict=True)):
        names = [name for name, flags in faults.items() if flags[i]]
        failures += [f"scene {seed} of {people}: {', '.join(names)}"] if names else []
    return failures


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after some processor time."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        raise TimeoutError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def fuzz(name: str, reader: Reader, count: int, seed: int = 0) -> Counted:
    """Read damaged files of a kind; count those that are neither read nor refused in a line."""
    examples, read, longest = list[str](), 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{reader.ending}"
        whole = reader.whole(Path(folder))
        reader.read(_written(path, whole))  # warm, and the file is right
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for i in range(count):
            _written(path, mutant(whole, np.random.default_rng((seed, i))))
            began = time.process_time()
            try:
                with _bounded(MUTANT_SECONDS):
                    reader.read(path)
                read += 1
            except ValueError as error:
                if "\n" in str(error).strip() or str(path) not in str(error):
                    examples.append(f"{name} {i}: the sentence is {str(error)!r}")
            except Exception as error:
                examples.append(f"{name} {i}: {type(error).__name__}: {error}")
            longest = max(longest, time.process_time() - began)
            used = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
            if used > MUTANT_MEMORY:
                examples.append(f"{name} {i}: took {used / 1e9:.1f} GB")
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    details = {"read": read, "longest [s]": round(longest, 3)}
    return Counted(f"files: {name}", count, len(examples), details, tuple(examples[:5]))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _totals(name: str, faults: Arrays, examples: Sequence[str] = ()) -> Counted:
    """Add flags up; falls are no failures."""
    counts = {key: int(flags.sum()) for key, flags in faults.items()}
    failures = sum(count for key, count in counts.items() if key != "fell")
    return Counted(name, len(next(iter(faults.values()))), failures, counts, tuple(examples))


def evaluate_reliability(
    body: Body, options: ReliabilityOptions, folder: Path, *, workers: int = 1, watch: Watch = None
) -> list[Counted]:
    """Try everything."""
    pushes = random_pushes(options.pushes, options.seed)
    chunks = chunks_of("pushes", measure_pushes, body, pushes, BATCH)
    seeds = [1_000_000 * options.seed + i for i in range(options.scenes)]
    for i in range(0, len(seeds), BATCH):
        kind = {"num_people": 1 + i // BATCH % MOST_PEOPLE, "seconds": SCENE_SECONDS}
        chunks.append(Chunk("scenes", measure_scenes, body, tuple(seeds[i : i + BATCH]), kind))
    tables = run_chunks(chunks, folder, workers=workers, watch=watch)
    counted = [_totals("pushes", tables["pushes"])] if pushes else []
    if seeds:
        counted.append(_totals("scenes", scene_faults(tables["scenes"]), scene_failures(tables["scenes"])))
    readers = usable_readers() if options.mutants else {}
    return counted + [fuzz(name, reader, options.mutants, options.seed) for name, reader in readers.items()]


def report_of(counted: Sequence[Counted]) -> Report:
    """Lay the counts out."""
    rows = [["what", "tried", "failures", "of these and others"]]
    for one in counted:
        details = ", ".join(f"{value:g} {key}" for key, value in one.details.items())
        rows.append([one.name, str(one.tried), str(one.failures), details])
    tables = {"reliability": Table("Random pushes, random scenes and damaged files", rows)}
    examples = [[example] for one in counted for example in one.examples]
    if examples:
        tables["failures"] = Table("Failures", [["failure"], *examples])
    numbers = {"counted": [asdict(one) for one in counted]}
    return Report("reliability", "Does it hold?", tables, numbers, caption="All failures should be zero")
