"""`dropsim evaluate`: numbers, tables and figures on how people move, a prior, the paper's claims, and cleaning."""

# pyright: reportArgumentType=false

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dropsim.apps.cli.arguments import ModelOptions, PriorName, optional

if TYPE_CHECKING:
    from dropsim.research.evaluation.harness import Body
    from dropsim.research.evaluation.report import Report

Recordings = Annotated[Path | None, optional("FOLDER", "none")]
Watch = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class _Simulated(ModelOptions):
    """Options of everything that simulates many people."""

    prior: PriorName = "field"
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
    seed: int = 0
    """Seed of everything random."""
    samples: Annotated[int | None, optional("K", "the prior's own, or 64")] = None
    """Candidates of the prior a frame."""
    quick: bool = False
    """A small version within about half a minute."""
    workers: Annotated[int | None, optional("INT", "as many as there are cores")] = None
    """Processes; they change no number."""
    out: Annotated[Path | None, optional("FOLDER", "none")] = None
    """Folder for tables and figures, and for finished work, to go on after an interruption."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""

    @property
    def _prior(self) -> str:
        """The prior by one name, for results and other processes."""
        from dropsim.priors.named import prior_name

        return prior_name(self.prior, self.body)

    def _body(self, samples: int | None) -> "Body":
        from dropsim.research.evaluation.harness import Body

        return Body.of(samples, self._prior, method=self.method or "default", pose=str(self.pose or ""))

    def _given(self, *names: str) -> dict[str, Any]:
        """Return these options, the seed, and whether the small version is asked for."""
        return {name: getattr(self, name) for name in (*names, "seed", "quick")}

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        """Measure, with chunks in a folder."""
        raise NotImplementedError

    def run(self) -> None:
        """Measure, print the tables and write the files that were asked for."""
        from dropsim.apps.cli.progress import bar

        workers = (os.cpu_count() or 1) if self.workers is None else self.workers
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            report = self.evaluate(folder, {"workers": workers, "watch": advance})
        print(report.text())
        _say_written(report.write(self.out, self.json))


@dataclass(frozen=True)
class Behaviour(_Simulated):
    """How people move, in one table with targets: falls, standing, pushes, stops, trips, get-ups, posture, momentum."""

    people: Annotated[int | None, optional("INT", "64, and 21 with --quick")] = None
    """People for each impulse and direction of the pushes, with all others in proportion."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.research.evaluation.behaviour import BehaviourProtocol

        protocol = BehaviourProtocol.of(**self._given("people"))
        return protocol.evaluate(self._body(self.samples), folder, **how)


@dataclass(frozen=True, kw_only=True)
class Clean:
    """What `dropsim clean` does to CMU recordings, and to copies that drift, float and jump."""

    recordings: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """CMU's BVH files, such as 02_01.bvh; also in subfolders."""
    people: Literal["unseen", "others"] = "unseen"
    """People of the recordings: those on whom nothing was chosen, or all others."""
    clips: int = 40
    """Recordings, as evenly over the people as they have any."""
    strength: Literal["gentle", "normal", "strict"] = "normal"
    """As for `dropsim clean`."""
    seed: int = 0
    """Seed of the defects that are put in."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers of every recording."""

    def run(self) -> None:
        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.cleaning import evaluate_cleaning, recordings

        if self.clips < 1:
            raise ValueError("--clips is at least 1")
        files = recordings(self.recordings, self.people, self.clips)
        with bar("recordings") as advance:
            report = evaluate_cleaning(files, strength=self.strength, seed=self.seed, watch=advance)
        print(f"{report.caption}\n\n{report.text()}")
        _say_written(report.write(None, self.json))


