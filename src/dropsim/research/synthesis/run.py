"""Making a data set, or going on with one that was interrupted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dropsim.research.synthesis.recipe import Recipe
from dropsim.research.synthesis.shard import LOCK, Totals, close_folder, is_done, open_folder, sweep
from dropsim.research.synthesis.workers import Workers


def synthesize(
    recipe: Recipe, out: Path | str, workers: Workers, watch: Callable[[int, int], None] | None = None
) -> Totals:
    """Make all shards that are missing; `watch` is told how many clips are done, and how many there will be."""
    out = Path(out)
    with _alone(out):
        open_folder(recipe, out)
        missing = [shard for shard in range(recipe.num_shards) if not is_done(out, shard)]
        finished = recipe.count - sum(len(recipe.clips_of(shard)) for shard in missing)
        if watch:
            watch(finished, recipe.count)
        try:
            for shard in workers.make(recipe, out, missing) if missing else ():
                finished += len(recipe.clips_of(shard))
                if watch:
                    watch(finished, recipe.count)
        finally:
            sweep(out)
        return close_folder(recipe, out)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Refuse a folder that another run is writing to; the system releases the lock however that run ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file: give a folder")
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{out}: another run is writing to it: wait for that, or give another folder") from None
        yield
