"""`dropsim evaluate`: numbers, tables and figures on a prior, the paper's claims, people who are pushed, the settings, and cleaning."""

# pyright: reportArgumentType=false

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import BodyFile, PriorName, optional

if TYPE_CHECKING:
    from dropsim.priors.pose import PosePrior

Recordings = Annotated[Path | None, optional("FOLDER", "none")]


@dataclass(frozen=True)
class _Simulated:
    """Options of everything that simulates many people."""

    prior: PriorName = "field"
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""
    seed: int = 0
    """Of everything random."""
    quick: bool = False
    """A small version within about half a minute."""
    workers: Annotated[int | None, optional("INT", "as many as there are cores")] = None
    """Processes; they change no number."""

    @property
    def _workers(self) -> int:
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    @property
    def _prior(self) -> str:
        """The prior by one name, for results and other processes."""
        from dropsim.priors.named import prior_name

        return prior_name(self.prior, self.body)


@dataclass(frozen=True, kw_only=True)
class Ablation(_Simulated):
    """What each setting of the simulator does to quality and speed."""

    out: Path
    """Folder for the table and the figure."""
    motions: Annotated[int | None, optional("INT", "50")] = None
    """Pushed motions."""

    def run(self) -> None:
        from dataclasses import replace

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.ablation import AblationOptions, evaluate_ablation
        from dropsim.research.evaluation.ablation_report import table, write_ablation_report

        options = replace(
            AblationOptions.quick() if self.quick else AblationOptions(), seed=self.seed, prior=self._prior
        )
        options = options if self.motions is None else replace(options, motions=self.motions)
        with bar("chunks") as advance:
            rows = evaluate_ablation(options, self.out / "chunks", workers=self._workers, watch=advance)
        print(table(rows))
        _say_written(write_ablation_report(rows, options, self.out))


@dataclass(frozen=True)
class Behaviour(_Simulated):
    """How people move, in one table with targets: falls, standing, pushes and stops, trips, get-ups, posture and momentum."""

    out: Annotated[Path | None, optional("FOLDER", "none")] = None
    """Folder for what has been run, to go on after an interruption, and for the table."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    people: Annotated[int | None, optional("INT", "64, and 21 with --quick")] = None
    """People for each impulse and direction of the pushes, with all others in proportion."""
    samples: Annotated[int | None, optional("K", "the prior's own")] = None
    """Candidates of the prior a frame."""

    def run(self) -> None:
        import tempfile

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.behaviour import BehaviourProtocol, evaluate_behaviour, table
        from dropsim.research.evaluation.report import machine, write_json, write_text
        from dropsim.research.evaluation.trials import Body

        small = self.quick and self.people is None
        protocol = (
            BehaviourProtocol.quick(self.seed) if small else BehaviourProtocol.sized(self.people or 64, self.seed)
        )
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            behaviour = evaluate_behaviour(
                Body.of(self.samples, self._prior), protocol, folder, workers=self._workers, watch=advance
            )
        print(table(behaviour))
        written = [path for path in (self.json, self.out and self.out / "behaviour.json") if path is not None]
        for path in written:
            write_json(path, behaviour.numbers() | {"made_by": machine()})
        if self.out:
            write_text(self.out / "behaviour.md", table(behaviour))
            written.append(self.out / "behaviour.md")
        _say_written(written)


@dataclass(frozen=True, kw_only=True)
class Clean:
    """What `dropsim clean` does to CMU recordings, and to copies that drift, float and jump, next to what they were before."""

    recordings: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """CMU's BVH files, such as 02_01.bvh; also in subfolders."""
    people: Literal["unseen", "others"] = "unseen"
    """Whose: of those people on whom nothing was chosen, or of all others."""
    clips: int = 40
    """Recordings, as evenly over the people as they have any."""
    strength: Literal["gentle", "normal", "strict"] = "normal"
    """As for `dropsim clean`."""
    seed: int = 0
    """Of the defects that are put in."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers of every recording."""

    def run(self) -> None:
        from dataclasses import asdict

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.cleaning import evaluate_cleaning, recordings, table
        from dropsim.research.evaluation.report import write_json

        if self.clips < 1:
            raise ValueError("--clips is at least 1")
        files = recordings(self.recordings, self.people, self.clips)
        with bar("recordings") as advance:
            rows = evaluate_cleaning(files, strength=self.strength, seed=self.seed, watch=advance)
        print(f"{len(files)} recordings: {', '.join(path.stem for path in files)}\n\n{table(rows)}")
        if self.json:
            write_json(self.json, [asdict(row) for row in rows])
            _say_written([self.json])


