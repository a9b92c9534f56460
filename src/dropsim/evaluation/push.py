"""The push protocol: people who walk, run and stand are pushed with many forces from many sides, and what becomes of them is counted."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim import metrics
from dropsim.data.contacts import sphere_heights
from dropsim.motion import Motion
from dropsim.scene import Person, Push, Scene, World, run
from dropsim.simulator import DivergedError, Simulator
from dropsim.wrench import GRAVITY

AFTER = 3.0
"""Time after a push's end at which people have recovered or not [s] (after PDP)."""
YIELD_FRAMES = 2
"""Frames within which a pushed body gives way."""


@dataclass(frozen=True)
class PushProtocol:
    """Who is pushed, how, and how often."""

    newtons: tuple[float, ...] = (100.0, 200.0, 300.0, 450.0, 700.0)
    directions: tuple[str, ...] = ("front", "left", "back", "right")
    part: str = "torso"
    starts: tuple[str, ...] = ("walk", "run", "stand")
    seeds: int = 8
    """People of each start, force and direction."""
    push_at: float = 1.0
    """[s]"""
    duration: float = 0.5
    """[s]"""
    get_up_seconds: float = 8.0
    """Time after the push's end within which the fallen may get up [s]."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not (self.newtons and self.directions and self.starts and self.seeds >= 1):
            raise ValueError("a push protocol needs at least one force, direction, start and seed")

    @property
    def seconds(self) -> float:
        """Length of a run [s]."""
        return self.push_at + self.duration + max(AFTER, self.get_up_seconds)


@dataclass(frozen=True)
class PushCell:
    """What became of the people whom one force drove in one direction."""

    newtons: float
    direction: str
    people: int
    diverged: int
    """People whose simulation could not go on; they count in nothing else."""
    recovered: float
    """Share that is upright three seconds after the push's end."""
    fell: float
    """Share that lay at any time after the push."""
    got_up: float
    """Share of the fallen that were upright again within the time given; not a number where nobody fell."""
    seconds_to_recover: float
    """Median time from the push's end until those who recover stay upright [s]; not a number where nobody does."""
    gave_way: float
    """Share whose centre of mass had moved in the force's direction within two frames, against the same people unpushed."""
    travel_m: float
    """Median way of the centre of mass along the force by the push's end, against the same people unpushed [m]."""
    spin: float
    """95th percentile of the pelvis' angular speed while lying [rad/s]; not a number where nobody lay."""
    deepest_mm: float
    bone_error_percent: float

    @property
    def body_weights(self) -> float:
        """Force as a share of an adult's weight."""
        return self.newtons / (70.0 * GRAVITY)


def evaluate_push(simulator: Simulator, protocol: PushProtocol, watch: Callable[[int, int], None] | None = None) -> tuple[PushCell, ...]:
    """Run the protocol, all people of a force and direction side by side."""
    total = 1 + len(protocol.newtons) * len(protocol.directions)
    calm = _pushed(simulator, protocol, None)
    if watch:
        watch(1, total)
    cells = []
    for newtons in protocol.newtons:
        for direction in protocol.directions:
            push = Push.toward(direction, newtons, part=protocol.part, start=protocol.push_at, duration=protocol.duration)
            cells.append(_cell(protocol, newtons, direction, push, _pushed(simulator, protocol, push), calm))
            if watch:
                watch(1 + len(cells), total)
    return tuple(cells)


def _pushed(simulator: Simulator, protocol: PushProtocol, push: Push | None) -> list[Motion | None]:
    """Return the motions of the people of every start, or nothing for a start whose run could not go on."""
    # Counted from what can be counted of an unpushed run: nobody has to get up there.
    seconds = protocol.seconds if push else protocol.push_at + protocol.duration + 0.1
    motions = list[Motion | None]()
    for start in protocol.starts:
        world = World(Scene((Person(start),), () if push is None else (push,)), simulator)
        seeds = [protocol.seed + i for i in range(protocol.seeds)]
        try:
            motions.append(run(world, round(seconds * simulator.prior.fps), seeds).motions[0])
        except DivergedError:
            motions.append(None)
    return motions


