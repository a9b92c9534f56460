"""The measured quality of a prior as a table, for the terminal and for the model card."""

from pathlib import Path

from dropsim.files.atomic import atomic_path
from dropsim.research.evaluation.prior import PriorReport

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(report: PriorReport) -> str:
    """Return the main numbers in Markdown, roll-outs beside the recordings that they start in."""
    numbers, step, made, own, options = report.numbers(), report.one_step, report.generated, report.recorded, report.options
    back, back_own = report.come_back.returns, report.come_back.own_returns
    rows = [
        ("one-step joint error of the mode [mm]", f"{step.mode_mm:.2f}", f"{step.coasting_mm:.2f} (constant velocity)"),
        (f"one-step joint error, best of {options.num_samples} [mm]", f"{step.best_mm:.2f}", ""),
        ("ratio to constant velocity, mode", _number(numbers["one_step_ratio_mode"]), "1"),
        (f"ratio to constant velocity, best of {options.num_samples}", _number(numbers["one_step_ratio_best"]), "1"),
        (f"human after {options.seconds:g} s", f"{made.human_share:.1%}", f"{own.human_share:.1%}"),
        ("human, and never in an unnatural pose for 1 s", _percent(made.human_in_range_share), _percent(own.human_in_range_share)),
        ("upright at the end", f"{made.upright_share:.1%}", f"{own.upright_share:.1%}"),
        ("frames with a pose out of range [%]", _number(made.out_of_range_percent), _number(own.out_of_range_percent)),
        ("foot skate, median [m/s]", f"{made.skate:.3f}", f"{own.skate:.3f}"),
        ("foot skate, mean [m/s]", f"{made.skate_mean:.3f}", f"{own.skate_mean:.3f}"),
        ("ratio of median foot skate", _number(numbers["skate_ratio"]), "1"),
        ("penetration [mm]", f"{made.penetration_mm:.2f}", f"{own.penetration_mm:.2f}"),
        ("float [mm]", f"{made.float_mm:.1f}", f"{own.float_mm:.1f}"),
        ("jerk [m/s^3]", f"{made.jerk:.0f}", f"{own.jerk:.0f}"),
        ("standing, below 0.2 m/s", f"{made.standing:.1%}", f"{own.standing:.1%}"),
        ("walking, 0.2 to 2.2 m/s", f"{made.walking:.1%}", f"{own.walking:.1%}"),
        ("running, above 2.2 m/s", f"{made.running:.1%}", f"{own.running:.1%}"),
        ("turning, above 1 rad/s", f"{made.turning:.1%}", f"{own.turning:.1%}"),
        ("change of pelvis height, first to last second [m]", f"{made.height_drift:+.3f}", f"{own.height_drift:+.3f}"),
        ("Frechet distance of 1 s windows", _number(report.frechet), f"{_number(report.frechet_floor)} (their even and odd seconds)"),
        (f"diversity of {options.diversity_seconds:g} s from one start (APD) [m]", f"{report.diversity_m:.3f}", ""),
        ("back within 2 s after a shove", f"{back.back_share:.1%}", f"{back.calm_share:.1%} (without a shove)"),
        ("put out of the distribution at all", f"{back.left_share:.1%}", ""),
        ("median time to be back [s]", _number(back.median_seconds), ""),
        ("back, by the limit of each category", f"{back_own.back_share:.1%}", f"{back_own.calm_share:.1%} (without a shove)"),
        ("put out at all, by that limit", f"{back_own.left_share:.1%}", ""),
        ("median time to be back, by that limit [s]", _number(back_own.median_seconds), ""),
        ("human after a shove", f"{report.come_back.human_share:.1%}", ""),
    ]
    head = ["| measure | prior | recordings, or what to compare with |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {name} | {value} | {floor} |" for name, value, floor in rows)])


def _percent(value: float) -> str:
    return "not measured" if value != value else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "not measured" if value is None or value != value else "never" if value == float("inf") else f"{value:.3g}"


def fill_card(path: Path, report: PriorReport) -> None:
    """Rewrite the marked block of a model card with what was measured, and leave the rest as it is."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no block to fill: put the lines {BEGIN} and {END} into it")
    about = (
        f"Measured by `dropsim evaluate prior` (seed {report.options.seed}) on {len(report.people)} people ({', '.join(report.people)}), "
        f"{report.minutes:.1f} min of recordings: {report.options.rollouts} sampled roll-outs of {report.options.seconds:g} s."
    )
    with atomic_path(path) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n{about}\n\n{table(report)}\n{END}{after}", encoding="utf-8")
