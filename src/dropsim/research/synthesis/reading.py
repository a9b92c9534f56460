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
                yield (
                    {name: value.as_py() for name, value in row.items() if name not in ROWS},
                    _motion_of(row, skeleton),
                )


def _skeleton_of(schema: "pa.Schema", path: Path) -> Skeleton:
    about = json.loads((schema.metadata or {}).get(b"dropsim", b"{}"))
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{path}: is no shard of format {FORMAT}: give the folder that this version's `dropsim synthesize` wrote"
        )
    return Skeleton(*(np.array(about["skeleton"][name]) for name in ("rest", "masses", "radii")))


def _motion_of(row: Mapping[str, "pa.Scalar"], skeleton: Skeleton) -> Motion:
    found = dict[str, np.ndarray]()
    for name, (shape, _) in ROWS.items():
        if row[name].is_valid:
            values = row[name].values.to_numpy(zero_copy_only=False)
            values = values.astype(np.bool_ if values.dtype == np.bool_ else np.float64)
            found[name] = values.reshape(-1, *(int(size) for size in shape.split()[1:]))
    before, after = np.moveaxis(found["root_wrench"], -1, 0) if "root_wrench" in found else (None, None)
    return Motion(
        skeleton, row["fps"].as_py(), found["root"], rotvec_to_rotmat(found["rotations"]), found["joints"], touching=found.get("contacts"),
        contact_forces=found.get("contact_forces"), external_forces=found.get("external_forces"), wrench_before=before, wrench_after=after,
        energies={e["name"]: np.array(e["values"]) for e in row["energies"].as_py()},
        events=tuple(Event(**event) for event in row["events"].as_py()), name=f"clip {row['clip'].as_py()}",
    )  # fmt: skip