def _cell(
    protocol: PushProtocol, newtons: float, direction: str, push: Push, pushed: Sequence[Motion | None], calm: Sequence[Motion | None]
) -> PushCell:
    pairs = [(m, c) for m, c in zip(pushed, calm, strict=True) if m is not None and c is not None]
    diverged = protocol.seeds * (len(pushed) - len(pairs))
    if not pairs:
        nan = math.nan
        return PushCell(newtons, direction, 0, diverged, nan, nan, nan, nan, nan, nan, nan, nan, nan)
    fps = pairs[0][0].fps
    first, end = round(protocol.push_at * fps), round((protocol.push_at + protocol.duration) * fps)
    upright = torch.cat([metrics.upright(m) for m, _ in pairs])
    lying = torch.cat([metrics.fallen(m) for m, _ in pairs])
    way = torch.cat([_way(m, c, push) for m, c in pairs])
    fell = lying[:, first:].any(-1)
    recovered = upright[:, min(end + round(AFTER * fps), upright.shape[1] - 1)]
    got_up = _got_up(upright[:, end:], lying[:, end:])
    return PushCell(
        newtons,
        direction,
        people=len(upright),
        diverged=diverged,
        recovered=_mean(recovered),
        fell=_mean(fell),
        got_up=_mean(got_up[fell]),
        seconds_to_recover=_median(_settled(upright[:, end:])[recovered] / fps),
        gave_way=_mean(way[:, first + YIELD_FRAMES] > 0),
        travel_m=_median(way[:, end]),
        spin=_spin([m for m, _ in pairs], first),
        deepest_mm=-1000 * min(float(sphere_heights(m)[..., 1:, :].min()) for m, _ in pairs),
        bone_error_percent=max(float(metrics.bone_error_percent(m).max()) for m, _ in pairs),
    )


def _way(pushed: Motion, calm: Motion, push: Push) -> Float[Tensor, "b t"]:
    """Return how far the centre of mass is along the force from where it would be unpushed [m]."""
    toward = torch.tensor(push.force, dtype=torch.float64)
    centre = pushed.skeleton.centre_of_mass
    frames = min(len(pushed), len(calm))
    moved = centre(pushed.joints[:, :frames]) - centre(calm.joints[:, :frames])
    return (moved * toward / toward.norm().clamp(min=1e-9)).sum(-1)


def _got_up(upright: Bool[Tensor, "b t"], lying: Bool[Tensor, "b t"]) -> Bool[Tensor, "b"]:
    """Whether somebody was upright at some time after it first lay."""
    return (upright & (lying.cumsum(-1) > 0)).any(-1)


def _settled(upright: Bool[Tensor, "b t"]) -> Float[Tensor, "b"]:
    """Return the frame from which on somebody stays upright for the time in which recovery is judged."""
    frames = min(upright.shape[1], round(AFTER * 30))
    down = ~upright[:, :frames]
    return (down * torch.arange(1, frames + 1)).amax(-1).double()


def _spin(motions: Sequence[Motion], first: int) -> float:
    speeds = [metrics.pelvis_spin(m)[..., first:][metrics.fallen(m)[..., first + 1 :]] for m in motions]
    speed = torch.cat(speeds)
    return float(speed.quantile(0.95)) if len(speed) else math.nan


def _mean(flags: Bool[Tensor, "n"]) -> float:
    return float(flags.double().mean()) if len(flags) else math.nan


def _median(values: Float[Tensor, "n"]) -> float:
    return float(values.median()) if len(values) else math.nan


def table(cells: Sequence[PushCell]) -> str:
    """Lay the cells out in Markdown."""
    names = ("force [N]", "[body weights]", "toward", "people", "gave way", "way [m]", "recovered", "fell", "got up", "seconds",
             "spin [rad/s]", "deepest [mm]", "bones [%]")  # fmt: skip
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for c in cells:
        values = (
            f"{c.newtons:g}", f"{c.body_weights:.2f}", c.direction, str(c.people), _percent(c.gave_way), f"{c.travel_m:.2f}",
            _percent(c.recovered), _percent(c.fell), _percent(c.got_up), _number(c.seconds_to_recover), _number(c.spin),
            f"{c.deepest_mm:.1f}", f"{c.bone_error_percent:.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(values)} |")
    if lost := sum(c.diverged for c in cells):
        lines += ["", f"{lost} people are not counted because their simulation could not go on."]
    return "\n".join(lines) + "\n"


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}"
