"""Reading a data set back as motions."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import roma
import torch
from torch import Tensor

from dropsim.body.skeleton import Skeleton
from dropsim.motion.motion import Event, Motion
from dropsim.research.synthesis.schema import FORMAT, ROWS

if TYPE_CHECKING:
    import pyarrow as pa


def read_motions(out: Path) -> Iterator[tuple[Mapping[str, Any], Motion]]:
    """Yield every row of a data set: its other columns, and the motion with forces, energies and events, in the order of the clips."""
    import pyarrow.parquet as pq

    paths = sorted((out / "clips").glob("*.parquet"))
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
    return Skeleton(*(torch.tensor(about["skeleton"][name], dtype=torch.float64) for name in ("rest", "masses", "radii")))


def _motion_of(row: Mapping[str, "pa.Scalar"], skeleton: Skeleton) -> Motion:
    def over_time(name: str) -> Tensor:
        values = torch.from_numpy(np.array(row[name].values.to_numpy(zero_copy_only=False)))
        shape = [int(size) for size in ROWS[name][0].split()[1:]]
        return (values if values.dtype == torch.bool else values.double()).reshape(-1, *shape)

    extras = {name: over_time(name) for name in ("contacts", "contact_forces", "external_forces", "root_wrench") if row[name].is_valid}
    return Motion(
        skeleton, row["fps"].as_py(), over_time("root"), roma.rotvec_to_rotmat(over_time("rotations")), over_time("joints"), **extras,
        energies={e["name"]: torch.tensor(e["values"], dtype=torch.float64) for e in row["energies"].as_py()},
        events=tuple(Event(**event) for event in row["events"].as_py()), name=f"clip {row['clip'].as_py()}",
    )  # fmt: skip
