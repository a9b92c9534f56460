"""How fast the simulator is: the bare step, a world around it, and the floor, the prior's matrix products at the machine's peak."""

import importlib.resources
import importlib.util
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.compute.jit import VARIABLE as CACHE_VARIABLE
from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path
from dropsim.files.tables import markdown, shown
from dropsim.physics.contact import Plane
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.solver import system_of
from dropsim.physics.step import Simulator, StepInputs
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.motion_field import MotionField
from dropsim.priors.named import open_prior
from dropsim.priors.prior import Prior
from dropsim.scene import Box, Person, Scene, World, run

PEOPLE = (1, 16, 64, 256, 1024)
SAMPLES = (16, 64, 256)
MOST_CANDIDATES = 65536
"""Candidates of one step beyond which a size is left out: their frames alone take two hundred megabytes."""
GEMM_SIZE = 1024
"""Of the square matrices whose product gives the peak."""
MOST_RUNS = 2000
MUJOCO_STEP = 0.002
"""[s]"""
COPIED = 1 << 27
"""Bytes of an array that is copied: more than caches hold."""
STAGES = {
    "prior": "_propose",
    "aim": "_aim",
    "balance": "_balance",
    "settle": "_settle",
    "pose": "_pose",
    "report": "_report",
}
"""Parts of a step and the simulator's methods; "iterate" is the solver's."""
FIRST_RUN = """
import time
began = time.perf_counter()
from dropsim import Person, Scene, Simulator, World, run
imported = time.perf_counter()
world = World(Scene((Person("walk"),)), Simulator.shipped())
loaded, processor = time.perf_counter(), time.process_time()
run(world, 2, 0)
print(imported - began, time.perf_counter() - loaded, time.process_time() - processor)
"""


@dataclass(frozen=True)
class Timing:
    """How long something takes."""

    median: float
    """By the clock [s]."""
    spread: float
    """Between the quartiles, by the clock [s]."""
    processor: float
    """Median of the processor's time [s]; it leaves out the time in which other processes have the core."""

    @classmethod
    def of(cls, times: Sequence[tuple[float, float]]) -> "Timing":
        """Sum up runs, each timed by the clock and by the processor."""
        low, middle, high = statistics.quantiles((clock for clock, _ in times), n=4)
        return cls(middle, high - low, statistics.median(processor for _, processor in times))


@dataclass(frozen=True)
class Row:
    """One size of the problem."""

    people: int
    samples: int
    step: Timing
    """The simulator's step alone."""
    world: Timing
    """The same people in a world, each alone in a scene: what a user runs."""
    stages: Mapping[str, Timing]
    """Parts of the step by name."""
    memory: float
    """What a step holds and gives back, per person [bytes]."""
    floor: float | None = None
    """The prior's matrix products at the measured peak [s]; None for a prior without."""

    @property
    def ratio(self) -> float | None:
        """The step over the floor, both in processor time."""
        return None if self.floor is None else self.step.processor / self.floor

    @property
    def fps(self) -> float:
        """Frames a second of all people together, of the bare step."""
        return self.people / self.step.median

    @property
    def world_fps(self) -> float:
        """Frames a second of all people together, in a world."""
        return self.people / self.world.median


