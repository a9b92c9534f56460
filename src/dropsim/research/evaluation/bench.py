"""How fast the simulator is, beside the floor: the prior's matrix multiplications at the peak that this machine reaches."""

import importlib.resources
import importlib.util
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from dropsim.compute.threads import single_threaded
from dropsim.physics.energies.kinematic import nearest_candidate
from dropsim.physics.energies.physical import RangeOfMotion
from dropsim.physics.energy import Energy, Frame
from dropsim.physics.solver import inertial_target, settle
from dropsim.physics.step import CONTACT_MOBILITY, NUM_SETTLE, External, Simulator
from dropsim.physics.wrench import root_wrench, soft_correction, wrench_problem
from dropsim.priors.cvae import MLP, CVAEPrior
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Candidates, State, Streams

PEOPLE = (1, 16, 64, 256, 1024)
SAMPLES = (16, 64, 256)
MOST_CANDIDATES = 65536
"""Candidates of one step beyond which a size is left out: their frames alone take two hundred megabytes."""
GEMM_SIZE = 1024
"""Of the square matrices whose product gives the peak."""
MOST_RUNS = 2000
MUJOCO_STEP = 0.002
"""[s]"""


@dataclass(frozen=True)
class Timing:
    """How long something takes."""

    median: float
    """By the clock [s]."""
    spread: float
    """Between the quartiles, by the clock [s]."""
    processor: float
    """Median of the processor's time [s]: the same on a quiet machine, and what it would be on one where others wait for the cores too."""


@dataclass(frozen=True)
class Row:
    """One size of the problem."""

    people: int
    samples: int
    step: Timing
    stages: Mapping[str, Timing]
    """Parts of the step by name, each measured for itself: all its calls within one step together."""
    floor: float
    """The prior's multiplications at the measured peak [s]."""
    memory: float
    """What a step gives back and holds, for each person [bytes]."""

    @property
    def ratio(self) -> float:
        """Of the step over the floor, both in processor time."""
        return self.step.processor / self.floor

    @property
    def fps(self) -> float:
        """Frames a second, of all the people together."""
        return self.people / self.step.median


@dataclass(frozen=True)
class Bench:
    """A whole run."""

    rows: Sequence[Row]
    sgemm: float
    """Peak of single-precision matrix multiplication in this run, on one core [GFLOP/s]."""
    peak_memory: float
    """Most that the process ever held [bytes]."""
    mujoco: float | None
    """Simulated seconds per second of MuJoCo's humanoid, physics alone; None where it is not installed."""

    def row(self, people: int, samples: int) -> Row | None:
        """Return the row of one size, if it was measured."""
        return next((r for r in self.rows if (r.people, r.samples) == (people, samples)), None)

    def to_json(self) -> dict[str, object]:
        """Lay the run out for a file; times in seconds, memory in bytes."""
        one, many = self.row(1, 64), self.row(256, 64)
        return {
            "fps_one": one and one.fps,
            "fps_one_processor": one and 1 / one.step.processor,
            "ratio_one": one and one.ratio,
            "ratio_256": many and many.ratio,
            "sgemm_gflops": self.sgemm,
            "mujoco_seconds_per_second": self.mujoco,
            "peak_memory": self.peak_memory,
            "rows": [
                {
                    "people": r.people, "samples": r.samples, "step": vars(r.step), "floor": r.floor, "ratio": r.ratio, "fps": r.fps,
                    "memory_per_person": r.memory, "stages": {name: vars(timing) for name, timing in r.stages.items()},
                }
                for r in self.rows
            ],
        }  # fmt: skip

    def table(self) -> str:
        """Write the rows as a table, times in milliseconds, those of the stages of the processor."""
        names = list(self.rows[0].stages)
        head = ["people", "K", "step", "spread", "processor", "floor", "ratio", "frames/s", *names, "kB a person"]
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for r in self.rows:
            times = [f"{1000 * t:.2f}" for t in (r.step.median, r.step.spread, r.step.processor, r.floor)]
            stages = [f"{1000 * r.stages[name].processor:.2f}" for name in names]
            cells = [str(r.people), str(r.samples), *times, f"{r.ratio:.2f}", f"{r.fps:.0f}", *stages, f"{r.memory / 1000:.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)


@single_threaded
def bench(
    *,
    people: Sequence[int] = PEOPLE,
    samples: Sequence[int] = SAMPLES,
    seconds: float = 2.0,
    watch: Callable[[int, int], None] | None = None,
) -> Bench:
    """Measure every size for some seconds on a step's threads, with the shipped prior and range of motion, people walking on a floor."""
    sizes = [(p, k) for p in people for k in samples if p * k <= MOST_CANDIDATES]
    prior, found = CVAEPrior.shipped(), list[_Measured]()
    range_of_motion = RangeOfMotion(PosePrior.shipped())
    # Before and after: where others share the machine, what it can do comes and goes.
    peak = sgemm_peak(seconds)
    for i, (p, k) in enumerate(sizes):
        found.append(_measured(Simulator(prior, range_of_motion=range_of_motion, num_samples=k), prior, p, seconds))
        if watch:
            watch(i + 1, len(sizes))
    peak = max(peak, sgemm_peak(seconds))
    rows = [Row(m.people, m.samples, m.step, m.stages, prior_flops(prior, m.people, m.samples) / peak, m.memory) for m in found]
    return Bench(rows, peak / 1e9, 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, mujoco_rate(seconds))


def sgemm_peak(seconds: float) -> float:
    """Return the best rate at which this machine multiplies matrices of single precision on the threads that torch has [FLOP/s]."""
    a, b = torch.randn(2, GEMM_SIZE, GEMM_SIZE)
    out = torch.empty_like(a)
    return 2 * GEMM_SIZE**3 / min(processor for _, processor in _times(lambda: torch.mm(a, b, out=out), seconds))


def prior_flops(prior: CVAEPrior, people: int, samples: int) -> float:
    """Return what the prior's matrix multiplications take for one step, the first layer's view of the state shared by the samples."""
    network = prior.network
    first = 2 * network.shape.state_size * network.shape.decoder[0]
    return float(people) * (_flops(network.prior) + samples * (_flops(network.decoder) - first) + first)


def mujoco_rate(seconds: float) -> float | None:
    """Return the simulated seconds per second of MuJoCo's humanoid at 2 ms; None where it or Gymnasium, which has the model, is missing."""
    if importlib.util.find_spec("mujoco") is None or importlib.util.find_spec("gymnasium") is None:
        return None
    import mujoco  # pyright: ignore[reportMissingImports]

    model_file = importlib.resources.files("gymnasium") / "envs" / "mujoco" / "assets" / "humanoid.xml"
    if not model_file.is_file():
        return None
    model = mujoco.MjModel.from_xml_string(model_file.read_text())
    model.opt.timestep = MUJOCO_STEP
    data = mujoco.MjData(model)
    return MUJOCO_STEP / _timing(lambda: mujoco.mj_step(model, data), seconds).median


def _flops(mlp: MLP) -> int:
    return sum(2 * linear.weight.numel() for linear in mlp.linears if isinstance(linear, nn.Linear))


def _times(work: Callable[[], object], seconds: float) -> list[tuple[float, float]]:
    """Run something warm for some seconds, at least five times; return the time of each run by the clock and of the processor."""
    work()
    work()
    times, until = list[tuple[float, float]](), time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < until and len(times) < MOST_RUNS):
        began, processor = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began, time.process_time() - processor))
    return times


