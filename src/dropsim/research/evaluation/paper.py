"""The paper's results in one go: people are pushed and led under every form of the method, and the claims judged."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import flat
from dropsim.compute.threads import single_threaded
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Plane, solids
from dropsim.physics.energies import Contact, RangeOfMotion
from dropsim.physics.energy import Frame
from dropsim.priors.named import open_prior
from dropsim.priors.pose import PosePrior
from dropsim.research.evaluation.bench import measure_size
from dropsim.research.evaluation.claims import END, FOLLOWS, PUSHED, Claim, judge, median
from dropsim.research.evaluation.harness import (
    Arrays,
    Body,
    Chunk,
    Watch,
    check_seed,
    chunks_of,
    make_writable,
    num_diverged,
    run_chunks,
    survivors,
)
from dropsim.research.evaluation.people import Trial, simulate_trials, toward
from dropsim.research.evaluation.plots import Figure, Panel
from dropsim.research.evaluation.recordings import KINDS, Recorded, measure_recordings
from dropsim.research.evaluation.report import Report, Table
from dropsim.research.evaluation.scenarios import hand_gap
from dropsim.scene import Drag, Follow, run
from dropsim.scene.scenarios import scenario

CATEGORIES = ("walk", "run", "turn", "stand", "jump", "crouch", "dance", "sport")
"""Starts of the random motions, all that begin on their feet."""
MILD, HARD = (150.0, 350.0), (300.0, 700.0)
"""Ranges of the pushes [N]: most people bear the first on their feet, the second fells most. The paper gives no number,
so that every claim is judged over both."""
CHUNK, FOLLOWERS = 25, 4
"""Trials and followers of a batch."""
SPEED_SECONDS = 1.0
"""Time for which the speed is measured [s]."""
ENERGIES = ("kinematic", "kinematic_mode", "momentum", "contact", "range_of_motion", "rigidity")
"""Energies that are drawn."""


@dataclass(frozen=True)
class PaperOptions:
    """Numbers of people, and how they are pushed."""

    motions: int = 250
    num_samples: int = 64
    """K: candidates of the prior a frame."""
    seed: int = 0
    num_frames: int = 240
    """Length of a pushed motion [frames]."""
    longer_frames: int = 480
    """Length of motions that show whether energies come back [frames]: people who fell need some seconds to get up."""
    walks: int = 8
    """Pushed walks."""
    runs: int = 25
    """Pushed runs whose root wrench is looked at."""
    followers: int = 8
    """People of each scenario that follows a path."""
    follow_seconds: float = 16.0
    """Time for which they follow it [s]."""
    rollouts: int = 64
    """Rollouts that they look ahead over."""
    remedies: int = 50
    """Motions on which the forms of the method that might explain a failed claim are tried."""
    longer: int = 100
    """Motions of the longer length."""
    recordings: Path | None = None
    """Folder of recordings that the root wrench is compared with."""
    prior: str = "field"
    """Name of the prior, as `open_prior` takes it."""
    newtons: tuple[float, float] = HARD
    """Range of all pushes [N]; walks get the middle of it."""

    def __post_init__(self) -> None:
        low, high = self.newtons
        if not 0 < low <= high:
            raise ValueError(
                f"pushes range from a force of at least 1 N to a larger one, not from {low:g} to {high:g} N"
            )
        if min(self.motions, self.walks, self.runs, self.followers) < 1:
            raise ValueError(f"cannot judge by {self.motions} motions: give at least 1")
        if not 1 <= self.num_samples <= 4096:
            raise ValueError(f"the number of samples must be from 1 to 4096, not {self.num_samples}")
        check_seed(self.seed)
        if self.num_frames < 160 or self.follow_seconds < 4:
            raise ValueError("motions need at least 160 frames, and people who follow at least 4 s")

    @classmethod
    def quick(cls, **others: Any) -> "PaperOptions":  # noqa: ANN401
        """Return a small version that shows the direction of the claims within seconds."""
        few = {"motions": 5, "num_samples": 8, "walks": 2, "runs": 2, "followers": 1, "rollouts": 16, "remedies": 0}
        short = {"num_frames": 160, "longer_frames": 160, "follow_seconds": 4.0}
        return cls(**{**few, **short, **others})

    @property
    def name(self) -> str:
        """Name of the prior and the range of pushes."""
        return f"{Path(self.prior).stem}-{self.newtons[0]:g}-{self.newtons[1]:g}N"

    def chunks(self) -> list[Chunk]:
        """Return all work, the longest first, so that no worker is left with one at the end."""
        body = Body.of(self.num_samples, self.prior)
        trials = random_trials(self.motions, self.seed, self.newtons, startable(self.prior))
        some = trials[: self.remedies]
        bare = body.changed(contact=False, range_of_motion=False)
        literal = body.changed(react=False)
        force, (first, end) = toward(90.0, sum(self.newtons) / 2), PUSHED
        walks = [Trial("walk", self.seed + i, force, "pelvis", first, end - first) for i in range(self.walks)]
        runs = [replace(trial, start="run") for trial in random_trials(self.runs, self.seed + 1, self.newtons)]
        forms: Mapping[str, tuple[Body, Sequence[Trial], int]] = {
            "full": (body, trials, self.num_frames),
            "calm": (body, [replace(trial, force=(0.0, 0.0, 0.0)) for trial in trials], self.num_frames),
            "ablated": (bare, trials, self.num_frames),
            "mean": (body.changed(num_samples=1, start_at_mode=True), trials, self.num_frames),
            "literal": (literal, some, self.num_frames),
            "literal-ablated": (literal.changed(contact=False, range_of_motion=False), some, self.num_frames),
            "uncorrected": (body.changed(correct=False), some, self.num_frames),
            "uncorrected-ablated": (bare.changed(correct=False), some, self.num_frames),
            "mode": (body.changed(start_at_mode=True), some, self.num_frames),
            "longer": (body, trials[: self.longer], self.longer_frames),
            "walk": (body, walks, self.num_frames),
            "run": (body, runs, self.num_frames),
        }
        chunks, seeds = list[Chunk](), range(self.seed, self.seed + self.followers)
        how = {"seconds": self.follow_seconds, "rollouts": self.rollouts}
        for name in FOLLOWS:
            chunks += chunks_of(name, measure_path, body, seeds, FOLLOWERS, scene=name, **how)
        for name, (form, people, frames) in forms.items():
            chunks += chunks_of(name, measure_energies, form, people, CHUNK, num_frames=frames)
        return chunks


def startable(prior: str) -> tuple[str, ...]:
    """Return the categories that a prior can start in."""
    opened, categories = open_prior(prior), []
    for category in CATEGORIES:
        with contextlib.suppress(ValueError):
            opened.start(category)
            categories.append(category)
    return tuple(categories)


def random_trials(
    count: int, seed: int, newtons: tuple[float, float] = HARD, categories: Sequence[str] = CATEGORIES
) -> list[Trial]:
    """Draw motions, and for each a push on the torso in any horizontal direction; more begin with the same ones."""
    rng, (first, end), trials = np.random.default_rng(seed), PUSHED, []
    for i in range(count):
        kind, angle, size = rng.random(3).tolist()
        force = toward(360 * angle, newtons[0] + (newtons[1] - newtons[0]) * size)
        category = categories[int(kind * len(categories))]
        trials.append(Trial(category, seed * 1000 + i, force, "torso", first, end - first))
    return trials


def measure_energies(body: Body, trials: Sequence[Trial], *, num_frames: int) -> Arrays:
    """Simulate pushed people, and return their energies and root wrenches in every frame."""
    motion, finished = simulate_trials(body.simulator(), trials, num_frames)
    if motion is None:
        return {"finished": finished}
    assert motion.wrench_before is not None
    assert motion.wrench_after is not None
    return {f"energy_{name}": values for name, values in all_energies(motion).items()} | {
        "finished": finished,
        "wrench_before": motion.wrench_before,
        "wrench_after": motion.wrench_after,
        "upright": metrics.upright(motion),
        "fallen": metrics.fallen(motion),
    }


def all_energies(motion: Motion) -> Mapping[str, Float[np.ndarray, "*b t"]]:
    """Return a simulated motion's energies, and those that were switched off as if they had been on [m^2].

    Contact and range of motion are taken at the frames themselves; physics is the sum of all but the prior's.
    """
    before, x = flat(motion.joints[..., :-1, :, :], 2), flat(motion.joints[..., 1:, :, :], 2)
    q = flat(motion.q[..., 1:, :, :, :], 3)
    frame = Frame(motion.skeleton, 1 / motion.fps, before, x, q, x[:, None], solids((Plane.ground(),), (len(x),)))
    values = dict(motion.energies)
    for energy in (Contact(), RangeOfMotion(PosePrior.shipped())):
        after = energy.value(x, frame).reshape(*motion.root.shape[:-2], -1)
        values[energy.name] = np.concatenate((after[..., :1], after), axis=-1)
    names = ("momentum", "rigidity", "contact", "range_of_motion")
    return values | {"physics": np.sum([values[name] for name in names], axis=0)}


def measure_path(body: Body, seeds: Sequence[int], *, scene: str, seconds: float, rollouts: int) -> Arrays:
    """Simulate people who follow a path, by themselves or led by the hand: their places, and the wanted velocity."""
    setup = scenario(scene)
    planned = replace(setup.scene, planner=replace(setup.scene.planner, num_rollouts=rollouts))
    setup = replace(setup, scene=planned, seconds=seconds, simulator=body.options)
    world = setup.world(body.simulator().prior)
    frames = setup.num_frames(world.fps)
    motion, finished = survivors(seeds, lambda some: run(world, frames, some).motions[0])
    if motion is None:
        return {"finished": finished}
    (follow,) = (element for element in planned.elements if isinstance(element, Follow))
    wanted = np.array([follow.velocity_at(i / world.fps) for i in range(frames)])
    drags = [element for element in planned.elements if isinstance(element, Drag)]
    return {
        "finished": finished,
        "wanted": np.tile(wanted, (len(motion.root), 1, 1)),
        "root": motion.root[..., :2],
        "upright": metrics.upright(motion),
    } | ({"hand_gap": hand_gap(motion, drags[0])} if drags else {})


@dataclass(frozen=True, eq=False)
class Case:
    """Claims as judged with one prior and one range of pushes."""

    options: PaperOptions
    claims: Sequence[Claim]
    tables: Mapping[str, Arrays]
    recorded: Sequence[Recorded]

    def rows(self) -> list[list[str]]:
        """Lay the claims out under a header."""
        rows = [["claim", "verdict", "bound", "finding"]]
        return rows + [[one.id, one.cell, one.bound, one.finding] for one in self.claims]

    def form_rows(self) -> list[list[str]]:
        """Lay out the same pushes under every form of the method: medians of the last second, and shares of people."""
        energies = ("E_kin at the end [m^2]", "physics at the end [m^2]")
        rows = [["form", "motions", "diverged", *energies, "fell", "upright at the end"]]
        for name, people in self.tables.items():
            if "energy_kinematic" in people:
                numbers = (median(people, "kinematic", END), median(people, "physics", END))
                shares = (people["fallen"].any(axis=1).mean(), people["upright"][:, -1].mean())
                counts = (str(len(people["finished"])), str(num_diverged([people])))
                rows.append([name, *counts, *(f"{n:.2e}" for n in numbers), *(f"{share:.0%}" for share in shares)])
        return rows

    def figures(self) -> dict[str, Figure]:
        """Return the energies of every form of the method, root wrenches, and the paths of people who follow."""
        forms = {"walk": "walks", "full": "pushed", "calm": "unpushed", "mean": "mode alone", "ablated": "ablated"}
        energies = []
        for name, title in forms.items():
            curves = {energy: np.median(self.tables[name][f"energy_{energy}"], axis=0) for energy in ENERGIES}
            panel = Panel(title, curves, y="median energy [m^2]", axes={"yscale": "log"}, spans=(PUSHED,))
            energies.append(panel)
        runs = [one.points for one in self.recorded if one.kind == "run"]
        band = {"recorded runs": (0.0, float(np.quantile(np.concatenate(runs), 0.95)))} if runs else {}
        wrench = {part: np.quantile(self.tables["run"][f"wrench_{part}"], 0.95, axis=0) for part in ("before", "after")}
        unit = "root wrench [body weights]"
        wrenches = [Panel("95th percentile of pushed runs", wrench, y=unit, spans=(PUSHED,), bands=band)]
        for kind in KINDS:
            ordered = sorted((one for one in self.recorded if one.kind == kind), key=lambda one: one.points.mean())
            for one in ordered[len(ordered) // 2 :][:1]:  # neither the best nor the worst
                curves = {"masses at the joints": one.points, "cylinders": one.cylinders}
                wrenches.append(Panel(f"recorded {kind}: {one.name}", curves, y=unit))
        paths = [_paths(name, self.tables[name]) for name in FOLLOWS]
        return {"energies": energies, "wrenches": wrenches, "following": paths}


def _paths(name: str, people: Arrays) -> Panel:
    """Draw the paths of people who follow, and the dot's."""
    dot = np.cumsum(people["wanted"][0] / 30.0, axis=0)
    curves = {"the dot": (dot[:, 0], dot[:, 1])}
    for i, root in enumerate(people["root"] - people["root"][:, :1]):
        curves[f"person {i}"] = (root[:, 0], root[:, 1])
    return Panel(f"{name}, {FOLLOWS[name]:g} m/s", curves, "x [m]", "y [m]", axes={"aspect": "equal"})


