"""Speed of the simulator: the bare step and its parts, a world around it, and a first run."""

import importlib.resources
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dropsim.compute.jit import VARIABLE as CACHE_VARIABLE
from dropsim.compute.threads import single_threaded
from dropsim.physics import wrench
from dropsim.physics.contact import Plane
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.solver import system_of
from dropsim.physics.step import Simulator, StepInputs
from dropsim.priors.named import open_prior
from dropsim.research.evaluation.harness import Watch
from dropsim.research.evaluation.report import Report, Table
from dropsim.scene import Person, Scene, World

PEOPLE = (1, 16, 64, 256, 1024)
SAMPLES = (16, 64, 256)
MOST_CANDIDATES = 65536
"""Candidates of one step beyond which a size is left out: their frames alone take two hundred megabytes."""
MOST_RUNS = 2000
STAGES = ("prior", "aim", "iterate", "balance", "settle", "pose", "explain")
"""Parts of a step."""
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
FIRST_NUMBERS = ("import_seconds", "compile_seconds", "compile_processor_seconds")
HEADER = ["people", "K", "step", "spread", "processor", "frames/s", "World frames/s", *STAGES]
Times = list[tuple[float, float]]
"""Durations of runs by the clock and by the processor [s]."""


@dataclass(frozen=True)
class Timing:
    """Duration of something over many runs."""

    median: float
    """Median by the clock [s]."""
    spread: float
    """Distance between the quartiles, by the clock [s]."""
    processor: float
    """Median of the processor's time [s]; it leaves out the time in which other processes have the core."""

    @classmethod
    def of(cls, times: Times) -> "Timing":
        """Sum up runs."""
        (low, _), (clock, processor), (high, _) = np.quantile(times, (0.25, 0.5, 0.75), axis=0).tolist()
        return cls(clock, high - low, processor)


@dataclass(frozen=True)
class Row:
    """One size of the problem."""

    people: int
    samples: int
    step: Timing
    """Duration of the simulator's step alone."""
    world: Timing
    """Duration of a step of the same people in a world, each alone in a scene: what a user runs."""
    stages: Mapping[str, Timing]
    """Durations of the parts of the step by name."""

    @property
    def fps(self) -> float:
        """Frames a second of all people together, of the bare step."""
        return self.people / self.step.median

    @property
    def world_fps(self) -> float:
        """Frames a second of all people together, in a world."""
        return self.people / self.world.median

    def cells(self) -> list[str]:
        """Return the cells of the table's columns; times are in milliseconds, those of the stages the processor's."""
        times = (self.step.median, self.step.spread, self.step.processor)
        stages = (self.stages[name].processor for name in STAGES)
        step, parts = ([f"{1000 * seconds:.2f}" for seconds in some] for some in (times, stages))
        return [str(self.people), str(self.samples), *step, f"{self.fps:.0f}", f"{self.world_fps:.0f}", *parts]


