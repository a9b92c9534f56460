"""Pictures of a prior's evaluation."""

from collections import Counter
from pathlib import Path

import torch

from dropsim.physics import metrics
from dropsim.render import contact_sheet
from dropsim.research.evaluation.recovery import WITHIN
from dropsim.research.evaluation.plots import new_figure, save_figure
from dropsim.research.evaluation.prior import PriorReport, person

SHEET_ROWS = 10
SHEET_WORST = 3
"""Of the rows, how many show the ugliest roll-outs."""


def draw_report(report: PriorReport, out: Path) -> list[Path]:
    """Draw speeds, come-back curves and a contact sheet into a folder and return the files."""
    paths = [out / name for name in ("speeds.png", "come_back.png", "rollouts.png")]
    _draw_speeds(report, paths[0])
    _draw_come_back(report, paths[1])
    _draw_sheet(report, paths[2])
    return paths


def _draw_speeds(report: PriorReport, path: Path) -> None:
    """Histograms of walking speed and turning rate, roll-outs beside recordings."""
    figure, ((left, right),) = new_figure(1, 2)
    finite = [person(report.rollouts, i) for i in range(len(report.rollouts.root)) if report.rollouts.joints[i].isfinite().all()]
    for motions, label in ((finite, "roll-outs"), (report.recordings, "recordings")):
        speed, turn = (torch.cat([measure(m) for m in motions]).double() for measure in (metrics.root_speed, metrics.turn_rate))
        for axes, values, top in ((left, speed, 5.0), (right, turn.abs(), 4.0)):
            axes.hist(values.clamp(max=top).numpy(), bins=50, range=(0, top), density=True, histtype="step", label=label)
    left.set(xlabel="speed of the pelvis over half a second [m/s]", ylabel="density", yscale="log")
    right.set(xlabel="turning rate over half a second [rad/s]", yscale="log")
    left.legend()
    save_figure(figure, path)


def _draw_come_back(report: PriorReport, path: Path) -> None:
    """One-step energy over time with and without a shove: median, and the range of the middle four fifths."""
    back = report.come_back
    figure, ((axes,),) = new_figure(1, 1)
    time = torch.arange(back.shoved.shape[-1]) / report.rollouts.fps
    for curves, label in ((back.shoved, "shoved at 0 s"), (back.single_threaded, "not shoved")):
        low, middle, high = (curves.double().quantile(q, dim=0).clamp(1e-9, 1e9).numpy() for q in (0.1, 0.5, 0.9))
        (line,) = axes.plot(time.numpy(), middle, label=label)
        axes.fill_between(time.numpy(), low, high, color=line.get_color(), alpha=0.2)
    axes.axhline(back.limit, color="black", linewidth=0.8, linestyle="--", label="95th percentile, not shoved")
    axes.axvline(WITHIN, color="grey", linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="one-step energy [m²]", yscale="log")
    axes.set(title=f"{back.returns.back_share:.0%} are back within {WITHIN:g} s")
    axes.legend()
    save_figure(figure, path)


def ugliness(report: PriorReport) -> torch.Tensor:
    """Return how ugly each roll-out is: its penetration, fastest joint and jerk, each beside what is a lot for a human."""
    motion = report.rollouts
    fastest = motion.joints.diff(dim=-3).norm(dim=-1).amax((-1, -2)) * motion.fps
    jerk = metrics.jerk(motion) / max(report.recorded.jerk, 1e-9)
    score = metrics.penetration_mm(motion) / 20 + fastest / metrics.HUMAN_SPEED + jerk / 3
    return score.nan_to_num(nan=torch.inf)


def _turn(turns: Counter[str], name: str) -> int:
    """Count how often a name came before, and that it comes again."""
    turns[name] += 1
    return turns[name]


def _draw_sheet(report: PriorReport, path: Path) -> None:
    """The ugliest roll-outs that can be drawn, then others spread over the categories."""
    score = ugliness(report)
    order = [i for i in score.argsort(descending=True).tolist() if report.rollouts.joints[i].abs().amax() < 1e4]
    worst = order[:SHEET_WORST]
    # One from each category before a second from any.
    turns = Counter[str]()
    rest = sorted(((_turn(turns, report.categories[i]), i) for i in sorted(order[SHEET_WORST:])), key=lambda pair: pair[0])
    chosen = [*worst, *(i for _, i in rest[: SHEET_ROWS - len(worst)])]
    labels = []
    for i in chosen:
        one = person(report.rollouts, i)
        human = "human" if metrics.human(one) else "not human"
        ugly = f"ugliest {worst.index(i) + 1}, " if i in worst else ""
        labels.append(f"roll-out {i}: {ugly}from {report.categories[i]}, {float(metrics.root_speed(one).mean()):.2f} m/s, {human}")
    contact_sheet([person(report.rollouts, i) for i in chosen], path, labels=labels)