@dataclass(frozen=True, kw_only=True)
class Paper(_Simulated):
    """The paper's eight results, measured again: for priors, methods, ranges of pushes, and random weights as control."""

    out: Path = tyro.MISSING
    """Folder for the report, the figures and their data."""
    also: Annotated[tuple[str, ...] | None, optional("PRIOR ...", "field, cvae and random; none with --quick")] = None
    """Other priors that the claims are judged for; `random` has random weights and should fail."""
    newtons: Annotated[
        tuple[float, float] | None, optional("LOW HIGH", "both 150 to 350 and 300 to 700; the second with --quick")
    ] = None
    """Range of the pushes [N]."""
    motions: Annotated[int | None, optional("INT", "250")] = None
    """Pushed motions."""
    seeds: Annotated[int | None, optional("INT", "3, and 1 with --quick")] = None
    """Seeds that each column is judged with."""
    recordings: Recordings = None
    """Recordings to compare with: a data set of `dropsim data build`."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.research.evaluation.paper import CONTROL, HARD, MILD, PaperOptions, evaluate_paper

        given = self._given("motions", "recordings") | {"num_samples": self.samples, "pose": str(self.pose or "")}
        seeds = self.seeds or (1 if self.quick else 3)
        others = (() if self.quick else ("field", "cvae", CONTROL)) if self.also is None else self.also
        ranges = ((HARD,) if self.quick else (MILD, HARD)) if self.newtons is None else (self.newtons,)
        methods = (("default",) if self.quick else ("default", "paper")) if self.method is None else (self.method,)
        options = list[PaperOptions]()
        for method, prior in product(methods, dict.fromkeys((self._prior, *others))):
            for newtons, i in product(ranges, range(seeds)):
                if prior == CONTROL and method != methods[0]:
                    continue
                column = {"prior": prior, "method": method, "newtons": newtons, "seed": self.seed + 1000 * i}
                options.append(PaperOptions.of(**{**given, **column}))
        return evaluate_paper(options, folder, **how)


@dataclass(frozen=True)
class Response(_Simulated):
    """What standing, walking and running people do when pushed, kicked, thrown over, tripped and hit by balls."""

    people: Annotated[int | None, optional("INT", "64, and 16 with --quick")] = None
    """People in each cell of a start, an impulse and a direction; the other parts are in proportion."""
    only: Annotated[
        tuple[Literal["push", "walk-perturb", "getup", "trips", "balls", "recorded"], ...] | None,
        optional("PART ...", "all"),
    ] = None
    """Parts to run: push, walk-perturb, getup, trips, balls, recorded."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.research.evaluation.response import ResponseProtocol

        protocol = ResponseProtocol.of(**self._given("people"), parts=self.only)
        return protocol.evaluate(self._body(self.samples), folder, **how)


@dataclass(frozen=True, kw_only=True)
class Prior(_Simulated):
    """The motion prior, alone and in the simulator, next to recordings of people that it never saw."""

    data: Path
    """Folder of recordings that `dropsim data build` made."""
    people: Literal["held-out", "all"] = "held-out"
    """People of the recordings: those kept out of training, or everybody."""
    same_people: bool = False
    """Judge a bank also by people who are in it."""
    rollouts: Annotated[int | None, optional("INT", "256, and 32 with --quick")] = None
    """Sampled rollouts of the prior alone."""
    seconds: float = 10.0
    """Length of a rollout [s]."""
    simulated: Annotated[int | None, optional("INT", "64, and 8 with --quick")] = None
    """People in the simulator; 0 measures the prior alone."""
    card: Annotated[Path | None, optional("FILE", "none")] = None
    """Model card whose table of measured quality is rewritten."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.motion.clips import load
        from dropsim.priors.named import open_prior
        from dropsim.research.evaluation.prior import PriorEvaluation, evaluate_prior, refuse_same_people
        from dropsim.research.evaluation.report import fill_tables

        prior = open_prior(self._prior)
        options = PriorEvaluation.of(**self._given("rollouts", "simulated", "seconds"))
        clips = load(self.data, held_out=True if self.people == "held-out" else None)
        if not self.same_people:
            refuse_same_people(prior, clips)
        simulator = self._body(self.samples or 64).simulator() if options.simulated else None
        report = evaluate_prior(prior, clips, options, how["watch"], simulator=simulator)
        if self.card:
            fill_tables(self.card, {"prior": report.as_json()}, required="prior")
            _say_written([self.card])
        return report


@dataclass(frozen=True)
class Steering(_Simulated):
    """Whether people stay up, keep the speed and turn when asked to; and all scenarios with many seeds."""

    people: Annotated[int | None, optional("INT", "64, and 8 with --quick")] = None
    """People for each speed."""
    seeds: Annotated[int | None, optional("INT", "32, and 2 with --quick")] = None
    """Seeds of each scenario."""
    scenarios: Annotated[tuple[str, ...] | None, optional("NAME ...", "all, and five with --quick")] = None
    """Scenarios that are run."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.research.evaluation.steering import SteeringProtocol

        protocol = SteeringProtocol.of(**self._given("people", "seeds", "scenarios"))
        return protocol.evaluate(self._body(self.samples), folder, **how)