@single_threaded
def bench(
    prior: str = "field",
    *,
    people: Sequence[int] = PEOPLE,
    samples: Sequence[int] = SAMPLES,
    seconds: float = 2.0,
    first_run: bool = True,
    watch: Watch = None,
) -> Report:
    """Measure every size for some seconds, with people who walk on a floor by a prior as `open_prior` takes it."""
    sizes = [(p, k) for p in people for k in samples if p * k <= MOST_CANDIDATES]
    model, rows = open_prior(prior), list[Row]()
    for p, k in sizes:
        rows.append(measure_size(Simulator(model, options=SimulatorOptions(num_samples=k)), p, seconds))
        if watch:
            watch(len(rows), len(sizes))
    first = first_run_seconds() if first_run else (None, None, None)
    others = {
        "prior": prior,
        **dict(zip(FIRST_NUMBERS, first, strict=True)),
        "mujoco_seconds_per_second": mujoco_rates(seconds),
        "peak_memory": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    return report_of(rows, others)


def report_of(rows: Sequence[Row], others: Mapping[str, Any]) -> Report:
    """Return the tables of a run, and its numbers by name; None if not measured."""
    by_size = {(row.people, row.samples): row for row in rows}
    one, many = by_size.get((1, 64)), by_size.get((256, 64))
    numbers = {
        "fps_one": one and one.fps,
        "fps_one_processor": one and 1 / one.step.processor,
        "world_fps_one": one and one.world_fps,
        "world_fps_256": many and many.world_fps,
        "simulated_seconds_256": many and many.people / many.world.processor / 30.0,
        **others,
        "rows": [asdict(row) | {"fps": row.fps, "world_fps": row.world_fps} for row in rows],
    }
    tables = {
        "speed": Table("Milliseconds of a step and of its stages", [HEADER, *(row.cells() for row in rows)]),
    }
    return Report("bench", "Speed", tables, numbers)


def first_run_seconds() -> tuple[float, float, float]:
    """Return the duration of the imports and of the first step of a new process, also of the processor [s]."""
    with tempfile.TemporaryDirectory() as cache:
        command, environment = [sys.executable, "-c", FIRST_RUN], {**os.environ, CACHE_VARIABLE: cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the first run of a new process failed: {done.stderr.strip().splitlines()[-1]}")
    imports, compilation, processor = map(float, done.stdout.split())
    return imports, compilation, processor


def mujoco_rates(seconds: float) -> dict[str, float] | None:
    """Return the simulated seconds per processor second of Gymnasium's humanoids in MuJoCo; they flail at random.

    Each is measured at the time step and with the integrator of its own file, and it is physics alone. None without
    MuJoCo or Gymnasium, which has the models.
    """
    try:
        import mujoco  # pyright: ignore[reportMissingImports]

        folder = importlib.resources.files("gymnasium") / "envs" / "mujoco" / "assets"
    except ImportError:
        return None
    rates, rng = dict[str, float](), np.random.default_rng(0)
    for name in ("humanoid.xml", "humanoidstandup.xml"):
        model = mujoco.MjModel.from_xml_string((folder / name).read_text())
        data, integrator = mujoco.MjData(model), mujoco.mjtIntegrator(model.opt.integrator).name.removeprefix("mjINT_")

        def second(model: Any = model, data: Any = data) -> None:  # noqa: ANN401
            for i in range(round(1 / model.opt.timestep)):
                if i % 10 == 0:
                    data.ctrl[:] = rng.uniform(-0.4, 0.4, model.nu)
                mujoco.mj_step(model, data)

        label = f"{name}, {integrator} at {1000 * model.opt.timestep:g} ms"
        rates[label] = 1.0 / Timing.of(_times([second], seconds)[0]).processor
    return rates


def _times(works: Sequence[Callable[[], object]], seconds: float) -> list[Times]:
    """Run each work warm for some seconds, at least five times, in turns; return the durations of all runs."""
    for work in (*works, *works):
        work()
    times, until = [Times() for _ in works], time.perf_counter() + seconds * len(works)
    clocked = [_clocked(work, durations) for work, durations in zip(works, times, strict=True)]
    for count in itertools.count():
        if count >= 5 and (time.perf_counter() > until or count >= MOST_RUNS):
            break
        for work in clocked:
            work()
    return times


def _clocked(work: Callable[..., object], times: Times) -> Callable[..., object]:
    """Return a function that notes the duration of each of its runs."""

    def timed(*args: object) -> object:
        began, processor = time.perf_counter(), time.process_time()
        result = work(*args)
        times.append((time.perf_counter() - began, time.process_time() - processor))
        return result

    return timed


def measure_size(simulator: Simulator, people: int, seconds: float) -> Row:
    """Time the step and the world from the same state, a few frames after the start, in turns."""
    world = World(Scene((Person("walk"),)), simulator)
    seeds = 0 if people == 1 else list(range(people))
    now, rng, inputs = world.start(seeds), world.streams(seeds), StepInputs(colliders=(Plane.ground(),))
    for _ in range(3):
        now, _ = world.step(now, rng)
    state = now.people
    step, whole = _times([lambda: simulator.step(state, inputs, rng), lambda: world.step(now, rng)], seconds)
    stages = _stages(simulator, lambda: simulator.step(state, inputs, rng), seconds / 2)
    return Row(people, simulator.num_samples, Timing.of(step), Timing.of(whole), stages)


def _stages(simulator: Simulator, step: Callable[[], object], seconds: float) -> dict[str, Timing]:
    """Time the parts of a step while it runs."""
    parts: dict[str, tuple[object, str]] = {name: (simulator, f"_{name}") for name in STAGES}
    parts |= {"prior": (simulator, "_propose"), "aim": (wrench, "aim"), "balance": (wrench, "balance")}
    parts["iterate"] = (system_of(simulator._energies, simulator.skeleton), "iterate")
    times, hidden = {name: Times() for name in STAGES}, [dict(vars(owner)) for owner, _ in parts.values()]
    for name, (owner, method) in parts.items():
        # A method of the instance hides that of its class.
        vars(owner)[method] = _clocked(getattr(owner, method), times[name])
    try:
        _times([step], seconds)
    finally:
        for (owner, method), before in zip(parts.values(), hidden, strict=True):
            del vars(owner)[method]
            vars(owner).update({method: before[method]} if method in before else {})
    return {name: Timing.of(durations[2:]) for name, durations in times.items()}
