"""The columns of a shard, written and read: a row for each person of each clip. docs/synthesis.md lists them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat
from dropsim.body.skeleton import JOINTS, PARENTS, Skeleton
from dropsim.motion.motion import Event, Motion
from dropsim.physics import metrics
from dropsim.research.synthesis.clip import Clip
from dropsim.scene.files import scene_text

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Version of the columns' meaning."""
PLAIN = {
    "clip": "int64",
    "person": "int32",
    "num_people": "int32",
    "category": "string",
    "seed": "int64",
    "fps": "float32",
    "num_frames": "int32",
    "start": "string",
    "fell": "bool",
    "upright_at_end": "bool",
    "bone_error": "float32",
    "penetration": "float32",
    "foot_skate": "float32",
}
"""Columns of one value, and their types."""
ROWS: Mapping[str, tuple[str, str]] = {
    "root": ("t 3", "m"),
    "joints": ("t 22 3", "m"),
    "rotations": ("t 22 3", "rad"),
    "contacts": ("t 22", ""),
    "contact_forces": ("t 22 3", "N"),
    "external_forces": ("t 22 3", "N"),
    "root_wrench": ("t 2", "body weights"),
    "ground": ("t 4", "1 1 1 m"),
}
"""Columns of numbers over time, as flat lists: their shapes and units."""
SAME = {name: name for name in ("root", "joints", "contact_forces", "external_forces")} | {"contacts": "touching"}
"""Columns that are fields of a motion, and their names there."""
_BODY = ("rest", "masses", "radii")


def schema_of(skeleton: Skeleton, fps: float, identity: Mapping[str, Any]) -> "pa.Schema":
    """Return the columns, with what all clips share as metadata."""
    import pyarrow as pa

    numbers, number, text = pa.list_(pa.float32()), pa.float32(), pa.string()
    fields = [pa.field(name, pa.type_for_alias(kind)) for name, kind in PLAIN.items()]
    for name, (shape, unit) in ROWS.items():
        kind = pa.list_(pa.bool_()) if name == "contacts" else numbers
        fields.append(pa.field(name, kind, metadata={"shape": shape, "unit": unit}))
    structs = {
        "energies": {"name": text, "values": numbers},
        "objects": {"name": text, "centres": numbers, "rotations": numbers},
        "events": {"name": text, "start": number, "duration": number},
    }
    fields += [pa.field(name, pa.list_(pa.struct(list(parts.items())))) for name, parts in structs.items()]
    fields += [pa.field("parameters", text), pa.field("scene", text)]
    body = {"joints": list(JOINTS), "parents": list(PARENTS)}
    body |= {name: getattr(skeleton, name).tolist() for name in _BODY}
    about = {"format": FORMAT, "fps": fps, "skeleton": body, "recipe": identity}
    return pa.schema(fields, metadata={"dropsim": json.dumps(about)})


def rows_of(clips: Sequence[Clip], schema: "pa.Schema") -> "pa.Table":
    """Return a row for each person of each clip."""
    import pyarrow as pa

    return pa.Table.from_pylist([row for clip in clips for row in _rows(clip)], schema=schema)


def _rows(clip: Clip) -> Iterator[dict[str, Any]]:
    drawn, scene = clip.drawn, clip.drawn.setup.scene
    shared = {
        "clip": drawn.index,
        "num_people": len(clip.motions),
        "category": drawn.category,
        "seed": drawn.seed,
        "bone_error": clip.bone_error,
        "penetration": clip.penetration,
        "ground": _flat(np.concatenate((clip.ground.normal, clip.ground.offset[:, None]), -1)),
        "objects": [
            {"name": track.name, "centres": _flat(track.centre), "rotations": _flat(rotmat_to_rotvec(track.rotation))}
            for track in clip.objects
        ],
        "parameters": json.dumps(drawn.values),
        "scene": scene_text(drawn.setup, Path()),
    }
    for i, (motion, above) in enumerate(zip(clip.motions, clip.above, strict=True)):
        before, after = motion.wrench_before, motion.wrench_after
        yield shared | {
            "person": i,
            "fps": motion.fps,
            "num_frames": len(motion),
            "start": "" if drawn.setup.clip else scene.people[i].start,
            "fell": bool(metrics.fallen(above).any()),
            "upright_at_end": bool(metrics.upright(above)[-1]),
            "foot_skate": float(metrics.foot_skate(above)) if len(motion) > 1 else 0.0,
            **{column: _flat(getattr(motion, name)) for column, name in SAME.items()},
            "rotations": _flat(rotmat_to_rotvec(motion.q)),
            "root_wrench": None if before is None or after is None else _flat(np.stack((before, after), -1)),
            "energies": [{"name": name, "values": _flat(values)} for name, values in sorted(motion.energies.items())],
            "events": [asdict(event) for event in motion.events],
        }


def _flat(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else values.reshape(-1).astype(np.bool_ if values.dtype == np.bool_ else np.float32)


def read_motions(out: Path | str) -> Iterator[tuple[Mapping[str, Any], Motion]]:
    """Yield every row of a data set in the order of the clips: its plain columns, and the whole motion."""
    import pyarrow.parquet as pq

    paths = sorted((Path(out) / "clips").glob("*.parquet"))
    if not paths:
        raise ValueError(f"{out}: holds no clips: give the folder that `dropsim synthesize` wrote")
    for path in paths:
        file = pq.ParquetFile(path)
        about = json.loads((file.schema_arrow.metadata or {}).get(b"dropsim", b"{}"))
        if about.get("format") != FORMAT:
            remedy = "give the folder that this version's `dropsim synthesize` wrote"
            raise ValueError(f"{path}: is no shard of format {FORMAT}: {remedy}")
        skeleton = Skeleton(*(np.array(about["skeleton"][name]) for name in _BODY))
        for batch in file.iter_batches(batch_size=16):
            for i in range(batch.num_rows):
                row = {name: batch.column(name)[i] for name in batch.schema.names}
                others = {name: value.as_py() for name, value in row.items() if name not in ROWS}
                yield others, _motion_of(row, others, skeleton)


def _motion_of(row: Mapping[str, "pa.Scalar"], others: Mapping[str, Any], skeleton: Skeleton) -> Motion:
    arrays = dict[str, np.ndarray]()
    for name, (shape, _) in ROWS.items():
        if row[name].is_valid:
            values = row[name].values.to_numpy(zero_copy_only=False)
            values = values.astype(np.bool_ if values.dtype == np.bool_ else np.float64)
            arrays[name] = values.reshape(-1, *(int(size) for size in shape.split()[1:]))
    before, after = np.moveaxis(arrays["root_wrench"], -1, 0) if "root_wrench" in arrays else (None, None)
    fields: dict[str, Any] = {name: arrays.get(column) for column, name in SAME.items()}
    return Motion(
        skeleton,
        others["fps"],
        q=rotvec_to_rotmat(arrays["rotations"]),
        **fields,
        wrench_before=before,
        wrench_after=after,
        energies={energy["name"]: np.array(energy["values"]) for energy in others["energies"]},
        events=tuple(Event(**event) for event in others["events"]),
        name=f"clip {others['clip']}",
    )
