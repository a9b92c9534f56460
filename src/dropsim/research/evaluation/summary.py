"""Everything that was evaluated, on one page; and the tables of the documentation, which are made of the same numbers."""

# pyright: reportArgumentType=false

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from dropsim.files.tables import markdown, shown
from dropsim.research.evaluation import behaviour, push, reliability, response, steering
from dropsim.research.evaluation.paper.claims import Claim
from dropsim.research.evaluation.paper.plan import PaperOptions
from dropsim.research.evaluation.paper.reproduce import Case, verdict_rows
from dropsim.research.evaluation.report import Bound, Section, machine, number_rows, write_json, write_page, write_text
from dropsim.research.evaluation.response_report import BOUNDS as RESPONSE_BOUNDS

FILES = {
    "behaviour": "behaviour/behaviour.json",
    "response": "response/response.json", "steering": "steering/steering.json", "prior": "prior/prior.json",
    "paper": "paper/claims.json", "push": "push/push.json", "reliability": "reliability/reliability.json",
}  # fmt: skip
"""What each part of `dropsim evaluate all` writes into its folder."""
PICTURES = {"response": "response/response.png", "push": "push/directions.png"}
STEERING_BOUNDS = {
    **{f"{task}.fell": Bound(0, 1 / 64, "nobody touches them") for task in steering.TASKS},
    **{f"{task}.speed_ratio": Bound(0.95, 1.05, "of the speed asked for") for task in steering.TASKS if task != "stand"},
    "stand.speed": Bound(0, 0.05, "[m/s]"),
    **{f"{task}.skate_ratio": Bound(0, 1.2, "of recordings of the same speed") for task in steering.TASKS},
    **{f"{task}.jerk_ratio": Bound(0, 1.2, "of recordings of the same speed") for task in steering.TASKS},
    "turn_error_deg": Bound(0, 10, "one second after a turn of 90 degrees"),
    **{f"{name}.speed_ratio": Bound(0.95, 1.05, "of the speed asked for") for name in ("follow", "follow-run")},
    **{f"{name}.turn_error_deg": Bound(0, 10, "turns that are asked for at once") for name in ("follow", "follow-run")},
    **{f"{name}.fell": Bound(0, 0, "") for name in ("follow", "follow-run")},
    "lead-by-hand.hand_m": Bound(0, 0.5, "mean distance of the hand from its target [m]"),
    "lead-by-hand-run.hand_m": Bound(0, 1.0, "mean distance of the hand from its target [m]"),
    "dodged": Bound(0, 0.5, "hits of projectiles-dodge over those of projectiles"),
}  # fmt: skip
PRIOR_BOUNDS = {
    "frechet_ratio": Bound(0, math.inf, "over the recordings' own floor"),
    "back_share": Bound(0, 1, "back within 2 s after a shove, prior alone"),
}
NOT_MEASURED = "Not measured yet with this version."
Item = TypeVar("Item")
Rows = Sequence[Sequence[str]]


def read_results(folder: Path) -> dict[str, Any]:
    """Return what the parts in a folder found, by name; parts that were not run are left out."""
    paths = {name: folder / file for name, file in FILES.items()}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