@dataclass(frozen=True, kw_only=True)
class Paper(_Simulated):
    """The paper's eight results, measured again, each over two ranges of pushes and for two priors."""

    out: Path
    """Folder for the report, the figures and their data."""
    also: Annotated[tuple[str, ...] | None, optional("PRIOR ...", "field and cvae; none with --quick")] = None
    """Other priors that the claims are judged for."""
    newtons: Annotated[
        tuple[float, float] | None, optional("LOW HIGH", "both 150 to 350 and 300 to 700; the second with --quick")
    ] = None
    """Range of the pushes [N]."""
    motions: Annotated[int | None, optional("INT", "250")] = None
    """Pushed motions."""
    samples: Annotated[int | None, optional("K", "64, and 8 with --quick")] = None
    """Candidates of the prior a frame."""
    recordings: Recordings = None
    """Recordings to compare with: a data set of `dropsim data build`, or BVH and AMASS files."""

    def run(self) -> None:
        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.paper.plan import HARD, MILD, PaperOptions
        from dropsim.research.evaluation.paper.reproduce import reproduce_over

        given = {"motions": self.motions, "num_samples": self.samples, "recordings": self.recordings}
        kept = {name: value for name, value in given.items() if value is not None} | {"seed": self.seed}
        make = PaperOptions.quick if self.quick else PaperOptions
        others = (() if self.quick else ("field", "cvae")) if self.also is None else self.also
        ranges = ((HARD,) if self.quick else (MILD, HARD)) if self.newtons is None else (self.newtons,)
        options = [
            make(**kept, prior=prior, newtons=newtons)
            for prior in dict.fromkeys((self._prior, *others))
            for newtons in ranges
        ]
        with bar("chunks") as advance:
            cases = reproduce_over(options, self.out, workers=self._workers, watch=advance)
        for case in cases:
            print(f"{case.name}:", *(claim.line for claim in case.claims), sep="\n")
        print(f"wrote {self.out / 'report.html'}, {self.out / 'claims.json'} and the figures with their data")


@dataclass(frozen=True)
class Push(_Simulated):
    """Recovery and falls of pushed people by force, direction, body part, start and time."""

    out: Annotated[Path | None, optional("FOLDER", "none are written")] = None
    """Folder for figures and tables."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    newtons: Annotated[tuple[float, ...] | None, optional("N ...", "100 200 300 450 700")] = None
    """Forces [N]."""
    directions: Annotated[tuple[str, ...] | None, optional("NAME|DEGREES ...", "every 45 degrees")] = None
    """Where they drive people: front, left, back, right, or degrees counterclockwise from the front."""
    parts: Annotated[tuple[str, ...] | None, optional("NAME ...", "torso")] = None
    """Where people are pushed: pelvis, torso, hand, foot, or a joint's name."""
    starts: Annotated[tuple[str, ...] | None, optional("NAME ...", "walk run stand")] = None
    """What people do at the start."""
    moments: Annotated[tuple[float, ...] | None, optional("S ...", "1 1.5")] = None
    """When they are pushed, in their stride [s]."""
    seeds: Annotated[int | None, optional("INT", "2")] = None
    """States of each start."""
    responses: Annotated[int | None, optional("INT", "2")] = None
    """Times that each is pushed in the same way."""
    samples: Annotated[int | None, optional("K", "the prior's own, and 8 with --quick")] = None
    """Candidates of the prior a frame."""
    recordings: Recordings = None
    """Recordings to compare with: a data set of `dropsim data build`, or BVH and AMASS files."""

    def run(self) -> None:
        import tempfile
        from dataclasses import asdict

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.push import PushProtocol, evaluate_push, table
        from dropsim.research.evaluation.push_report import write_push_report
        from dropsim.research.evaluation.recordings import recorded_windows
        from dropsim.research.evaluation.report import write_json
        from dropsim.research.evaluation.trials import Body

        names = ("newtons", "directions", "parts", "starts", "moments", "seeds", "responses")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        small = {"newtons": (150.0, 450.0), "directions": ("front", "left", "back", "right"), "starts": ("walk", "stand"),
                 "moments": (1.0,), "seeds": 1, "get_up_seconds": 3.0}  # fmt: skip
        protocol = PushProtocol(**{**(small if self.quick else {}), **given}, seed=self.seed)
        body = Body.of(8 if self.quick and self.samples is None else self.samples, self._prior)
        recorded = None if self.recordings is None else recorded_windows(self.recordings, protocol.starts)
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            report = evaluate_push(body, protocol, folder, workers=self._workers, watch=advance, recorded=recorded)
        print(table([*report.grouped("newtons", method=None), *report.grouped("newtons", "direction")]))
        cells = [asdict(cell) for cell in report.cells]
        if self.json:
            write_json(self.json, cells)
            _say_written([self.json])
        if self.out:
            write_json(self.out / "push.json", {"cells": cells, "protocol": asdict(protocol)})
            _say_written([self.out / "push.json", *write_push_report(report, self.out)])


