"""The paper's results in one go: simulate, judge, draw, report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dropsim.research.evaluation.bench import measure_speed
from dropsim.research.evaluation.chunks import Arrays, make_writable, run_chunks
from dropsim.research.evaluation.paper.claims import END, Claim, judge, median
from dropsim.research.evaluation.paper.figures import draw_all
from dropsim.research.evaluation.paper.plan import PaperOptions, Plan
from dropsim.research.evaluation.recordings import measure_recordings
from dropsim.research.evaluation.report import Section, machine, write_json, write_page
from dropsim.research.evaluation.trials import Body

TITLE = "DROP's results, measured again"


def reproduce(
    options: PaperOptions, out: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None
) -> tuple[Claim, ...]:  # fmt: skip
    """Judge the eight claims and write figures, data, `claims.json` and `report.html` into a folder; an interrupted run goes on."""
    make_writable(out)
    # What can be wrong with the input shows before the long work.
    recorded = None if options.recordings is None else measure_recordings(options.recordings)
    plan = Plan.of(options)
    found = plan.by_part(run_chunks(plan.chunks, out / "chunks", workers=workers, watch=watch))
    speed = measure_speed(Body.of(options.num_samples, options.prior).simulator(), frames=options.speed_frames)
    claims = judge(found, recorded, speed)
    pictures = draw_all(found, recorded, speed, out)
    facts = machine() | {name: str(value) for name, value in asdict(options).items() if value is not None}
    variants = variant_rows(found)
    sections = [Section(c.claim, (c.finding + ".", f"Bound: {c.bound}."), c.verdict, pictures.get(c.id)) for c in claims]
    sections.append(Section("Every form of the method", ("Medians over people of the mean over the last second.",), table=variants))
    write_page(out / "report.html", TITLE, facts, sections)
    lost = {name: int((~arrays["finished"]).sum()) for name, arrays in found.items()}
    write_json(out / "claims.json", {"claims": [asdict(c) for c in claims], "diverged": lost, "made_by": facts})
    return tuple(claims)


def variant_rows(found: Mapping[str, Arrays]) -> Sequence[Sequence[str]]:
    """Lay out the outcomes of the same pushes under every form of the method."""
    rows: list[tuple[str, ...]] = [
        ("form", "motions", "diverged", "E_kin at the end [m^2]", "physics at the end [m^2]", "fell", "upright at the end")
    ]
    for name, arrays in found.items():
        if "energy_kinematic" in arrays:
            numbers = (median(arrays, "kinematic", END), median(arrays, "physics", END))
            shares = (arrays["fallen"].any(axis=1).mean(), arrays["upright"][:, -1].mean())
            counts = (len(arrays["finished"]), int(np.sum(~arrays["finished"])))
            rows.append((name, *map(str, counts), *(f"{n:.2e}" for n in numbers), *(f"{share:.0%}" for share in shares)))
    return rows
