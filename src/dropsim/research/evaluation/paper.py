"""The paper's results: people are pushed and led under several forms of each method, and the claims are judged.

A column is a prior, a method and a range of pushes; the control has random weights.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.threads import single_threaded
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Plane, solids
from dropsim.physics.energies import Contact, RangeOfMotion
from dropsim.physics.energy import Frame
from dropsim.priors.cvae import CVAENetwork, CVAEPrior
from dropsim.priors.named import open_prior
from dropsim.priors.pose import PosePrior
from dropsim.research.evaluation.bench import measure_size
from dropsim.research.evaluation.claims import BOUNDS, END, FOLLOWS, PUSHED, Outcome, judge, measure_recordings, median
from dropsim.research.evaluation.harness import (
    Amounts,
    Arrays,
    Body,
    Chunk,
    Watch,
    chunks_of,
    make_writable,
    num_diverged,
    run_chunks,
    survivors,
)
from dropsim.research.evaluation.measures import hand_gap
from dropsim.research.evaluation.report import Figure, Panel, Report, Table
from dropsim.scene import Drag, Follow, Person, Push, Scene, batch_scenes, run
from dropsim.scene.scenarios import scenario

CATEGORIES = ("walk", "run", "turn", "stand", "jump", "crouch")
"""Starts of the random motions, all that begin on their feet."""
MILD, HARD = (150.0, 350.0), (300.0, 700.0)
"""Ranges of the pushes [N]: most people bear the first on their feet, the second fells most. The paper gives no number,
so that every claim is judged over both."""
CHUNK, FOLLOWERS = 25, 4
"""Trials and followers of a batch."""
SPEED_SECONDS = 1.0
"""Time for which the speed is measured [s]."""
PULL = 3.0
"""Weight of E_com of people who are led by nothing else; the paper gives none."""
CONTROL = "random"
"""Name of the prior with random weights."""
ENERGIES = ("kinematic", "kinematic_mode", "momentum", "contact", "range_of_motion", "rigidity")
"""Energies that are drawn."""


class Trial(NamedTuple):
    """One person and their push."""

    seed: int
    start: str
    """Category of the bank of starts."""
    push: Push


def push_toward(degrees: float, newtons: float, part: str = "torso") -> Push:
    """Return the paper's push, counterclockwise from the front of somebody from the bank of starts."""
    first, end = (frame / 30 for frame in PUSHED)
    return Push.toward(f"{degrees:.9f}", newtons, part=part, start=first, duration=end - first)