@dataclass(frozen=True)
class Response(_Simulated):
    """What standing, walking and running people do when pushed, kicked, thrown over, tripped and hit by balls, next to real people."""

    out: Annotated[Path | None, optional("FOLDER", "none are written")] = None
    """Folder for figures and tables."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    people: Annotated[int | None, optional("INT", "64, and 16 with --quick")] = None
    """People in each cell of a start, an impulse and a direction; the other parts are in proportion."""
    only: Annotated[tuple[str, ...] | None, optional("PART ...", "all")] = None
    """Parts to run: push, baselines, pdp, kicks, getup, trips, balls, overlap, recorded."""
    samples: Annotated[int | None, optional("K", "the prior's own")] = None
    """Candidates of the prior a frame."""

    def run(self) -> None:
        import tempfile

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.report import write_json
        from dropsim.research.evaluation.response import ResponseProtocol, as_json, evaluate_response, table
        from dropsim.research.evaluation.response_report import number_table, write_response_report
        from dropsim.research.evaluation.trials import Body

        given = {name: value for name, value in (("people", self.people), ("parts", self.only)) if value is not None}
        if self.people is not None:
            n = self.people
            given |= {
                "others": 4 * n,
                "trips": max(4, n // 2),
                "balls": max(1, n // 4),
                "scenario_seeds": max(1, n // 16),
            }
        protocol = (ResponseProtocol.quick if self.quick else ResponseProtocol)(**given, seed=self.seed)
        body = Body.of(self.samples, self._prior)
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            response = evaluate_response(body, protocol, folder, workers=self._workers, watch=advance)
        print(table([cell for cell in response.cells if cell.direction is None]))
        print(number_table(response))
        written = [self.json, *([] if self.out is None else [self.out / "response.json"])]
        for path in written:
            if path is not None:
                write_json(path, as_json(response))
        drawn = write_response_report(response, self.out) if self.out else []
        _say_written([path for path in (*written, *drawn) if path is not None])


@dataclass(frozen=True, kw_only=True)
class Prior(_Simulated):
    """The motion prior, alone and in the simulator, next to recordings of people that it never saw."""

    data: Path
    """Folder of recordings that `dropsim data build` made."""
    people: Literal["held-out", "all"] = "held-out"
    """Whose recordings: those kept out of training, or everybody's."""
    same_people: bool = False
    """Judge a bank also by people who are in it."""
    rollouts: Annotated[int | None, optional("INT", "256, and 32 with --quick")] = None
    """Sampled rollouts of the prior alone."""
    seconds: float = 10.0
    """Length of a rollout [s]."""
    simulated: Annotated[int | None, optional("INT", "64, and 8 with --quick")] = None
    """People in the simulator; 0 measures the prior alone."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    out: Annotated[Path | None, optional("FOLDER", "none are written")] = None
    """Folder for figures."""
    card: Annotated[Path | None, optional("FILE", "none")] = None
    """Model card whose table of measured quality is rewritten."""

    def run(self) -> None:
        from dataclasses import replace

        from dropsim.apps.cli.progress import bar
        from dropsim.motion.clips import load
        from dropsim.priors.named import open_prior
        from dropsim.research.evaluation.card import fill_card, table
        from dropsim.research.evaluation.figures import draw_report
        from dropsim.research.evaluation.prior import (
            PriorEvaluation,
            evaluate_prior,
            measure_activity,
            refuse_same_people,
        )
        from dropsim.research.evaluation.report import write_json
        from dropsim.research.evaluation.trials import Body

        prior = open_prior(self._prior)
        small = {"rollouts": 32, "simulated": 8, "one_step_frames": 1024} if self.quick else {}
        given = {name: value for name in ("rollouts", "simulated") if (value := getattr(self, name)) is not None}
        options = PriorEvaluation(**{**small, **given}, seconds=self.seconds, seed=self.seed)
        clips = load(self.data, held_out=True if self.people == "held-out" else None)
        if not self.same_people:
            refuse_same_people(prior, clips)
        with bar("prior") as advance:
            report = evaluate_prior(prior, clips, options, advance, pose=shipped_pose_prior())
        if options.simulated:
            report = replace(report, activity=measure_activity(Body.of(64, self._prior).simulator(), clips, options))
        print(table(report))
        if self.json:
            write_json(self.json, report.numbers())
        if self.card:
            fill_card(self.card, report)
        drawn = draw_report(report, self.out) if self.out else []
        _say_written([path for path in (self.json, self.card, *drawn) if path is not None])


@dataclass(frozen=True)
class Steering(_Simulated):
    """Whether people stay up, go as fast as they are asked to and turn when asked to; and all scenarios with many seeds."""

    out: Annotated[Path | None, optional("FOLDER", "none")] = None
    """Folder for what has been run, to go on after an interruption, and for the tables."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    people: Annotated[int | None, optional("INT", "64, and 8 with --quick")] = None
    """People for each speed."""
    seeds: Annotated[int | None, optional("INT", "32, and 2 with --quick")] = None
    """Of each scenario."""
    scenarios: Annotated[tuple[str, ...] | None, optional("NAME ...", "all, and five with --quick")] = None
    """Which scenarios."""
    samples: Annotated[int | None, optional("K", "the prior's own")] = None
    """Candidates of the prior a frame."""
    recordings: Recordings = None
    """A data set of `dropsim data build`, whose held-out people foot skate and jerk are compared with."""

    def run(self) -> None:
        import tempfile

        from dropsim.apps.cli.progress import bar
        from dropsim.motion.clips import load
        from dropsim.research.evaluation.report import write_json, write_text
        from dropsim.research.evaluation.steering import RecordedPaces, SteeringProtocol, evaluate_steering, table
        from dropsim.research.evaluation.trials import Body

        given = {name: value for name in ("people", "seeds", "scenarios") if (value := getattr(self, name)) is not None}
        protocol = (SteeringProtocol.quick if self.quick else SteeringProtocol)(**given, seed=self.seed)
        recorded = (
            None
            if self.recordings is None
            else RecordedPaces.of([motion for _, motion in load(self.recordings, held_out=True)])
        )
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder, body = (
                Path(scratch) if self.out is None else self.out / "chunks",
                Body.of(self.samples, self._prior),
            )
            steering = evaluate_steering(
                body, protocol, folder, recorded=recorded, workers=self._workers, watch=advance
            )
        print(table(steering))
        written = [self.json, *([] if self.out is None else [self.out / "steering.json"])]
        for path in written:
            if path is not None:
                write_json(path, steering.numbers())
        if self.out:
            write_text(self.out / "steering.md", table(steering))
            written.append(self.out / "steering.md")
        _say_written([path for path in written if path is not None])


