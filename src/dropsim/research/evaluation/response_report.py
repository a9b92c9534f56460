"""The response protocol's tables and figures as files, next to what is published about real people."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from dropsim.files.tables import markdown, write_csv
from dropsim.research.evaluation.branches import SPEEDS
from dropsim.research.evaluation.plots import new_figure, save_figure
from dropsim.research.evaluation.report import Bound, Section, machine, number_rows, write_page, write_text
from dropsim.research.evaluation.response import Response, table, table_rows
from dropsim.research.evaluation.trials import FULL

WOJCIK = "Wojcik et al. 1999"
HOF = "Hof et al. 2010"
BOUNDS: Mapping[str, Bound] = {
    "lost_max": Bound(0, 0.25, "feet can brake by 1.5 to 2 m/s^2 without a step [m/s]"),
    "ledger_p99": Bound(0, 0.1, "unexplained impulse of half a second over the mass [m/s]"),
    "stepped_at_0_15": Bound(0, 0.1, "inside the base of support: nobody has to step below 0.2 N s/kg (after Hof)"),
    "stepped_at_0_7": Bound(0.8, 1, "outside the base of support: stepping begins at about 0.4 N s/kg (after Hof)"),
    "first_step_median": Bound(0.2, 0.6, f"a changed step from 0.3 s on [s] ({HOF})"),
    "fell_at_0_3": Bound(0, 0.01, "nobody"),
    "fell_at_0_7": Bound(0, 0.05, f"hardly anybody: older women recover from 0.87 N s/kg by one step ({WOJCIK})"),
    "fell_at_1_0": Bound(0, 0.2, f"older men recover from 1.27 N s/kg by one step ({WOJCIK})"),
    "fell_at_2_0": Bound(0.3, 0.95, f"beyond the 1.6 N s/kg that young women recover from by one step ({WOJCIK})"),
    "fell_walk_0_7": Bound(0, 0.03, f"recovered within two steps ({HOF})"),
    "pdp_fell": Bound(0, 0.02, "PDP's protocol"),
    "kicks_fell": Bound(0, 0.1, "kicks of 0.5 m/s every 2 s (BeyondMimic, ProtoMotions)"),
    "walk_perturb_fell": Bound(
        0, 0.02, "0 to 0.5 m/s every second for 15 s: BeyondMimic 0 %, Diffuse-CLoC 16 %, as cited by others"
    ),
    "getup_share": Bound(0.95, 1, "upright within 8 s"),
    "getup_ways": Bound(4, 1000, "clusters with 5 % of the people or more"),
    "getup_spin_max": Bound(0, 6, "[rad/s]"),
    "self_overlap_p99_mm": Bound(0, 10, "[mm]"),
    "trips.speed_kept": Bound(0.7, 2, "0.2 s after the catch"),
    "trips.fell": Bound(0, 1, "older adults tripped while walking: 10 of 61 (Pai et al., PMC3809767)"),
    "trips.hands_before_head": Bound(0.8, 1, "of forward falls"),
    "balls.mismatch_max": Bound(0, 0.01, "impulse on the person against that on the ball"),
    "balls.lost": Bound(-0.25, 0.25, "[m/s]"),
}
"""Bars of the main numbers, next to what real people do."""
LIMITS = ((0.87, "older women"), (1.27, "older men"), (1.6, "young women"))
"""Impulses from which people recover by one step [N s/kg], from their largest leans: v = l sin(lean) sqrt(g / l), l = 1
m."""
THRESHOLDS = ((0.2, "backward"), (0.4, "forward, sideways"))
"""Impulses at which the extrapolated centre of mass leaves the base of support (after Hof) [N s/kg]."""


def number_table(response: Response) -> str:
    """Return the main numbers in Markdown."""
    return markdown(number_rows(response.numbers, BOUNDS))


def write_response_report(response: Response, folder: Path) -> list[Path]:
    """Write the tables, the figure and a page, and return the files; JSON is the caller's."""
    paths = [folder / name for name in ("response.md", "response.csv", "response.png", "response.html")]
    whole = [cell for cell in response.cells if cell.direction is None]
    parts = {"By start and impulse, all directions": whole}
    for start in SPEEDS:
        parts[f"From {start}, by direction"] = [
            c for c in response.cells if c.direction is not None and (c.start, c.method) == (start, FULL)
        ]
    parts = {title: cells for title, cells in parts.items() if cells}
    tables = "\n".join(f"## {title}\n\n{table(cells)}" for title, cells in parts.items())
    write_text(paths[0], f"## The main numbers\n\n{number_table(response)}\n\n{tables}")
    if response.cells:
        write_csv(paths[1], list(asdict(response.cells[0])), [tuple(asdict(cell).values()) for cell in response.cells])
        _draw(response, paths[2])
    sections = [
        Section(
            "The main numbers",
            table=number_rows(response.numbers, BOUNDS),
            picture=paths[2] if response.cells else None,
        )
    ]
    sections += [Section(title, table=table_rows(cells)) for title, cells in parts.items()]
    write_page(
        paths[3],
        "What people do when pushed",
        machine() | {k: str(v) for k, v in asdict(response.protocol).items()},
        sections,
    )
    return [path for path in paths if path.exists()]


def _draw(response: Response, path: Path) -> None:
    """Falls and steps by impulse next to published limits, velocity lost by direction, and where first steps go."""
    figure, axes = new_figure(2, 2)
    whole = [cell for cell in response.cells if cell.direction is None]
    for (left, name), marks, title in (
        ((axes[0, 0], "fell"), LIMITS, "Fell; lines: real people's limits by one step"),
        ((axes[0, 1], "stepped"), THRESHOLDS, "Stepped; lines: stepping thresholds (after Hof)"),
    ):
        for method, start in dict.fromkeys((cell.method, cell.start) for cell in whole):
            if name == "stepped" and (method, start) != (FULL, "stand"):
                continue
            cells = sorted((c for c in whole if (c.method, c.start) == (method, start)), key=lambda c: c.impulse)
            label, style = (start, "-") if method == FULL else (f"{method}, {start}", ":")
            left.plot([c.impulse for c in cells], [getattr(c, name) for c in cells], style, marker=".", label=label)
        for at, who in marks:
            left.axvline(at, color="grey", linewidth=0.8, linestyle="--")
            left.text(at, 1.02, who, fontsize=6, ha="center")
        left.set(xlabel="impulse / mass [N s/kg]", ylabel="share of people", ylim=(-0.02, 1.08), title=title)
    lower = axes[1]
    for start in SPEEDS:
        own = [c for c in response.cells if c.direction is not None and (c.method, c.start) == (FULL, start)]
        impulses, lost, errors = ([getattr(c, name) for c in own] for name in ("impulse", "lost", "lost_error"))
        lower[0].errorbar(impulses, lost, errors, fmt=".", capsize=2, label=start, alpha=0.7)
    lower[0].axhspan(-0.25, 0.25, color="grey", alpha=0.15)
    lower[0].set(
        xlabel="impulse / mass [N s/kg]",
        ylabel="velocity lost [m/s]",
        title="Lost 0.1 s after the push, a dot a direction",
    )
    for degrees, places in sorted(response.placed.items()):
        lower[1].scatter(places[:, 0], places[:, 1], s=5, label=f"{degrees:g}°", alpha=0.6)
    lower[1].set(
        xlabel="to the right [m]", ylabel="ahead [m]", aspect="equal", title="First step of standing people, by push"
    )
    for panel in axes.flat:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=6, ncols=2)
    save_figure(figure, path, vector=True)
