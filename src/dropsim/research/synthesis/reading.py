"""Reading a data set back as motions."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.body.skeleton import Skeleton
from dropsim.motion.motion import Event, Motion
from dropsim.research.synthesis.schema import FORMAT, ROWS

if TYPE_CHECKING:
    import pyarrow as pa


def read_motions(out: Path | str) -> Iterator[tuple[Mapping[str, Any], Motion]]:
    """Yield every row of a data set in the order of the clips: its other columns, and the motion with forces, energies and events."""
    import pyarrow.parquet as pq

    paths = sorted((Path(out) / "clips").glob("*.parquet"))
    if not paths:
        raise ValueError(f"{out}: holds no clips: give the folder that `dropsim synthesize` wrote")
    for path in paths:
        file = pq.ParquetFile(path)
        skeleton = _skeleton_of(file.schema_arrow, path)
        for batch in file.iter_batches(batch_size=16):
            for i in range(batch.num_rows):
                row = {name: batch.column(name)[i] for name in batch.schema.names}
                yield {name: value.as_py() for name, value in row.items() if name not in ROWS}, _motion_of(row, skeleton)


def _skeleton_of(schema: "pa.Schema", path: Path) -> Skeleton:
    about = json.loads((schema.metadata or {}).get(b"dropsim", b"{}"))
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: is no shard of format {FORMAT}: give the folder that this version's `dropsim synthesize` wrote")
    return Skeleton(*(np.array(about["skeleton"][name]) for name in ("rest", "masses", "radii")))


def _motion_of(row: Mapping[str, "pa.Scalar"], skeleton: Skeleton) -> Motion:
    def over_time(name: str) -> np.ndarray | None:
        if not row[name].is_valid:
            return None
        values = row[name].values.to_numpy(zero_copy_only=False)
        shape = [int(size) for size in ROWS[name][0].split()[1:]]
        return values.astype(np.bool_ if values.dtype == np.bool_ else np.float64).reshape(-1, *shape)

    root, joints, rotations, wrench = (over_time(name) for name in ("root", "joints", "rotations", "root_wrench"))
    assert root is not None and joints is not None and rotations is not None
    return Motion(
        skeleton, row["fps"].as_py(), root, rotvec_to_rotmat(rotations), joints, touching=over_time("contacts"),
        contact_forces=over_time("contact_forces"), external_forces=over_time("external_forces"),
        wrench_before=None if wrench is None else wrench[:, 0], wrench_after=None if wrench is None else wrench[:, 1],
        energies={e["name"]: np.array(e["values"]) for e in row["energies"].as_py()},
        events=tuple(Event(**event) for event in row["events"].as_py()), name=f"clip {row['clip'].as_py()}",
    )  # fmt: skip