def _timing(work: Callable[[], object], seconds: float) -> Timing:
    times = _times(work, seconds)
    low, middle, high = statistics.quantiles((t for t, _ in times), n=4)
    return Timing(middle, high - low, statistics.median(t for _, t in times))


@dataclass(frozen=True)
class _Measured:
    """A row before the peak is known; its fields are those of Row."""

    people: int
    samples: int
    step: Timing
    stages: Mapping[str, Timing]
    memory: float


def _measured(simulator: Simulator, prior: CVAEPrior, people: int, seconds: float) -> _Measured:
    state, rng, world = prior.start("walk", seed=list(range(people))), Streams(list(range(people))), External()
    if people == 1:
        state, rng = state[0], Streams(0)
    for _ in range(2):
        state, _ = simulator.step(state, world, rng)
    state, report = simulator.step(state, world, rng)
    candidates = prior.sample(state, simulator.num_samples, rng)
    held = [*_tensors(state), *_tensors(candidates), *_tensors(report)]
    stages = {name: _timing(work, seconds / 8) for name, work in _stages(simulator, prior, state, candidates, rng, world)}
    step = _timing(lambda: simulator.step(state, world, rng), seconds)
    return _Measured(people, simulator.num_samples, step, stages, sum(t.nbytes for t in held) / people)


def _stages(
    simulator: Simulator, prior: CVAEPrior, state: State, candidates: Candidates, rng: Streams, world: External
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give the parts of a step with as many calls of each as a step has."""
    skeleton, h = prior.skeleton, 1 / prior.fps
    wished, source = candidates.x[..., -1, :, :], candidates.q[..., -1, :, :, :]
    forces = torch.zeros_like(state.x)
    y = inertial_target(state.x, state.v, forces, skeleton.masses, h)
    frame = Frame(skeleton, h, state.x, y, source, candidates.x, world.colliders)
    system, rom = simulator._system, simulator.range_of_motion
    others = [energy for energy in system.energies if energy is not rom]
    arrays, work, targets = frame.arrays, system.work(wished.clone()), [energy.project(wished, frame) for energy in system.energies]
    contacts = simulator._touching(state.x, world)
    options = {"friction": simulator.friction, "h": h, "contact_mobility": CONTACT_MOBILITY, "rounds": NUM_SETTLE}

    def wrench() -> None:
        problem = wrench_problem(state.x, state.v, contacts, masses=skeleton.masses, h=h, options=simulator.wrench)
        planned, before = root_wrench(problem, wished), root_wrench(problem, wished, forces=forces)
        x = soft_correction(problem, wished, before, wished=planned, forces=forces)
        root_wrench(problem, x, forces=forces)

    def local(energies: Sequence[Energy]) -> None:
        for energy in (simulator.num_iterations + 1) * [*energies]:
            if arrays is None:
                energy.project(wished, frame)
            else:
                energy.write(work, frame, arrays, 0)

    def project() -> None:
        local(others)
        nearest_candidate(candidates.x, wished)
        settle(wished, state.x, skeleton, world.colliders, **options)

    yield "prior", lambda: prior.sample(state, simulator.num_samples, rng)
    yield "projection", project
    yield "inverse kinematics", lambda: skeleton.inverse(wished, source)
    if rom is not None:
        yield "range of motion", lambda: local([rom])
    # Its own rows, because the ones above write over each other's.
    rows = system.work(wished.clone())
    always = () if arrays is None else system.write(rows, frame, arrays)
    yield (
        "solve",
        lambda: [
            system.solve(targets, y) if arrays is None else system.solve_rows(rows, arrays, always) for _ in range(simulator.num_iterations)
        ],
    )
    yield "wrench", wrench


def _tensors(holder: object) -> Iterator[Tensor]:
    """Find the tensors of a dataclass."""
    for field in fields(holder):  # pyright: ignore[reportArgumentType]
        value = getattr(holder, field.name)
        for tensor in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(tensor, Tensor) and math.prod(tensor.shape) > 0:
                yield tensor