def evaluate_case(options: PaperOptions, folder: Path, *, workers: int = 1, watch: Watch = None) -> Case:
    """Simulate in chunks that are saved in a folder, and judge the claims with one prior and one range of pushes."""
    # Wrong input shows before the long work.
    recorded = [] if options.recordings is None else measure_recordings(options.recordings)
    tables = run_chunks(options.chunks(), folder, workers=workers, watch=watch)
    if not all("upright" in people for people in tables.values()):
        raise ValueError("every simulated person diverged: nothing can be measured with these weights")
    simulator = Body.of(options.num_samples, options.prior).simulator()
    speed = [single_threaded(measure_size)(simulator, people, SPEED_SECONDS) for people in (1, CHUNK)]
    return Case(options, judge(tables, recorded, speed), tables, recorded)


def evaluate_paper(options: Sequence[PaperOptions], folder: Path, *, workers: int = 1, watch: Watch = None) -> Report:
    """Judge the claims for several priors and ranges of pushes, and compare them."""
    make_writable(folder)
    cases = [evaluate_case(one, folder, workers=workers, watch=watch) for one in options]
    rows = [["claim", "bound", *(case.options.name for case in cases)]]
    for same in zip(*(case.claims for case in cases), strict=True):
        rows.append([same[0].id, same[0].bound, *(claim.cell for claim in same)])
    tables = {"paper": Table("The paper's results, for every prior and range of pushes", rows)}
    figures, claims = dict[str, Figure](), list[dict[str, Any]]()
    for case in cases:
        name = case.options.name
        tables[name] = Table(f"{name}: findings", case.rows(), detail=len(cases) > 1)
        tables[f"{name}-forms"] = Table(f"{name}: every form of the method", case.form_rows(), detail=True)
        prefix = f"{name}/" if len(cases) > 1 else ""
        figures |= {f"{prefix}{part}": figure for part, figure in case.figures().items()}
        about = {"prior": case.options.prior, "newtons": list(case.options.newtons)}
        claims += [asdict(claim) | about for claim in case.claims]
    return Report(
        name="paper",
        title="DROP's results, measured again",
        tables=tables,
        numbers={"claims": claims, "motions": options[0].motions},
        protocol=options[0],
        caption=f"Each prior over each range, {options[0].motions} motions",
        diverged=sum(num_diverged(case.tables.values()) for case in cases),
        figures=figures,
    )