@dataclass(frozen=True)
class PaperOptions(Amounts):
    """A column with one seed: what is simulated, numbers of people, and how they are pushed."""

    motions: int = 250
    num_samples: int = 64
    """K: candidates of the prior a frame."""
    seed: int = 0
    num_frames: int = 240
    """Length of a pushed motion [frames]."""
    longer_frames: int = 480
    """Length of motions that show whether energies come back [frames]: people who fell need some seconds to get up."""
    longer: int = 100
    """Motions of that length."""
    walks: int = 8
    """Pushed walks."""
    runs: int = 25
    """Pushed runs whose root wrench is looked at."""
    followers: int = 8
    """People of each scenario that follows a path."""
    follow_seconds: float = 16.0
    """Time for which they follow it [s]."""
    recordings: Path | None = None
    """Data set of recordings that the root wrench is compared with."""
    prior: str = "field"
    """Name of the prior, as `open_prior` takes it, or `random` for the control."""
    method: str = "default"
    """Method, as `SimulatorOptions.of_method` takes it."""
    pose: str = ""
    """Name of the model of poses, as `open_pose` takes it; empty for the package's."""
    newtons: tuple[float, float] = HARD
    """Range of all pushes [N]; walks get the middle of it."""

    few: ClassVar = {
        "motions": 5,
        "num_samples": 8,
        "walks": 2,
        "runs": 2,
        "followers": 1,
        "num_frames": 160,
        "longer_frames": 160,
        "follow_seconds": 4.0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.newtons
        if not 0 < low <= high:
            raise ValueError(f"pushes range from a force of at least 1 N to a larger one, not {low:g} to {high:g} N")

    @property
    def name(self) -> str:
        """Name of the column: prior, method and range of pushes."""
        method = "" if self.method == "default" else f"-{self.method}"
        return f"{Path(self.prior).stem}{method}-{self.newtons[0]:g}-{self.newtons[1]:g}N"

    def body(self, folder: Path) -> Body:
        """Return the settings of the simulator; random weights are kept in a folder."""
        if self.prior != CONTROL:
            return Body.of(self.num_samples, self.prior, method=self.method, pose=self.pose)
        path = folder / f"{CONTROL}.safetensors"
        if not path.exists():
            CVAEPrior(CVAENetwork.random(CVAEPrior.shipped().network.shape), Skeleton.adult()).save(path)
        return Body.of(self.num_samples, str(path), method=self.method, pose=self.pose)

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work, the longest first, so that no worker is left with one at the end."""
        trials = random_trials(self.motions, self.seed, self.newtons, startable(body.prior))
        push = push_toward(90.0, sum(self.newtons) / 2, "pelvis")
        walks = [Trial(self.seed + i, "walk", push) for i in range(self.walks)]
        runs = [trial._replace(start="run") for trial in random_trials(self.runs, self.seed + 1, self.newtons)]
        calm = [trial._replace(push=push_toward(0.0, 0.0)) for trial in trials]
        forms: Mapping[str, tuple[Body, Sequence[Trial]]] = {
            "full": (body, trials),
            "calm": (body, calm),
            "ablated": (body.changed(contact=False, range_of_motion=False), trials),
            "mean": (body.changed(num_samples=1, start_at_mode=True), trials),
            "longer": (body, trials[: self.longer]),
            "walk": (body, walks),
            "run": (body, runs),
            "run-uncorrected": (body.changed(correct=False), runs),
        }
        chunks, seeds = list[Chunk](), range(self.seed, self.seed + self.followers)
        for name in FOLLOWS:
            chunks += chunks_of(name, measure_path, body, seeds, FOLLOWERS, scene=name, seconds=self.follow_seconds)
        for name, (form, people) in forms.items():
            frames = self.longer_frames if name == "longer" else self.num_frames
            chunks += chunks_of(name, measure_energies, form, people, CHUNK, num_frames=frames, get_up=name != "longer")
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
    rng, trials = np.random.default_rng(seed), list[Trial]()
    for i in range(count):
        kind, angle, size = rng.random(3).tolist()
        push = push_toward(360 * angle, newtons[0] + (newtons[1] - newtons[0]) * size)
        trials.append(Trial(seed * 1000 + i, categories[int(kind * len(categories))], push))
    return trials


def measure_energies(body: Body, trials: Sequence[Trial], *, num_frames: int, get_up: bool) -> Arrays:
    """Simulate pushed people, and return their energies and root wrenches in every frame."""
    simulator = body.simulator()

    def together(some: Sequence[Trial]) -> Arrays:
        scenes = [Scene((Person(trial.start),), (trial.push,), get_up=get_up) for trial in some]
        seeds = [trial.seed for trial in some]
        world, start = batch_scenes(scenes, simulator, seeds)
        motion = run(world, num_frames, seeds, start=start).motions[0]
        return {f"energy_{name}": values for name, values in all_energies(motion).items()} | {
            "wrench": np.linalg.norm(metrics.root_wrench(motion), axis=-1),
            "upright": metrics.upright(motion),
            "fallen": metrics.fallen(motion),
        }

    return survivors(trials, together)


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


def measure_path(body: Body, seeds: Sequence[int], *, scene: str, seconds: float) -> Arrays:
    """Simulate people who follow a path, by themselves or led by the hand: their places, and the wanted velocity."""
    setup = scenario(scene)
    if not body.options.tell_prior:
        led = [replace(e, weight=PULL) if isinstance(e, Follow) else e for e in setup.scene.elements]
        setup = replace(setup, scene=replace(setup.scene, elements=tuple(led)))
    setup = replace(setup, simulator=body.options, pose=body.pose or None)
    world = setup.world(body.simulator().prior)
    frames = round(seconds * world.fps)
    (follow,) = (element for element in setup.scene.elements if isinstance(element, Follow))
    wanted = np.array([follow.velocity_at(i / world.fps) for i in range(frames)])
    drags = [element for element in setup.scene.elements if isinstance(element, Drag)]

    def together(some: Sequence[int]) -> Arrays:
        motion = run(world, frames, some).motions[0]
        columns = {"root": motion.root[..., :2], "fallen": metrics.fallen(motion)}
        led = {"hand_gap": hand_gap(motion, drags[0])} if drags else {}
        return columns | led | {"wanted": np.tile(wanted, (len(some), 1, 1))}

    return survivors(seeds, together)


def form_rows(options: PaperOptions, tables: Mapping[str, Arrays]) -> Iterator[list[str]]:
    """Lay out the same pushes under every form of the method: medians of the last second, and shares of people."""
    for name, people in tables.items():
        if "energy_kinematic" in people:
            numbers = (median(people, "kinematic", END), median(people, "physics", END))
            shares = (people["fallen"].any(axis=1).mean(), people["upright"][:, -1].mean())
            counts = (str(len(people["finished"])), str(num_diverged([people])))
            cells = (*(f"{n:.2e}" for n in numbers), *(f"{share:.0%}" for share in shares))
            yield [options.name, str(options.seed), name, *counts, *cells]


def energies_of(tables: Mapping[str, Arrays]) -> Figure:
    """Return the energies of every form of the method."""
    forms = {"walk": "walks", "full": "pushed", "calm": "unpushed", "mean": "mode alone", "ablated": "ablated"}
    axes = {"xlabel": "frame", "ylabel": "median energy [m^2]", "yscale": "log"}
    panels = list[Panel]()
    for name, title in forms.items():
        medians = {energy: np.median(tables[name][f"energy_{energy}"], axis=0) for energy in ENERGIES}
        curves = {energy: (np.arange(len(values)), values) for energy, values in medians.items()}
        panels.append(Panel(title, curves, axes, (PUSHED,)))
    return panels


def evaluate_paper(options: Sequence[PaperOptions], folder: Path, *, workers: int = 1, watch: Watch = None) -> Report:
    """Judge the claims for several columns and seeds, and compare them; chunks are saved in a folder."""
    # Wrong input shows before the long work.
    make_writable(folder)
    recorded = {} if options[0].recordings is None else measure_recordings(options[0].recordings)
    columns, figures, diverged = dict[str, list[dict[str, Outcome]]](), dict[str, Figure](), 0
    findings, judged = [["column", "seed", "claim", "verdict", "finding"]], list[dict[str, Any]]()
    energies = ("E_kin at the end [m^2]", "physics at the end [m^2]")
    forms = [["column", "seed", "form", "motions", "diverged", *energies, "fell", "upright at the end"]]
    num_columns = len({one.name for one in options})
    for one in options:
        body = one.body(folder)
        tables = run_chunks(one.chunks(body), folder, workers=workers, watch=watch)
        if not all("fallen" in people for people in tables.values()):
            raise ValueError("every simulated person diverged: nothing can be measured with these weights")
        speed = single_threaded(measure_size)(body.simulator(), 1, SPEED_SECONDS)
        outcomes = judge(tables, recorded, speed.world_fps)
        if one.name not in columns:
            figures[f"{one.name}/energies" if num_columns > 1 else "energies"] = energies_of(tables)
        columns.setdefault(one.name, []).append(outcomes)
        forms += form_rows(one, tables)
        diverged += num_diverged(tables.values())
        about = {"prior": one.prior, "method": one.method, "seed": one.seed, "newtons": list(one.newtons)}
        for name, outcome in outcomes.items():
            findings.append([one.name, str(one.seed), name, outcome.verdict, outcome.finding])
            judged.append({"id": name, "bound": BOUNDS[name], **outcome._asdict(), **about})
    rows = [["claim", "bound", *columns]]
    for name, bound in BOUNDS.items():
        rows.append([name, bound, *(_cell([outcomes[name] for outcomes in seeds]) for seeds in columns.values())])
    return Report(
        name="paper",
        title="DROP's results, measured again",
        tables={
            "paper": Table("The paper's results", rows),
            "findings": Table("Findings", findings, detail=len(options) > 1),
            "forms": Table("Every form of the method", forms),
        },
        numbers={"claims": judged, "motions": options[0].motions},
        protocol=options[0],
        caption=f"{options[0].motions} motions in each column, {len(options) // len(columns)} seeds",
        diverged=diverged,
        figures=figures,
    )


def _cell(seeds: Sequence[Outcome]) -> str:
    """Return the median of a claim's numbers over the seeds, and the verdict."""
    numbers = [outcome.number for outcome in seeds if outcome.number is not None]
    if not numbers:
        return seeds[0].verdict
    passed = sum(bool(outcome.reproduced) for outcome in seeds)
    verdict = seeds[0].verdict if len(seeds) == 1 else f"reproduced by {passed} of {len(seeds)} seeds"
    return f"{np.median(numbers):.3g}, {verdict}"