@dataclass(frozen=True)
class Reliability(_Simulated):
    """Whether it holds: random pushes, random scenes, and damaged files for every reader. All failures should be zero."""

    out: Annotated[Path | None, optional("FOLDER", "none")] = None
    """Folder for what has been run, to go on after an interruption, and for the counts."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the counts."""
    pushes: Annotated[int | None, optional("INT", "10000, and 50 with --quick")] = None
    """Random pushes."""
    scenes: Annotated[int | None, optional("INT", "3000, and 16 with --quick")] = None
    """Random scenes."""
    mutants: Annotated[int | None, optional("INT", "5000, and 50 with --quick")] = None
    """Damaged files of each kind."""

    def run(self) -> None:
        import tempfile

        from dropsim.apps.cli.progress import bar
        from dropsim.files.tables import markdown
        from dropsim.research.evaluation.reliability import ReliabilityOptions, as_json, evaluate_reliability, table
        from dropsim.research.evaluation.report import write_json
        from dropsim.research.evaluation.trials import Body

        small = {"pushes": 50, "scenes": 16, "mutants": 50} if self.quick else {}
        given = {name: value for name in ("pushes", "scenes", "mutants") if (value := getattr(self, name)) is not None}
        options = ReliabilityOptions(**{**small, **given}, seed=self.seed)
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            found = evaluate_reliability(
                Body.of(64, self._prior), options, folder, workers=self._workers, watch=advance
            )
        print(markdown(table(found)))
        for one in found:
            for example in one.examples:
                print(example)
        written = [path for path in (self.json, self.out and self.out / "reliability.json") if path is not None]
        for path in written:
            write_json(path, as_json(found))
        _say_written(written)


