"""`dropsim evaluate`: numbers, tables and figures that judge a prior, the paper's claims, and people who are pushed."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from dropsim.pose_prior import PosePrior
    from dropsim.priors.cvae import CVAEPrior


@dataclass(frozen=True)
class Evaluate:
    """Measure the motion prior on a data set that `dropsim data build` made, the paper's claims, or people who are pushed.

    Examples: dropsim evaluate paper --out paper --recordings DATA; dropsim evaluate prior --data DATA --json quality.json
    """

    what: tyro.conf.Positional[Literal["paper", "prior", "push"]]
    """paper: its eight results, measured again; prior: roll-outs beside recordings; push: recovery and falls by force and direction."""
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
    """Sampled roll-outs; for the prior."""
    seconds: float = 10.0
    """Length of a roll-out [s]; for the prior."""
    seeds: int = 8
    """People of each start, force and direction; for pushes."""
    newtons: tuple[float, ...] = (100.0, 200.0, 300.0, 450.0, 700.0)
    """Forces [N]; for pushes."""
    part: str = "torso"
    """Where people are pushed: pelvis, torso, hand, foot, or a joint's name."""
    samples: int | None = None
    """K, candidates of the prior a frame; 64 unless given, 8 with --quick."""
    motions: int | None = None
    """Pushed motions; for the paper, 250 unless given."""
    recordings: Path | None = None
    """Folder of recordings, a data set or BVH and AMASS files, that the root wrench is compared with; for the paper."""
    quick: bool = False
    """A small version within half a minute; for the paper."""
    workers: int | None = None
    """Processes; as many as there are cores unless given. They change no number."""
    seed: int = 0

    def run(self) -> None:
        """Measure, print the table and write what was asked for."""
        if self.what == "paper":
            return self._paper()
        from dropsim.priors.cvae import CVAEPrior

        prior = CVAEPrior.shipped() if self.weights is None else CVAEPrior.load(self.weights)
        if self.what == "push":
            self._push(prior)
        else:
            self._prior(prior)

    def _paper(self) -> None:
        if self.out is None:
            raise ValueError("evaluate paper writes figures and tables: give a folder with --out")
        from dropsim.cli.progress import bar
        from dropsim.evaluation.paper.plan import PaperOptions
        from dropsim.evaluation.paper.reproduce import reproduce

        given = {"motions": self.motions, "num_samples": self.samples, "recordings": self.recordings, "weights": self.weights}
        kept = {name: value for name, value in given.items() if value is not None}
        options = PaperOptions.quick(**kept, seed=self.seed) if self.quick else PaperOptions(**kept, seed=self.seed)
        with bar("chunks") as advance:
            claims = reproduce(options, self.out, workers=self._workers, watch=advance)
        for claim in claims:
            print(claim.line)
        print(f"wrote {self.out / 'report.html'}, {self.out / 'claims.json'} and the figures with their data")

    @property
    def _workers(self) -> int:
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    def _push(self, prior: "CVAEPrior") -> None:
        from dataclasses import asdict

        from dropsim.cli.progress import bar
        from dropsim.energies.physical import RangeOfMotion
        from dropsim.evaluation.push import PushProtocol, evaluate_push, table
        from dropsim.pose_prior import PosePrior
        from dropsim.simulator import Simulator

        protocol = PushProtocol(newtons=self.newtons, part=self.part, seeds=self.seeds, seed=self.seed)
        simulator = Simulator(prior, range_of_motion=RangeOfMotion(PosePrior.shipped()), num_samples=self.samples or 64)
        with bar("pushes") as advance:
            cells = evaluate_push(simulator, protocol, advance)
        print(table(cells))
        if self.json:
            self._write(self.json, json.dumps([asdict(cell) for cell in cells], indent=2) + "\n")
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            self._write(self.out / "push.md", table(cells))

    def _prior(self, prior: "CVAEPrior") -> None:
        from dropsim.cli.progress import bar
        from dropsim.data.clips import load
        from dropsim.evaluation.card import fill_card, table
        from dropsim.evaluation.prior import PriorEvaluation, evaluate_prior

        if self.data is None:
            raise ValueError("evaluate prior needs recordings: give a folder made by `dropsim data build` with --data")
        options = PriorEvaluation(rollouts=self.rollouts, seconds=self.seconds, seed=self.seed)
        clips = load(self.data, held_out=True if self.people == "held-out" else None)
        with bar("prior") as advance:
            report = evaluate_prior(prior, clips, options, advance, pose=shipped_pose_prior())
        print(table(report))
        if self.json:
            self._write(self.json, json.dumps(report.numbers(), indent=2) + "\n")
        if self.card:
            fill_card(self.card, report)
            print(f"wrote {self.card}")
        if self.out:
            from dropsim.evaluation.figures import draw_report

            for path in draw_report(report, self.out):
                print(f"wrote {path}")

    def _write(self, path: Path, text: str) -> None:
        from dropsim.files import atomic_path

        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


def shipped_pose_prior() -> "PosePrior | None":
    """Return the pose model of the package, where it has one."""
    from dropsim.pose_prior import PosePrior

    try:
        return PosePrior.shipped()
    except ValueError as error:
        print(f"dropsim: poses are not judged: {error}", file=sys.stderr)
        return None
