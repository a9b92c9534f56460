"""`dropsim evaluate prior`: numbers, tables and figures on people that a model never saw."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from dropsim.pose_prior import PosePrior


@dataclass(frozen=True)
class Evaluate:
    """Measure the motion prior on a data set that `dropsim data build` made."""

    what: tyro.conf.Positional[Literal["prior"]]
    data: Path
    """Folder of the data set."""
    people: Literal["held-out", "all"] = "held-out"
    """Whose recordings: those kept out of training, or everybody's."""
    weights: Path | None = None
    """Weights of the prior; those of the package unless given."""
    json: Path | None = None
    """File for the numbers."""
    out: Path | None = None
    """Folder for the figures; none are drawn unless given."""
    card: Path | None = None
    """Model card whose table of measured quality is to be rewritten."""
    rollouts: int = 256
    """Sampled roll-outs."""
    seconds: float = 10.0
    """Length of a roll-out [s]."""
    seed: int = 0

    def run(self) -> None:
        """Measure, print the table and write what was asked for."""
        from dropsim.cli.progress import bar
        from dropsim.data.clips import load
        from dropsim.evaluation.card import fill_card, table
        from dropsim.evaluation.prior import PriorEvaluation, evaluate_prior
        from dropsim.files import atomic_path
        from dropsim.priors.cvae import CVAEPrior

        options = PriorEvaluation(rollouts=self.rollouts, seconds=self.seconds, seed=self.seed)
        prior = CVAEPrior.shipped() if self.weights is None else CVAEPrior.load(self.weights)
        clips = load(self.data, held_out=True if self.people == "held-out" else None)
        with bar("prior") as advance:
            report = evaluate_prior(prior, clips, options, advance, pose=shipped_pose_prior())
        print(table(report))
        if self.json:
            with atomic_path(self.json) as temporary:
                temporary.write_text(json.dumps(report.numbers(), indent=2) + "\n", encoding="utf-8")
            print(f"wrote {self.json}")
        if self.card:
            fill_card(self.card, report)
            print(f"wrote {self.card}")
        if self.out:
            from dropsim.evaluation.figures import draw_report

            for path in draw_report(report, self.out):
                print(f"wrote {path}")


def shipped_pose_prior() -> "PosePrior | None":
    """Return the pose model of the package, where it has one."""
    from dropsim.pose_prior import PosePrior

    try:
        return PosePrior.shipped()
    except ValueError as error:
        print(f"dropsim: poses are not judged: {error}", file=sys.stderr)
        return None
