"""`dropsim evaluate`: numbers, tables and figures on a prior, the paper's claims, and people who are pushed."""

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from dropsim.priors.pose import PosePrior
    from dropsim.research.evaluation.push import PushProtocol


SHARED = ("weights", "out", "seed")
"""Options of all that can be evaluated."""
OWN = {
    "ablation": ("motions", "quick", "workers"),
    "paper": ("motions", "samples", "recordings", "quick", "workers"),
    "prior": ("data", "people", "json", "card", "rollouts", "seconds"),
    "push": (
        "newtons", "directions", "parts", "starts", "moments", "seeds", "responses", "samples", "recordings", "json", "quick", "workers",
    ),
}  # fmt: skip
"""Options of each."""


@dataclass(frozen=True)
class Evaluate:
    """Measure the motion prior on a data set that `dropsim data build` made, the paper's claims, or people who are pushed.

    Examples: dropsim evaluate paper --out paper --recordings DATA; dropsim evaluate prior --data DATA --json quality.json
    """

    what: tyro.conf.Positional[Literal["ablation", "paper", "prior", "push"]]
    """paper: its eight results, measured again; prior: rollouts next to recordings; push: recovery and falls by force and direction;
    ablation: what each setting does to quality and speed."""
    data: Path | None = None
    """Folder of the data set; for the prior."""
    people: Literal["held-out", "all"] = "held-out"
    """Whose recordings: those kept out of training, or everybody's."""
    weights: Path | None = None
    """Weights of the prior; those of the package unless given."""
    json: Path | None = None
    """File for the numbers."""
    out: Path | None = None
    """Folder for figures and tables; none are written unless given."""
    card: Path | None = None
    """Model card whose table of measured quality is to be rewritten; for the prior."""
    rollouts: int = 256
    """Sampled rollouts; for the prior."""
    seconds: float = 10.0
    """Length of a rollout [s]; for the prior."""
    newtons: tuple[float, ...] | None = None
    """Forces [N]; for pushes, 100, 200, 300, 450 and 700 unless given."""
    directions: tuple[str, ...] | None = None
    """Where they drive people: front, left, back, right, or degrees from the front; for pushes, every 45 degrees unless given."""
    parts: tuple[str, ...] | None = None
    """Where people are pushed: pelvis, torso, hand, foot, or a joint's name; the torso unless given."""
    starts: tuple[str, ...] | None = None
    """What people do at the start; for pushes, walk, run and stand unless given."""
    moments: tuple[float, ...] | None = None
    """When they are pushed, in their stride [s]; 1 and 1.5 unless given."""
    seeds: int | None = None
    """States of each start; for pushes, 2 unless given."""
    responses: int | None = None
    """Times that each is pushed in the same way; for pushes, 2 unless given."""
    samples: int | None = None
    """K, candidates of the prior a frame, for the paper and for pushes; 64 unless given, 8 with --quick."""
    motions: int | None = None
    """Pushed motions; 250 unless given for the paper, and 50 for the ablation."""
    recordings: Path | None = None
    """Folder of recordings, a data set or BVH and AMASS files, to compare with; for the paper and for pushes."""
    quick: bool = False
    """A small version within about half a minute; for the paper, pushes and the ablation."""
    workers: int | None = None
    """Processes; as many as there are cores unless given. They change no number."""
    seed: int = 0

    def run(self) -> None:
        """Measure, print the table and write what was asked for."""
        from dropsim.apps.cli.progress import tell_of_compiling

        self._refuse_strangers()
        if self.out is None and self.what in ("ablation", "paper"):
            raise ValueError(f"evaluate {self.what} writes figures and tables: give a folder with --out")
        if self.data is None and self.what == "prior":
            raise ValueError("evaluate prior needs recordings: give a folder made by `dropsim data build` with --data")
        tell_of_compiling()
        {"ablation": self._ablation, "paper": self._paper, "prior": self._prior, "push": self._push}[self.what]()

    def _refuse_strangers(self) -> None:
        """Refuse options that would change nothing here."""
        given = [f.name for f in fields(self) if f.name not in (*SHARED, *OWN[self.what], "what") and getattr(self, f.name) != f.default]
        if given:
            places = " or ".join(f"`evaluate {what}`" for what, names in OWN.items() if given[0] in names)
            raise ValueError(f"evaluate {self.what} does nothing with --{given[0]}, which is for {places}: leave it out")

    def _paper(self) -> None:
        assert self.out is not None
        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.paper.plan import PaperOptions
        from dropsim.research.evaluation.paper.reproduce import reproduce

        given = {"motions": self.motions, "num_samples": self.samples, "recordings": self.recordings, "weights": self.weights}
        kept = {name: value for name, value in given.items() if value is not None}
        options = PaperOptions.quick(**kept, seed=self.seed) if self.quick else PaperOptions(**kept, seed=self.seed)
        with bar("chunks") as advance:
            claims = reproduce(options, self.out, workers=self._workers, watch=advance)
        for claim in claims:
            print(claim.line)
        print(f"wrote {self.out / 'report.html'}, {self.out / 'claims.json'} and the figures with their data")

    def _ablation(self) -> None:
        assert self.out is not None
        from dataclasses import replace

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.ablation import AblationOptions, evaluate_ablation
        from dropsim.research.evaluation.ablation_report import table, write_ablation_report

        options = replace(AblationOptions.quick() if self.quick else AblationOptions(), seed=self.seed, prior=self.weights)
        options = options if self.motions is None else replace(options, motions=self.motions)
        with bar("chunks") as advance:
            rows = evaluate_ablation(options, self.out / "chunks", workers=self._workers, watch=advance)
        print(table(rows))
        for path in write_ablation_report(rows, options, self.out):
            print(f"wrote {path}")

    @property
    def _workers(self) -> int:
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    def _push(self) -> None:
        import tempfile
        from dataclasses import asdict

        from dropsim.apps.cli.progress import bar
        from dropsim.research.evaluation.push import evaluate_push, table
        from dropsim.research.evaluation.push_report import write_push_report
        from dropsim.research.evaluation.recordings import recorded_windows
        from dropsim.research.evaluation.report import write_json
        from dropsim.research.evaluation.trials import Body

        protocol, body = self._protocol(), Body.of(self.samples or (8 if self.quick else 64), self.weights)
        recorded = None if self.recordings is None else recorded_windows(self.recordings, protocol.starts)
        with tempfile.TemporaryDirectory() as scratch, bar("chunks") as advance:
            folder = Path(scratch) if self.out is None else self.out / "chunks"
            report = evaluate_push(body, protocol, folder, workers=self._workers, watch=advance, recorded=recorded)
        print(table([*report.grouped("newtons", method=None), *report.grouped("newtons", "direction")]))
        if self.json:
            write_json(self.json, [asdict(cell) for cell in report.cells])
            print(f"wrote {self.json}")
        if self.out:
            write_json(self.out / "push.json", {"cells": [asdict(cell) for cell in report.cells], "protocol": asdict(protocol)})
            for path in (self.out / "push.json", *write_push_report(report, self.out)):
                print(f"wrote {path}")

    def _protocol(self) -> "PushProtocol":
        from dropsim.research.evaluation.push import PushProtocol

        names = ("newtons", "directions", "parts", "starts", "moments", "seeds", "responses")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        small = {"newtons": (150.0, 450.0), "directions": ("front", "left", "back", "right"), "starts": ("walk", "stand"),
                 "moments": (1.0,), "seeds": 1, "get_up_seconds": 3.0}  # fmt: skip
        return PushProtocol(**{**(small if self.quick else {}), **given}, seed=self.seed)

    def _prior(self) -> None:
        from dropsim.apps.cli.progress import bar
        from dropsim.motion.clips import load
        from dropsim.priors.cvae import CVAEPrior
        from dropsim.research.evaluation.card import fill_card, table
        from dropsim.research.evaluation.prior import PriorEvaluation, evaluate_prior
        from dropsim.research.evaluation.report import write_json

        assert self.data is not None
        prior = CVAEPrior.shipped() if self.weights is None else CVAEPrior.load(self.weights)
        options = PriorEvaluation(rollouts=self.rollouts, seconds=self.seconds, seed=self.seed)
        clips = load(self.data, held_out=True if self.people == "held-out" else None)
        with bar("prior") as advance:
            report = evaluate_prior(prior, clips, options, advance, pose=shipped_pose_prior())
        print(table(report))
        if self.json:
            write_json(self.json, report.numbers())
            print(f"wrote {self.json}")
        if self.card:
            fill_card(self.card, report)
            print(f"wrote {self.card}")
        if self.out:
            from dropsim.research.evaluation.figures import draw_report

            for path in draw_report(report, self.out):
                print(f"wrote {path}")


def shipped_pose_prior() -> "PosePrior | None":
    """Return the pose model of the package, if it has one."""
    from dropsim.priors.pose import PosePrior

    try:
        return PosePrior.shipped()
    except ValueError as error:
        print(f"dropsim: poses are not judged: {error}", file=sys.stderr)
        return None
