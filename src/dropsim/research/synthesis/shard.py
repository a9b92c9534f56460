"""Shards: some clips as one Parquet file, with a small manifest that says that the file is whole and what was left out.

A data set's folder holds `manifest.json` with the recipe, `clips/` with the Parquet files and nothing else, so that any
reader can take the folder as it is, and `shards/` with a manifest for each. The manifest of a shard is written last: a
shard that has one is done.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path
from dropsim.research.synthesis.clip import BATCH, Clip, Rejected, simulated, template_of
from dropsim.research.synthesis.recipe import Recipe, difference
from dropsim.research.synthesis.schema import rows_of, schema_of

MANIFEST, LOCK = "manifest.json", ".lock"


def clips_path(out: Path, shard: int) -> Path:
    """Return where a shard's clips are."""
    return out / "clips" / f"clips-{shard:07d}.parquet"


def manifest_path(out: Path, shard: int) -> Path:
    """Return where a shard's manifest is."""
    return out / "shards" / f"clips-{shard:07d}.json"


@single_threaded
def make_shard(recipe: Recipe, out: Path, shard: int) -> None:
    """Simulate a shard and write it; it appears whole or not at all."""
    import pyarrow.parquet as pq

    indices = recipe.clips_of(shard)
    prior = template_of(recipe.drawn(indices[0]).setup).simulator.prior
    schema = schema_of(prior.skeleton, prior.fps, recipe.identity())
    rejected, kept = list[Rejected](), 0
    path = clips_path(out, shard)
    with atomic_path(path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for first in range(0, len(indices), BATCH):
                outcomes = simulated(recipe, indices[first : first + BATCH])
                rejected += [o for o in outcomes if isinstance(o, Rejected)]
                clips = [o for o in outcomes if isinstance(o, Clip)]
                writer.write_table(rows_of(clips, schema))
                kept += len(clips)
        written = temporary.read_bytes()
    _write_json(manifest_path(out, shard), {
        "shard": shard, "first": indices.start, "clips": len(indices), "kept": kept, "bytes": len(written),
        "sha256": hashlib.sha256(written).hexdigest(), "rejected": [asdict(r) for r in rejected],
    })  # fmt: skip


def is_done(out: Path, shard: int) -> bool:
    """Tell whether a shard is there and whole."""
    path = clips_path(out, shard)
    try:
        found = _read_json(manifest_path(out, shard))
    except ValueError:  # damaged: the shard is made again
        return False
    return found is not None and path.is_file() and path.stat().st_size == found.get("bytes")


@dataclass(frozen=True)
class Totals:
    """Clips of a data set."""

    clips: int
    """Simulated."""
    kept: int
    rejected: Mapping[str, int]
    """By reason."""


def open_folder(recipe: Recipe, out: Path) -> None:
    """Begin a data set in a folder, or resume the one that is there; refuse one of another recipe."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file: give a folder")
    found = _read_json(out / MANIFEST)
    if found is None:
        if out.exists() and any(path.name != LOCK for path in out.iterdir()):
            raise ValueError(f"{out}: holds something other than a data set: give a new folder")
        _write_json(out / MANIFEST, {"recipe": recipe.identity()})
    elif changed := difference(found.get("recipe", {}), recipe.identity()):
        raise ValueError(f"{out}: was begun {changed}: give the same options to go on with it, or another folder")
    for folder in ("clips", "shards"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    sweep(out)


def sweep(out: Path) -> None:
    """Remove what a killed run left half-written."""
    for folder in (out, out / "clips", out / "shards"):
        for path in folder.glob(".*-*"):
            shutil.rmtree(path, ignore_errors=True)


def close_folder(recipe: Recipe, out: Path) -> Totals:
    """Write and return the totals of a data set that is complete."""
    shards = [_read_json(manifest_path(out, shard)) or {} for shard in range(recipe.num_shards)]
    reasons = Counter(rejected["reason"] for shard in shards for rejected in shard["rejected"])
    found = Totals(
        sum(shard["clips"] for shard in shards), sum(shard["kept"] for shard in shards), dict(sorted(reasons.items()))
    )
    _write_json(out / MANIFEST, {"recipe": recipe.identity(), "complete": True, **asdict(found)})
    return found


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: is damaged: give another folder, or remove this one")
    return found