@dataclass(frozen=True)
class Bench:
    """A whole run."""

    prior: str
    rows: Sequence[Row]
    sgemm: float
    """Peak of single-precision matrix products in this run, on one core [GFLOP/s]."""
    peak_memory: float
    """Most that the process ever held [bytes]."""
    bandwidth: float | None = None
    """Bytes that one core copies, read and written, in this run [GB/s]; None if not measured."""
    mujoco: Mapping[str, float] | None = None
    """Simulated seconds per processor second of MuJoCo's humanoid by integrator, physics alone; None if it is not
    installed."""
    import_seconds: float | None = None
    """Imports of a new process [s]; None if not measured."""
    compile_seconds: float | None = None
    """First step of a new process with an empty kernel cache [s]; None if not measured."""
    compile_processor_seconds: float | None = None
    """The same in processor time [s]."""

    def row(self, people: int, samples: int) -> Row | None:
        """Return the row of one size, if it was measured."""
        return next((r for r in self.rows if (r.people, r.samples) == (people, samples)), None)

    def to_json(self) -> dict[str, object]:
        """Return the run as plain values; times in seconds, memory in bytes, rates in frames of people a second."""
        one, many = self.row(1, 64), self.row(256, 64)
        return {
            "prior": self.prior,
            "fps_one": one and one.fps,
            "fps_one_processor": one and 1 / one.step.processor,
            "world_fps_one": one and one.world_fps,
            "world_fps_256": many and many.world_fps,
            "ratio_one": one and one.ratio,
            "ratio_256": many and many.ratio,
            "import_seconds": self.import_seconds,
            "compile_seconds": self.compile_seconds,
            "compile_processor_seconds": self.compile_processor_seconds,
            "sgemm_gflops": self.sgemm,
            "copy_gigabytes": self.bandwidth,
            "mujoco_seconds_per_second": self.mujoco,
            "peak_memory": self.peak_memory,
            "rows": [
                {
                    "people": r.people, "samples": r.samples, "step": asdict(r.step), "world": asdict(r.world), "floor": r.floor,
                    "ratio": r.ratio, "fps": r.fps, "world_fps": r.world_fps, "memory_per_person": r.memory,
                    "stages": {name: asdict(timing) for name, timing in r.stages.items()},
                }
                for r in self.rows
            ],
        }  # fmt: skip

    def table(self) -> str:
        """Return the rows as a table, times in milliseconds; those of the stages are the processor's."""
        names = list(self.rows[0].stages)
        rows = [
            [
                "people",
                "K",
                "step",
                "spread",
                "processor",
                "floor",
                "ratio",
                "frames/s",
                "World frames/s",
                *names,
                "kB a person",
            ]
        ]
        for r in self.rows:
            times = [
                r.step.median,
                r.step.spread,
                r.step.processor,
                r.floor,
                *(r.stages[name].processor for name in names),
            ]
            ms = [shown(None if t is None else 1000 * t, ".2f") for t in times]
            rates = [shown(r.ratio, ".2f"), f"{r.fps:.0f}", f"{r.world_fps:.0f}"]
            rows.append([str(r.people), str(r.samples), *ms[:4], *rates, *ms[4:], f"{r.memory / 1000:.0f}"])
        return markdown(rows)


@single_threaded
def bench(
    prior: str = "field", *, people: Sequence[int] = PEOPLE, samples: Sequence[int] = SAMPLES, seconds: float = 2.0,
    first_run: bool = True, watch: Callable[[int, int], None] | None = None,
) -> Bench:  # fmt: skip
    """Measure every size for some seconds, with people who walk on a floor by a prior as `open_prior` takes it."""
    sizes = [(p, k) for p in people for k in samples if p * k <= MOST_CANDIDATES]
    model = open_prior(prior)
    # The peak before and after: on a shared machine it comes and goes.
    peak, rows = sgemm_peak(seconds), list[Row]()
    for i, (p, k) in enumerate(sizes):
        rows.append(_measured(Simulator(model, options=SimulatorOptions(num_samples=k)), p, seconds))
        if watch:
            watch(i + 1, len(sizes))
    peak = max(peak, sgemm_peak(seconds))
    if isinstance(model, CVAEPrior):
        rows = [replace(row, floor=prior_flops(model, row.people, row.samples) / peak) for row in rows]
    memory = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    copied = copy_rate(seconds) / 1e9
    return Bench(
        prior, rows, peak / 1e9, memory, copied, mujoco_rates(seconds), *(first_run_seconds() if first_run else ())
    )


@single_threaded
def sgemm_peak(seconds: float) -> float:
    """Return the best rate at which this machine multiplies matrices of single precision on one core [FLOP/s]."""
    a, b = np.random.default_rng(0).standard_normal((2, GEMM_SIZE, GEMM_SIZE), dtype=np.float32)
    out = np.empty_like(a)
    (times,) = _times([lambda: np.matmul(a, b, out=out)], seconds)
    return 2 * GEMM_SIZE**3 / min(processor for _, processor in times)


def prior_flops(prior: CVAEPrior, people: int, samples: int) -> float:
    """Return the operations of the prior's matrix products in one step; the samples share the first layer's view of the state."""
    shape = prior.network.shape
    weights = {
        name: math.prod(size)
        for name, size in shape.tensor_shapes().items()
        if len(size) == 2 and name.endswith("weight")
    }
    encoding, decoding = (
        sum(2 * size for name, size in weights.items() if name.startswith(part)) for part in ("prior", "decoder")
    )
    first = 2 * shape.state_size * shape.decoder[0]
    return float(people) * (encoding + samples * (decoding - first) + first)