@dataclass(frozen=True)
class Objects(_Simulated):
    """Walkers on ice, ramps, curbs and stairs, at walls and under loads; and random scenes of up to 20 objects and 4 people."""

    out: Annotated[Path | None, optional("FOLDER", "none")] = None
    """Folder for what has been run, to go on after an interruption, and for the table."""
    json: Annotated[Path | None, optional("FILE", "none")] = None
    """File for the numbers."""
    people: Annotated[int | None, optional("INT", "64, and 4 with --quick")] = None
    """People in each scene."""
    random_scenes: Annotated[int | None, optional("INT", "10000, and 16 with --quick")] = None
    """How many scenes are drawn."""
    samples: Annotated[int | None, optional("K", "the prior's own")] = None
    """Candidates of the prior a frame."""

    def run(self) -> None:
        import tempfile

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.objects import ObjectsProtocol, evaluate_objects, table
        from dropsim.research.evaluation.report import write_json, write_text
        from dropsim.research.evaluation.trials import Body

        given = {name: value for name in ("people", "random_scenes") if (value := getattr(self, name)) is not None}
        protocol = (ObjectsProtocol.quick if self.quick else ObjectsProtocol)(**given, seed=self.seed)
        body = Body.of(self.samples, self._prior)
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            found = evaluate_objects(body, protocol, folder, workers=self._workers, watch=advance)
        print(table(found))
        written = [self.json, *([] if self.out is None else [self.out / "objects.json"])]
        for path in written:
            if path is not None:
                write_json(path, found.numbers())
        if self.out:
            write_text(self.out / "objects.md", table(found))
            written.append(self.out / "objects.md")
        _say_written([path for path in written if path is not None])


@dataclass(frozen=True, kw_only=True)
class All(_Simulated):
    """Everything, on one page; after an interruption the same command goes on where it stopped."""

    out: Path
    """Folder for everything."""
    recordings: Recordings = None
    """A data set of `dropsim data build`; without one the prior is not judged by itself."""
    people: Annotated[int | None, optional("INT", "64")] = None
    """People of each kind, with all else in proportion: 250 motions for the paper are about four times as many."""
    docs: Annotated[Path | None, optional("FILE", "none")] = None
    """Page of documentation whose tables are filled."""

    def run(self) -> None:
        from dropsim.research.evaluation.summary import write_summary

        common = {name: getattr(self, name) for name in ("prior", "body", "seed", "quick", "workers")}
        n = self.people
        if n is not None and n < 1:
            raise ValueError(f"--people has to be 1 or more, and is {n}")
        some = {} if n is None else {"people": n}
        Behaviour(**common, **some, out=self.out / "behaviour").run()
        Response(**common, **some, out=self.out / "response").run()
        more = {} if n is None else some | {"seeds": max(2, n // 2)}
        Steering(**common, **more, out=self.out / "steering", recordings=self.recordings).run()
        if self.recordings is not None:
            few = {} if n is None else {"simulated": n, "rollouts": 4 * n}
            Prior(
                **common, **few, data=self.recordings, out=self.out / "prior", json=self.out / "prior" / "prior.json"
            ).run()
        Paper(**common, out=self.out / "paper", recordings=self.recordings, motions=None if n is None else 4 * n).run()
        fewer = {} if n is None or n >= 32 else {"seeds": 1, "responses": 1 + (n >= 16), "moments": (1.0,)}
        Push(**common, **fewer, out=self.out / "push").run()
        tried = {} if n is None else {"pushes": 150 * n, "scenes": 45 * n}
        Reliability(**common, **tried, out=self.out / "reliability").run()
        _say_written(write_summary(self.out, docs=self.docs))


@dataclass(frozen=True)
class Evaluate:
    """Measure the paper's claims, people who are pushed or steered, the simulator's settings, the motion prior, or cleaning.

    Examples: dropsim evaluate paper --out paper --recordings DATA; dropsim evaluate push --quick; dropsim evaluate push
    --help
    """

    what: tyro.conf.OmitArgPrefixes[
        tyro.conf.OmitSubcommandPrefixes[
            Annotated[Ablation, tyro.conf.subcommand("ablation")]
            | Annotated[All, tyro.conf.subcommand("all")]
            | Annotated[Behaviour, tyro.conf.subcommand("behaviour")]
            | Annotated[Clean, tyro.conf.subcommand("clean")]
            | Annotated[Objects, tyro.conf.subcommand("objects")]
            | Annotated[Paper, tyro.conf.subcommand("paper")]
            | Annotated[Prior, tyro.conf.subcommand("prior")]
            | Annotated[Push, tyro.conf.subcommand("push")]
            | Annotated[Reliability, tyro.conf.subcommand("reliability")]
            | Annotated[Response, tyro.conf.subcommand("response")]
            | Annotated[Steering, tyro.conf.subcommand("steering")]
        ]
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


def shipped_pose_prior() -> "PosePrior | None":
    """Return the pose model of the package, if it has one."""
    from dropsim.priors.pose import PosePrior

    try:
        return PosePrior.shipped()
    except ValueError as error:
        print(f"dropsim: poses are not judged: {error}", file=sys.stderr)
        return None