@dataclass(frozen=True)
class Reliability(_Simulated):
    """Whether it holds: random pushes, random scenes, and damaged files for every reader. None should fail."""

    pushes: Annotated[int | None, optional("INT", "10000, and 50 with --quick")] = None
    """Random pushes."""
    scenes: Annotated[int | None, optional("INT", "3000, and 16 with --quick")] = None
    """Random scenes."""
    mutants: Annotated[int | None, optional("INT", "5000, and 50 with --quick")] = None
    """Damaged files of each kind."""

    def evaluate(self, folder: Path, how: dict[str, Any]) -> "Report":
        from dropsim.research.evaluation.reliability import ReliabilityProtocol

        protocol = ReliabilityProtocol.of(**self._given("pushes", "scenes", "mutants"))
        return protocol.evaluate(self._body(self.samples or 64), folder, **how)


@dataclass(frozen=True, kw_only=True)
class All(_Simulated):
    """Everything, on one page; after an interruption the same command goes on where it stopped."""

    out: Path = tyro.MISSING
    """Folder for everything."""
    recordings: Recordings = None
    """A data set of `dropsim data build`; without one the prior is not judged by itself."""
    people: Annotated[int | None, optional("INT", "64")] = None
    """People of each kind, with all else in proportion: 250 motions for the paper are about four times as many."""
    docs: Annotated[Path | None, optional("FILE", "none")] = None
    """Page of documentation whose tables are filled."""

    def run(self) -> None:
        from dropsim.research.evaluation.report import write_summary

        n = self.people
        if n is not None and n < 1:
            raise ValueError(f"--people has to be 1 or more, and is {n}")
        m = n or 0
        sizes: dict[type[_Simulated], dict[str, Any]] = {
            Behaviour: {"people": m},
            Response: {"people": m},
            Steering: {"people": m, "seeds": max(2, m // 2)},
            Prior: {"simulated": m, "rollouts": 4 * m},
            Paper: {"motions": 4 * m},
            Reliability: {"pushes": 150 * m, "scenes": 45 * m},
        }
        if self.recordings is None:
            del sizes[Prior]
        names = ("prior", "body", "pose", "method", "seed", "samples", "quick", "workers")
        common = {name: getattr(self, name) for name in names}
        compared = {Prior: "data", Paper: "recordings"}
        for command, size in sizes.items():
            recordings = {compared[command]: self.recordings} if command in compared else {}
            command(**common, **(size if n else {}), **recordings, out=self.out / command.__name__.lower()).run()
        _say_written(write_summary(self.out, docs=self.docs))


@dataclass(frozen=True)
class Evaluate:
    """Measure how people move, people who are pushed or steered, the motion prior, cleaning, or the paper's claims.

    Examples: dropsim evaluate paper --out paper --recordings DATA; dropsim evaluate response --quick; dropsim evaluate
    response --help
    """

    what: tyro.conf.OmitArgPrefixes[
        tyro.conf.OmitSubcommandPrefixes[All | Behaviour | Clean | Paper | Prior | Reliability | Response | Steering]
    ]
    """What to measure."""

    def run(self) -> None:
        """Measure, print the table and write what was asked for."""
        from dropsim.apps.cli.progress import tell_of_compiling

        tell_of_compiling()
        self.what.run()


def _say_written(paths: list[Path]) -> None:
    for path in paths:
        print(f"wrote {path}")