def first_run_seconds() -> tuple[float, float, float]:
    """Return how long the imports and, with an empty kernel cache, the first step of a new process take, also in processor time [s]."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", FIRST_RUN]
        done = subprocess.run(
            command, env={**os.environ, CACHE_VARIABLE: cache}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ValueError(f"the first run of a new process failed: {done.stderr.strip().splitlines()[-1]}")
    imports, compilation, processor = map(float, done.stdout.split())
    return imports, compilation, processor


@single_threaded
def copy_rate(seconds: float) -> float:
    """Return the best rate at which one core copies an array that no cache holds, bytes read and written [bytes/s]."""
    source = np.ones(COPIED // 8)
    out = np.empty_like(source)
    (times,) = _times([lambda: np.copyto(out, source)], seconds / 2)
    return 2 * source.nbytes / min(processor for _, processor in times)


def mujoco_rates(seconds: float) -> dict[str, float] | None:
    """Return the simulated seconds per processor second of MuJoCo's humanoid at 2 ms, by integrator; it lies and flails at random.

    None without MuJoCo or Gymnasium, which has the model.
    """
    if importlib.util.find_spec("mujoco") is None or importlib.util.find_spec("gymnasium") is None:
        return None
    import mujoco  # pyright: ignore[reportMissingImports]

    model_file = importlib.resources.files("gymnasium") / "envs" / "mujoco" / "assets" / "humanoid.xml"
    if not model_file.is_file():
        return None
    rates, rng = dict[str, float](), np.random.default_rng(0)
    for name in ("RK4", "implicitfast"):
        model = mujoco.MjModel.from_xml_string(model_file.read_text())
        model.opt.timestep = MUJOCO_STEP
        model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{name.upper()}")
        data = mujoco.MjData(model)

        def second(model: Any = model, data: Any = data) -> None:  # noqa: ANN401
            for i in range(round(1 / MUJOCO_STEP)):
                if i % 10 == 0:
                    data.ctrl[:] = rng.uniform(-0.4, 0.4, model.nu)
                mujoco.mj_step(model, data)

        rates[name] = 1.0 / Timing.of(_times([second], seconds)[0]).processor
    return rates


def _times(works: Sequence[Callable[[], object]], seconds: float) -> list[list[tuple[float, float]]]:
    """Run each work warm for some seconds, at least five times, in turns; return the times of every run by clock and processor."""
    for work in (*works, *works):
        work()
    times, until = [list[tuple[float, float]]() for _ in works], time.perf_counter() + seconds * len(works)
    for count in itertools.count():
        if count >= 5 and (time.perf_counter() > until or count >= MOST_RUNS):
            return times
        for work, found in zip(works, times, strict=True):
            _clocked(work, found)()
    raise AssertionError


def _clocked(work: Callable[..., object], times: list[tuple[float, float]]) -> Callable[..., object]:
    """Return a function that notes how long each of its runs takes."""

    def timed(*args: object) -> object:
        began, processor = time.perf_counter(), time.process_time()
        result = work(*args)
        times.append((time.perf_counter() - began, time.process_time() - processor))
        return result

    return timed


def _measured(simulator: Simulator, people: int, seconds: float) -> Row:
    """Time the step and the world from the same state, a few frames after the start, in turns."""
    world = World(Scene((Person("walk"),)), simulator)
    seeds = 0 if people == 1 else list(range(people))
    now, rng, inputs = world.start(seeds), world.streams(seeds), StepInputs(colliders=(Plane.ground(),))
    for _ in range(2):
        now, _ = world.step(now, rng)
    now, report = world.step(now, rng)
    state = now.people
    candidates = simulator.prior.propose(state, simulator.num_samples, rng)
    held = sum(array.nbytes for part in (state, candidates, report) for array in _arrays(part))
    step, whole = _times([lambda: simulator.step(state, inputs, rng), lambda: world.step(now, rng)], seconds)
    stages = _stages(simulator, lambda: simulator.step(state, inputs, rng), seconds / 2)
    return Row(people, simulator.num_samples, Timing.of(step), Timing.of(whole), stages, held / people)


def _stages(simulator: Simulator, step: Callable[[], object], seconds: float) -> dict[str, Timing]:
    """Time the parts of a step while it runs."""
    parts: dict[str, tuple[object, str]] = {name: (simulator, method) for name, method in STAGES.items()}
    parts["iterate"] = (system_of(simulator._energies, simulator.skeleton), "iterate")
    times = {
        name: list[tuple[float, float]]() for name in ("prior", "aim", "iterate", "balance", "settle", "pose", "report")
    }
    for name, (owner, method) in parts.items():
        # A method of the instance hides that of its class.
        vars(owner)[method] = _clocked(getattr(owner, method), times[name])
    try:
        _times([step], seconds)
    finally:
        for owner, method in parts.values():
            del vars(owner)[method]
    return {name: Timing.of(found[2:]) for name, found in times.items()}


def _arrays(holder: object) -> Iterator[np.ndarray]:
    """Find the arrays that an object holds."""
    for value in vars(holder).values():
        yield from (
            v for v in (value.values() if isinstance(value, Mapping) else (value,)) if isinstance(v, np.ndarray)
        )


def bank_sizes(
    seconds: float, *, shares: Sequence[float] = (0.125, 0.25, 0.5, 1.0), people: int = 64
) -> list[list[str]]:
    """Return what a frame of a person costs with parts of the shipped bank, as rows under a header."""
    rows, bank = [["frames in the bank", "ms a person"]], MotionField.shipped().bank
    for share in shares:
        some = bank if share == 1 else bank.picked(range(0, len(bank.clips), round(1 / share)))
        rows.append(
            [
                str(len(some)),
                f"{1000 * _world_seconds(Scene((Person('walk'),)), MotionField(some, some.skeleton), people, seconds):.3f}",
            ]
        )
    return rows


def object_counts(seconds: float, *, counts: Sequence[int] = (0, 1, 4, 16, 64), people: int = 16) -> list[list[str]]:
    """Return what a frame of a person costs with boxes around, fixed or loose, as rows under a header."""
    rows, prior = [["boxes", "fixed [ms a person]", "loose [ms a person]"]], MotionField.shipped()
    for count in counts:
        places = [(1.5 * (i % 8) - 5.25, 6.0 + 1.5 * (i // 8), 0.0) for i in range(count)]
        cells = []
        for mass in (None, 5.0):
            boxes = tuple(Box(place, (0.4, 0.4, 0.4), mass=mass) for place in places)
            cells.append(
                f"{1000 * _world_seconds(Scene((Person('walk', speed=0.0),), boxes), prior, people, seconds):.3f}"
            )
        rows.append([str(count), *cells])
    return rows


def _world_seconds(scene: Scene, prior: Prior, people: int, seconds: float) -> float:
    """Return the processor time of a frame of one person among many worlds [s]."""
    world, seeds = World(scene, Simulator(prior)), list(range(people))
    now, rng = world.start(seeds), world.streams(seeds)
    for _ in range(3):
        now, _ = world.step(now, rng)
    return Timing.of(_times([lambda: world.step(now, rng)], seconds)[0]).processor / people


@dataclass(frozen=True)
class Entry:
    """A line of the history: costs in units of the machine, so that other machines and other load compare."""

    date: str
    version: str
    machine: str
    prior: str
    megaflops: Mapping[str, float]
    """What sgemm does in the processor time of a frame of a person, by size [MFLOP]."""
    megabytes: Mapping[str, float]
    """What is copied in that time [MB]."""

    @classmethod
    def of(cls, found: Bench) -> "Entry":
        """Sum up a run."""
        import platform
        from datetime import UTC, datetime
        from importlib.metadata import version

        cost = {f"{r.people} x {r.samples}": r.world.processor / r.people for r in found.rows}
        return cls(
            datetime.now(UTC).isoformat(timespec="seconds"), version("dropsim"), platform.machine(), found.prior,
            {size: round(1e3 * found.sgemm * seconds, 3) for size, seconds in cost.items()},
            {size: round(1e3 * (found.bandwidth or 0.0) * seconds, 3) for size, seconds in cost.items()},
        )  # fmt: skip


def keep_history(path: Path, entry: Entry) -> list[str]:
    """Append a line to a history, and return how each size compares with the median of the last five lines of the same prior."""
    lines = path.read_text().splitlines() if path.is_file() else []
    try:
        before = [old for line in lines if (old := json.loads(line))["prior"] == entry.prior][-5:]
        sentences = []
        for size, cost in entry.megaflops.items():
            if old := [one["megaflops"][size] for one in before if size in one["megaflops"]]:
                sentences.append(
                    f"{size}: {cost:.1f} MFLOP a person, {cost / statistics.median(old):.2f} x the last {len(old)}"
                )
            else:
                sentences.append(f"{size}: {cost:.1f} MFLOP a person, the first of its kind")
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"{path}: is not a history that `dropsim bench` wrote: give another file") from None
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join((*lines, json.dumps(asdict(entry)))) + "\n")
    return sentences


@dataclass(frozen=True)
class Speed:
    """How fast people are simulated on one thread, for the paper's claim."""

    frames_per_second: float
    """Of one person."""
    batch_frames_per_second: float
    """Frames of the people of a batch, in all."""
    batch: int
    """How many people."""
    gflops: float
    """Peak of a product of matrices in single precision."""
    frame_seconds: tuple[float, ...]
    """Time that each frame of the one person took [s]."""


@single_threaded
def measure_speed(simulator: Simulator, *, frames: int = 150, batch: int = 25) -> Speed:
    """Time people who walk."""
    world = World(Scene((Person("walk"),)), simulator)
    run(world, 5, 0)  # compiled and warm
    ticks = [time.perf_counter()]
    run(world, frames + 1, 0, watch=lambda done, total: ticks.append(time.perf_counter()))
    began, few = time.perf_counter(), max(2, frames // 10)
    run(world, few + 1, list(range(batch)))
    together = batch * few / (time.perf_counter() - began)
    spent = tuple(after - before for before, after in itertools.pairwise(ticks))
    return Speed(len(spent) / sum(spent), together, batch, sgemm_peak(0.1) / 1e9, spent)
