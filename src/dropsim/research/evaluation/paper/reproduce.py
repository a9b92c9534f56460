"""The paper's results in one go: simulate, judge, draw, report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Case:
    """Claims as judged with one prior and one range of pushes."""

    options: PaperOptions
    claims: tuple[Claim, ...]

    @property
    def name(self) -> str:
        """Also the name of its folder."""
        return case_name(self.options)


def case_name(options: PaperOptions) -> str:
    """Name a prior and a range of pushes."""
    return f"{Path(options.prior).stem}-{options.newtons[0]:g}-{options.newtons[1]:g}N"


def reproduce_over(
    options: Sequence[PaperOptions], out: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None
) -> list[Case]:  # fmt: skip
    """Judge the claims for several priors and ranges of pushes, each in a folder of its own, and write how they compare.

    A single one is written into the folder itself.
    """
    if len(options) == 1:
        return [Case(options[0], reproduce(options[0], out, workers=workers, watch=watch))]
    cases = [
        Case(o, reproduce(o, out / case_name(o), chunks=out / "chunks", workers=workers, watch=watch)) for o in options
    ]
    rows = verdict_rows(cases)
    text = ("A number in each cell, then the verdict. The full reports are in the folders of that name.",)
    write_page(
        out / "report.html", TITLE, machine(), [Section("Every claim over both ranges of pushes", text, table=rows)]
    )
    claims = [
        asdict(claim) | {"prior": c.options.prior, "newtons": list(c.options.newtons)}
        for c in cases
        for claim in c.claims
    ]
    write_json(out / "claims.json", {"claims": claims, "motions": options[0].motions, "made_by": machine()})
    return cases


def verdict_rows(cases: Sequence[Case]) -> list[list[str]]:
    """Lay claims out by case, under a header."""
    rows = [["claim", "bound", *(case.name for case in cases)]]
    for same in zip(*(case.claims for case in cases), strict=True):
        cells = [claim.verdict if claim.number is None else f"{claim.number:.3g}, {claim.verdict}" for claim in same]
        rows.append([same[0].id, same[0].bound, *cells])
    return rows


def reproduce(
    options: PaperOptions, out: Path, *, chunks: Path | None = None, workers: int = 1, watch: Callable[[int, int], None] | None = None
) -> tuple[Claim, ...]:  # fmt: skip
    """Judge the claims and write figures, data, `claims.json` and `report.html` into a folder; an interrupted run goes on."""
    make_writable(out)
    # What can be wrong with the input shows before the long work.
    recorded = None if options.recordings is None else measure_recordings(options.recordings)
    plan = Plan.of(options)
    found = plan.by_part(run_chunks(plan.chunks, chunks or out / "chunks", workers=workers, watch=watch))
    speed = measure_speed(Body.of(options.num_samples, options.prior).simulator(), frames=options.speed_frames)
    claims = judge(found, recorded, speed)
    pictures = draw_all(found, recorded, speed, out)
    facts = machine() | {name: str(value) for name, value in asdict(options).items() if value is not None}
    variants = variant_rows(found)
    sections = [
        Section(c.claim, (c.finding + ".", f"Bound: {c.bound}."), c.verdict, pictures.get(c.id)) for c in claims
    ]
    sections.append(
        Section("Every form of the method", ("Medians over people of the mean over the last second.",), table=variants)
    )
    write_page(out / "report.html", TITLE, facts, sections)
    lost = {name: int((~arrays["finished"]).sum()) for name, arrays in found.items()}
    write_json(out / "claims.json", {"claims": [asdict(c) for c in claims], "diverged": lost, "made_by": facts})
    return tuple(claims)


def variant_rows(found: Mapping[str, Arrays]) -> Sequence[Sequence[str]]:
    """Lay out the outcomes of the same pushes under every form of the method."""
    rows: list[tuple[str, ...]] = [
        (
            "form",
            "motions",
            "diverged",
            "E_kin at the end [m^2]",
            "physics at the end [m^2]",
            "fell",
            "upright at the end",
        )
    ]
    for name, arrays in found.items():
        if "energy_kinematic" in arrays:
            numbers = (median(arrays, "kinematic", END), median(arrays, "physics", END))
            shares = (arrays["fallen"].any(axis=1).mean(), arrays["upright"][:, -1].mean())
            counts = (len(arrays["finished"]), int(np.sum(~arrays["finished"])))
            rows.append(
                (name, *map(str, counts), *(f"{n:.2e}" for n in numbers), *(f"{share:.0%}" for share in shares))
            )
    return rows