def _restored(kind: type[Item], values: Mapping[str, Any], none: Sequence[str] = ()) -> Item:
    """Build a row of numbers from JSON, in which NaN is null."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: math.nan if values[name] is None and name not in none else values[name] for name in names})


def _behaviour_rows(found: Mapping[str, Any]) -> Rows:
    return behaviour.statistic_rows([_restored(behaviour.Statistic, one) for one in found["statistics"]])


def _response_rows(found: Mapping[str, Any]) -> Rows:
    return number_rows(
        {name: value for name, value in found.items() if name not in ("cells", "protocol", "made_by")}, RESPONSE_BOUNDS
    )


def _impulse_rows(found: Mapping[str, Any]) -> Rows:
    cells = [
        _restored(response.ResponseCell, cell, ("direction",)) for cell in found["cells"] if cell["direction"] is None
    ]
    return response.table_rows(cells)


def _steering_rows(found: Mapping[str, Any]) -> Rows:
    numbers: dict[str, Any] = {}
    for task, pace in found["paces"].items():
        numbers |= {
            f"{task}.{name}": pace[name]
            for name in ("fell", "speed", "skate_ratio", "jerk_ratio")
            if pace.get(name) is not None
        }
        if pace["asked"] and pace.get("speed") is not None:
            numbers[f"{task}.speed_ratio"] = pace["speed"] / pace["asked"]
    numbers |= {"turn_error_deg": found["turn_error_deg"], **found.get("manoeuvres", {})}
    scenes = found["scenarios"]
    numbers |= {
        f"{scene}.{name}": value
        for scene, own in scenes.items()
        for name, value in own.items()
        if f"{scene}.{name}" in STEERING_BOUNDS
    }
    if scenes.get("projectiles", {}).get("hits") and "hits" in scenes.get("projectiles-dodge", {}):
        numbers["dodged"] = scenes["projectiles-dodge"]["hits"] / scenes["projectiles"]["hits"]
    return number_rows(numbers, STEERING_BOUNDS | steering.MANOEUVRE_BOUNDS)


def _scene_rows(found: Mapping[str, Any]) -> Rows:
    return steering.scene_rows(found["scenarios"])


def _prior_rows(found: Mapping[str, Any]) -> Rows:
    numbers = {name: found[name] for name in PRIOR_BOUNDS if found.get(name) is not None}
    rows = number_rows(numbers, PRIOR_BOUNDS)
    rows += [[f"speed bias at {b['speeds']} m/s", shown(b["bias"], "+.2f"), "", "", f"standard error {shown(b['error'], '.2f')} m/s^2"]
             for b in found.get("speed_bias", ()) if b["frames"]]  # fmt: skip
    shares = found.get("activity") or {"rolled_out": {}}
    return rows + [
        [name, f"{value:.1%}", "", "", f"{shares['recorded'][name]:.1%} recorded"]
        for name, value in shares["rolled_out"].items()
    ]


def _paper_rows(found: Mapping[str, Any]) -> Rows:
    groups: dict[tuple[str, tuple[float, ...]], list[Claim]] = {}
    for claim in found["claims"]:
        groups.setdefault((claim.get("prior", "cvae"), tuple(claim.get("newtons", (300.0, 700.0)))), []).append(
            _restored(Claim, claim, ("number", "reproduced"))
        )
    return verdict_rows(
        [Case(PaperOptions(prior=prior, newtons=newtons), tuple(own)) for (prior, newtons), own in groups.items()]
    )


def _push_rows(found: Mapping[str, Any]) -> Rows:
    cells = [_restored(push.PushCell, cell, push.KEYS) for cell in found["cells"]]
    return push.table_rows(
        [c for c in cells if c.newtons is not None and all(getattr(c, key) is None for key in push.KEYS[1:])]
    )


def _reliability_rows(found: Mapping[str, Any]) -> Rows:
    names = ("name", "tried", "failures", "details")
    return reliability.table([reliability.Counted(**{name: one[name] for name in names}) for one in found["counted"]])


TABLES: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any]], Rows]]] = {
    "behaviour": ("behaviour", "How people move", _behaviour_rows),
    "response": ("response", "What people do when pushed, kicked, thrown over, tripped and hit", _response_rows),
    "impulses": ("response", "Pushes of 0.1 s on the torso, by impulse", _impulse_rows),
    "steering": ("steering", "People whom nobody touches, and people who are led", _steering_rows),
    "scenarios": ("steering", "Every scenario", _scene_rows),
    "prior": ("prior", "The motion prior, on people that it never saw", _prior_rows),
    "paper": ("paper", "The paper's results, for both priors and both ranges of pushes", _paper_rows),
    "push": ("push", "The push protocol, with baselines", _push_rows),
    "reliability": ("reliability", "Random pushes, random scenes and damaged files", _reliability_rows),
}
"""Tables by name: the part whose numbers they are made of, their title, and how."""


def sections(results: Mapping[str, Any], folder: Path) -> list[Section]:
    """Return the page's parts, each with the picture that belongs to it."""
    shown_pictures, parts = set[str](), []
    for part, title, make in TABLES.values():
        if part in results:
            picture = folder / PICTURES[part] if part in PICTURES and part not in shown_pictures else None
            shown_pictures.add(part)
            parts.append(
                Section(
                    title,
                    picture=picture if picture is not None and picture.exists() else None,
                    table=make(results[part]),
                )
            )
    return parts


def write_summary(folder: Path, *, docs: Path | None = None) -> list[Path]:
    """Write report.html and results.json of all parts in a folder; and fill the tables of a page of documentation."""
    results = read_results(folder) | {"made_by": machine()}
    paths = [folder / "report.html", folder / "results.json"]
    write_page(paths[0], "dropsim, evaluated", results["made_by"], sections(results, folder))
    write_json(paths[1], results)
    if docs is not None:
        kept = docs.with_name("results.json")
        write_json(kept, {name: for_docs(name, found) for name, found in results.items()})
        fill_tables(docs, json.loads(kept.read_text(encoding="utf-8")))
        paths += [kept, docs]
    return paths


def for_docs(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out what no table of the documentation shows: most of the cells."""
    if name == "response":
        return {**found, "cells": [cell for cell in found["cells"] if cell["direction"] is None]}
    if name == "push":
        return {"cells": [cell for cell in found["cells"] if all(cell[key] is None for key in push.KEYS[1:])]}
    if name == "prior":
        return {key: value for key, value in found.items() if key in (*PRIOR_BOUNDS, "speed_bias", "activity")}
    return found


def filled(text: str, results: Mapping[str, Any]) -> str:
    """Return a page with the tables between its marks made of results; what was not measured says so."""

    def table(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}: the page can have {', '.join(TABLES)}")
        part, _, make = TABLES[name]
        body = f"{_caption(part, results)}\n\n{markdown(make(results[part]))}" if part in results else NOT_MEASURED
        return f"<!-- table: {name} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def _caption(part: str, results: Mapping[str, Any]) -> str:
    """Say how many people a table is about."""
    found = results[part]
    protocol = found.get("protocol", {})
    if part == "behaviour":
        one, other = protocol["steering"], protocol["response"]
        many = f"{one['people']} people for {one['seconds']:g} s at each speed, {other['people']} in each cell of the pushes"
    elif part == "response":
        many = f"{protocol['people']} people in each cell, {protocol['others']} in each other part, {protocol['trips']} trips"
    elif part == "steering":
        many = f"{protocol['people']} people for {protocol['seconds']:g} s at each speed, {protocol['seeds']} seeds of each scenario"
    elif part == "push":
        many = f"{max(cell['people'] for cell in found['cells'])} people in each row"
    else:
        motions = found.get("motions")
        paper = "Each prior over each range" + (f", {motions} motions" if motions else "")
        many = {
            "prior": "People that the prior never saw",
            "paper": paper,
            "reliability": "All failures should be zero",
        }[part]
    made_by = found.get("made_by", results["made_by"])
    return f"{many}; dropsim {made_by['dropsim']}, {made_by['made']}."


def fill_tables(path: Path, results: Mapping[str, Any]) -> None:
    """Rewrite the tables of a page."""
    write_text(path, filled(path.read_text(encoding="utf-8"), results))
