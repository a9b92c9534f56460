"""A data set's folder: shards of some clips as Parquet files, each with a manifest that says that it is whole.

The folder holds `manifest.json` with the recipe, `clips/` with the Parquet files and nothing else, so that any reader
can take it as it is, and `shards/` with a manifest for each, which says what was left out. The manifest of a shard is
written last: a shard that has one is done.
"""

import functools
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path
from dropsim.research import processes
from dropsim.research.evaluation.harness import Watch
from dropsim.research.evaluation.report import write_json
from dropsim.research.synthesis.clip import BATCH, Clip, Recipe, Rejected, difference, simulated, template_of
from dropsim.research.synthesis.schema import rows_of, schema_of

MANIFEST = "manifest.json"
RETRIES = 5
"""How often a shard is made again on Ray if its worker or machine went away."""


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
    rejected, num_clips = list[Rejected](), 0
    with atomic_path(clips_path(out, shard)) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for first in range(0, len(indices), BATCH):
                outcomes = simulated(recipe, indices[first : first + BATCH])
                rejected += [o for o in outcomes if isinstance(o, Rejected)]
                clips = [o for o in outcomes if isinstance(o, Clip)]
                writer.write_table(rows_of(clips, schema))
                num_clips += len(clips)
        written = temporary.read_bytes()
    counts = {"shard": shard, "first": indices.start, "clips": len(indices), "kept": num_clips, "bytes": len(written)}
    digest = {"sha256": hashlib.sha256(written).hexdigest(), "rejected": [asdict(r) for r in rejected]}
    write_json(manifest_path(out, shard), counts | digest)


def is_done(out: Path, shard: int) -> bool:
    """Tell whether a shard is there and whole."""
    path = clips_path(out, shard)
    try:
        manifest = _read_json(manifest_path(out, shard))
    except ValueError:  # damaged: the shard is made again
        return False
    return manifest is not None and path.is_file() and path.stat().st_size == manifest.get("bytes")


@dataclass(frozen=True)
class Totals:
    """Counts of a data set's clips."""

    clips: int
    """Clips that were simulated."""
    kept: int
    rejected: Mapping[str, int]
    """Clips that were left out, by reason."""


def synthesize(
    recipe: Recipe, out: Path | str, *, workers: int = 1, ray: str | None = None, watch: Watch = None
) -> Totals:
    """Make all shards that are missing, in some processes or on the Ray cluster at an address.

    `watch` gets the number of clips that are done, and that of all.
    """
    out, tick = Path(out), watch or (lambda done, total: None)
    _open_folder(recipe, out)
    missing = [shard for shard in range(recipe.num_shards) if not is_done(out, shard)]
    finished = recipe.count - sum(len(recipe.clips_of(shard)) for shard in missing)
    tick(finished, recipe.count)
    make = functools.partial(make_shard, recipe, out)
    try:
        if ray is None:
            shards = processes.in_processes(workers, make, missing, "shard {}".format)
        else:
            shards = on_ray(ray, workers, recipe, out, missing)
        for shard in shards if missing else ():
            finished += len(recipe.clips_of(shard))
            tick(finished, recipe.count)
    finally:
        # What this run, or one that was killed, left half-written.
        for path in (*out.glob(".*-*"), *out.glob("*/.*-*")):
            shutil.rmtree(path, ignore_errors=True)
    return _close_folder(recipe, out)


def _open_folder(recipe: Recipe, out: Path) -> None:
    """Begin a data set in a folder, or resume the one that is there; refuse one of another recipe."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file: give a folder")
    manifest = _read_json(out / MANIFEST)
    if manifest is None:
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out}: holds something other than a data set: give a new folder")
        write_json(out / MANIFEST, {"recipe": recipe.identity()})
    elif changed := difference(manifest.get("recipe", {}), recipe.identity()):
        raise ValueError(f"{out}: was begun with other {changed}: give the same to go on with it, or another folder")
    for folder in ("clips", "shards"):
        (out / folder).mkdir(parents=True, exist_ok=True)


def _close_folder(recipe: Recipe, out: Path) -> Totals:
    """Write and return the totals of a data set that is complete."""
    shards = [_read_json(manifest_path(out, shard)) or {} for shard in range(recipe.num_shards)]
    reasons = Counter(rejected["reason"] for shard in shards for rejected in shard["rejected"])
    clips, kept = (sum(shard[name] for shard in shards) for name in ("clips", "kept"))
    totals = Totals(clips, kept, dict(sorted(reasons.items())))
    write_json(out / MANIFEST, {"recipe": recipe.identity(), "complete": True, **asdict(totals)})
    return totals


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: is damaged: give another folder, or remove this one")
    return content


def on_ray(address: str, num: int, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
    """Make shards on a Ray cluster, with a task for each. All machines have to see the folder.

    The address `local` starts Ray on this machine with some processes, and `auto` finds the machine's cluster.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError:
        raise ValueError('Ray is not installed: pip install "dropsim[scale]", or leave --ray out') from None
    _connect(ray, address, num)
    try:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(make_shard)
        shared, waiting, running = ray.put(recipe), iter(shards), dict[object, int]()
        while True:
            # The cluster may grow and shrink meanwhile.
            room = max(2, int(2 * ray.cluster_resources().get("CPU", 1))) - len(running)
            running |= {task.remote(shared, out.absolute(), shard): shard for shard in islice(waiting, max(0, room))}
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            shard = running.pop(done[0])
            try:
                ray.get(done[0])
            except RayTaskError as error:
                raise ValueError(f"shard {shard}: {error.cause}") from None
            except RayError as error:
                last = str(error).splitlines()[0]
                raise ValueError(f"shard {shard} failed {RETRIES + 1} times on Ray, lastly with: {last}") from None
            if not is_done(out, shard):
                lost = f"shard {shard} was made on another machine and is not in {out} here"
                raise ValueError(f"{lost}: give a folder that all machines share")
            yield shard
    finally:
        ray.shutdown()


def _connect(ray, address: str, num: int) -> None:  # noqa: ANN001 - a module
    options = {"log_to_driver": False, "logging_level": "error", "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
    if address == "local":
        options |= {"num_cpus": num, "include_dashboard": False}
    # Its new default, which Ray would otherwise announce.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"there is no Ray cluster at {address!r} ({reason}): start one, or use --ray local") from None
