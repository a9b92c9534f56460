"""Pictures of a prior's evaluation."""

from collections import Counter
from pathlib import Path

import numpy as np

from dropsim.physics import metrics
from dropsim.render import contact_sheet
from dropsim.research.evaluation.plots import new_figure, save_figure
from dropsim.research.evaluation.prior import PriorReport, person
from dropsim.research.evaluation.recovery import WITHIN

SHEET_ROWS = 10
SHEET_WORST = 3
"""Of the rows, how many show the ugliest rollouts."""


def draw_report(report: PriorReport, out: Path) -> list[Path]:
    """Draw speeds, recovery curves and a contact sheet into a folder and return the files."""
    paths = [out / name for name in ("speeds.png", "come_back.png", "rollouts.png")]
    _draw_speeds(report, paths[0])
    _draw_recovery(report, paths[1])
    _draw_sheet(report, paths[2])
    return paths


def _draw_speeds(report: PriorReport, path: Path) -> None:
    """Histograms of walking speed and turning rate, of rollouts and of recordings."""
    figure, ((left, right),) = new_figure(1, 2)
    finite = [
        person(report.rollouts, i) for i, joints in enumerate(report.rollouts.joints) if np.isfinite(joints).all()
    ]
    for motions, label in ((finite, "rollouts"), (report.recordings, "recordings")):
        speed, turn = (
            np.concatenate([measure(m) for m in motions]) for measure in (metrics.root_speed, metrics.turn_rate)
        )
        for axes, values, top in ((left, speed, 5.0), (right, np.abs(turn), 4.0)):
            axes.hist(np.minimum(values, top), bins=50, range=(0, top), density=True, histtype="step", label=label)
    left.set(xlabel="speed of the pelvis over half a second [m/s]", ylabel="density", yscale="log")
    right.set(xlabel="turning rate over half a second [rad/s]", yscale="log")
    left.legend()
    save_figure(figure, path)


def _draw_recovery(report: PriorReport, path: Path) -> None:
    """One-step energy over time with and without a shove: median, and the range of the middle four fifths."""
    back = report.recovery
    figure, ((axes,),) = new_figure(1, 1)
    time = np.arange(back.shoved.shape[-1]) / report.rollouts.fps
    for curves, label in ((back.shoved, "shoved at 0 s"), (back.calm, "not shoved")):
        low, middle, high = np.quantile(np.clip(curves, 1e-9, 1e9), (0.1, 0.5, 0.9), axis=0)
        (line,) = axes.plot(time, middle, label=label)
        axes.fill_between(time, low, high, color=line.get_color(), alpha=0.2)
    axes.axhline(back.limit, color="black", linewidth=0.8, linestyle="--", label="95th percentile, not shoved")
    axes.axvline(WITHIN, color="grey", linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="one-step energy [m²]", yscale="log")
    axes.set(title=f"{back.returns.back_share:.0%} are back within {WITHIN:g} s")
    axes.legend()
    save_figure(figure, path)


@np.errstate(invalid="ignore")
def ugliness(report: PriorReport) -> np.ndarray:
    """Return how ugly each rollout is: its penetration, fastest joint and jerk, each over what is a lot for a human."""
    motion = report.rollouts
    fastest = np.linalg.norm(np.diff(motion.joints, axis=-3), axis=-1).max((-1, -2)) * motion.fps
    jerk = metrics.jerk(motion) / max(report.recorded.jerk, 1e-9)
    score = metrics.penetration_mm(motion) / 20 + fastest / metrics.HUMAN_SPEED + jerk / 3
    return np.nan_to_num(score, nan=np.inf, posinf=np.inf)


def _draw_sheet(report: PriorReport, path: Path) -> None:
    """The ugliest rollouts that can be drawn, then others spread over the categories."""
    drawable = np.abs(report.rollouts.joints).max((-1, -2, -3)) < 1e4
    order = [int(i) for i in np.argsort(-ugliness(report)) if drawable[i]]
    worst = order[:SHEET_WORST]
    # One from each category before a second from any.
    turns = Counter[str]()
    rest = []
    for i in sorted(order[SHEET_WORST:]):
        turns[report.categories[i]] += 1
        rest.append((turns[report.categories[i]], i))
    chosen = [*worst, *(i for _, i in sorted(rest)[: SHEET_ROWS - len(worst)])]
    labels = []
    for i in chosen:
        one = person(report.rollouts, i)
        human = "human" if metrics.human(one) else "not human"
        ugly = f"ugliest {worst.index(i) + 1}, " if i in worst else ""
        labels.append(
            f"rollout {i}: {ugly}from {report.categories[i]}, {float(metrics.root_speed(one).mean()):.2f} m/s, {human}"
        )
    contact_sheet([person(report.rollouts, i) for i in chosen], path, labels=labels)
