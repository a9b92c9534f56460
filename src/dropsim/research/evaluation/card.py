"""The measured quality of a prior as a table, for the terminal and for the model card."""

from pathlib import Path

from dropsim.files.tables import markdown, shown
from dropsim.research.evaluation.prior import PriorReport
from dropsim.research.evaluation.report import write_text

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(report: PriorReport) -> str:
    """Return the main numbers in Markdown, rollouts next to the recordings that they start in."""
    numbers, step, options = report.numbers(), report.one_step, report.options
    back, back_own = report.recovery.returns, report.recovery.own_returns

    def both(name: str, label: str, form: str) -> tuple[str, str, str]:
        made, own = (
            shown(getattr(quality, name), form, otherwise="not measured")
            for quality in (report.generated, report.recorded)
        )
        return label, made, own

    def alone(label: str, value: float | None, form: str = ".3g", floor: str = "") -> tuple[str, str, str]:
        return label, "never" if value == float("inf") else shown(value, form, otherwise="not measured"), floor

    best = f"best of {options.num_samples}"
    done = report.activity.get("rolled_out", {})
    rows = [
        ("measure", "prior", "recordings, or what to compare with"),
        alone(
            "one-step joint error of the mode [mm]", step.mode_mm, ".2f", f"{step.coasting_mm:.2f} (constant velocity)"
        ),
        alone(f"one-step joint error, {best} [mm]", step.best_mm, ".2f"),
        alone("ratio to constant velocity, mode", numbers["one_step_ratio_mode"], floor="1"),
        alone(f"ratio to constant velocity, {best}", numbers["one_step_ratio_best"], floor="1"),
        both("human_share", f"human after {options.seconds:g} s", ".1%"),
        both("human_in_range_share", "human, and never in an unnatural pose for 1 s", ".1%"),
        both("upright_share", "upright at the end", ".1%"),
        both("out_of_range_percent", "frames with a pose out of range [%]", ".3g"),
        both("skate", "foot skate, median [m/s]", ".3f"),
        both("skate_mean", "foot skate, mean [m/s]", ".3f"),
        alone("ratio of median foot skate", numbers["skate_ratio_alone"], floor="1"),
        both("penetration_mm", "penetration [mm]", ".2f"),
        both("float_mm", "float [mm]", ".1f"),
        both("jerk", "jerk [m/s^3]", ".0f"),
        both("standing", "standing, below 0.2 m/s", ".1%"),
        both("walking", "walking, 0.2 to 2.2 m/s", ".1%"),
        both("running", "running, above 2.2 m/s", ".1%"),
        both("turning", "turning, above 1 rad/s", ".1%"),
        both("height_drift", "change of pelvis height, first to last second [m]", "+.3f"),
        alone(
            "Frechet distance of 1 s windows",
            report.frechet,
            ".3g",
            f"{shown(report.frechet_floor, otherwise='not measured')} (their even and odd seconds)",
        ),
        *(
            alone(f"speed bias at {b.speeds} m/s [m/s^2]", b.bias, "+.2f", f"standard error {b.error:.2f}")
            for b in report.speed_bias
            if b.frames
        ),
        *(
            (f"in the simulator, {name}", f"{did:.1%}", f"{report.activity['recorded'][name]:.1%}")
            for name, did in done.items()
        ),
        alone(f"diversity of {options.diversity_seconds:g} s from one start (APD) [m]", report.diversity_m, ".3f"),
        alone("back within 2 s after a shove", back.back_share, ".1%", f"{back.calm_share:.1%} (without a shove)"),
        alone("put out of the distribution at all", back.left_share, ".1%"),
        alone("median time to be back [s]", back.median_seconds),
        alone(
            "back, by the limit of each category",
            back_own.back_share,
            ".1%",
            f"{back_own.calm_share:.1%} (without a shove)",
        ),
        alone("put out at all, by that limit", back_own.left_share, ".1%"),
        alone("median time to be back, by that limit [s]", back_own.median_seconds),
        alone("human after a shove", report.recovery.human_share, ".1%"),
    ]
    return markdown(rows)


def fill_card(path: Path, report: PriorReport) -> None:
    """Rewrite the marked block of a model card with what was measured, and leave the rest as it is."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no block to fill: put the lines {BEGIN} and {END} into it")
    about = (
        f"Measured by `dropsim evaluate prior` (seed {report.options.seed}) on {len(report.people)} people ({', '.join(report.people)}), "
        f"{report.minutes:.1f} min of recordings: {report.options.rollouts} sampled rollouts of {report.options.seconds:g} s."
    )
    write_text(path, f"{before}{BEGIN}\n{about}\n\n{table(report)}\n{END}{after}")
