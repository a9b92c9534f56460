"""The columns of a shard: a row for each person of each clip. docs/synthesis.md lists them for readers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.body.rotations import rotmat_to_rotvec
from dropsim.body.skeleton import JOINTS, PARENTS, Skeleton
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.synthesis.clip import Clip
from dropsim.scene.files.writing import scene_text

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Version of the columns' meaning."""
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


def schema_of(skeleton: Skeleton, fps: float, identity: Mapping[str, Any]) -> "pa.Schema":
    """Return the columns, with what all clips share as metadata."""
    import pyarrow as pa

    numbers = pa.list_(pa.float32())
    plain = {
        "clip": pa.int64(), "person": pa.int32(), "num_people": pa.int32(), "category": pa.string(), "seed": pa.int64(),
        "fps": pa.float32(), "num_frames": pa.int32(), "start": pa.string(), "fell": pa.bool_(), "upright_at_end": pa.bool_(),
        "bone_error": pa.float32(), "penetration": pa.float32(), "foot_skate": pa.float32(),
    }  # fmt: skip
    fields = [pa.field(name, kind) for name, kind in plain.items()]
    for name, (shape, unit) in ROWS.items():
        fields.append(
            pa.field(
                name, pa.list_(pa.bool_()) if name == "contacts" else numbers, metadata={"shape": shape, "unit": unit}
            )
        )
    fields += [
        pa.field("energies", pa.list_(pa.struct([("name", pa.string()), ("values", numbers)]))),
        pa.field("objects", pa.list_(pa.struct([("name", pa.string()), ("centres", numbers), ("rotations", numbers)]))),
        pa.field(
            "events", pa.list_(pa.struct([("name", pa.string()), ("start", pa.float32()), ("duration", pa.float32())]))
        ),
        pa.field("parameters", pa.string()),
        pa.field("scene", pa.string()),
    ]
    about = {"format": FORMAT, "fps": fps, "skeleton": _skeleton(skeleton), "recipe": identity}
    return pa.schema(fields, metadata={"dropsim": json.dumps(about)})


def _skeleton(skeleton: Skeleton) -> dict[str, Any]:
    numbers = {name: getattr(skeleton, name).tolist() for name in ("rest", "masses", "radii")}
    return {"joints": list(JOINTS), "parents": list(PARENTS), **numbers}


def rows_of(clips: Sequence[Clip], schema: "pa.Schema") -> "pa.Table":
    """Return a row for each person of each clip."""
    import pyarrow as pa

    rows = [row for clip in clips for row in _rows(clip)]
    return pa.table(
        {name: pa.array([row[name] for row in rows], type=schema.field(name).type) for name in schema.names},
        schema=schema,
    )


def _rows(clip: Clip) -> Iterator[dict[str, Any]]:
    drawn, scene = clip.drawn, clip.drawn.setup.scene
    text = scene_text(drawn.setup, Path())
    ground = np.concatenate((clip.ground.normal, clip.ground.offset[:, None]), -1)
    objects = [
        {"name": track.name, "centres": _flat(track.centres), "rotations": _flat(rotmat_to_rotvec(track.rotations))}
        for track in clip.objects
    ]
    for i, (motion, above) in enumerate(zip(clip.motions, clip.above, strict=True)):
        yield {
            "clip": drawn.index, "person": i, "num_people": len(clip.motions), "category": drawn.category, "seed": drawn.seed,
            "fps": motion.fps, "num_frames": len(motion), "start": "" if drawn.setup.clip else scene.people[i].start,
            "fell": bool(metrics.fallen(above).any()), "upright_at_end": bool(metrics.upright(above)[-1]),
            "bone_error": clip.bone_error, "penetration": clip.penetration,
            "foot_skate": float(metrics.foot_skate(above)) if len(motion) > 1 else 0.0,
            **{name: _flat(values) for name, values in _over_time(motion, ground).items()},
            "energies": [{"name": name, "values": _flat(values)} for name, values in sorted(motion.energies.items())],
            "objects": objects,
            "events": [asdict(event) for event in motion.events],
            "parameters": json.dumps(drawn.values), "scene": text,
        }  # fmt: skip


def _over_time(motion: Motion, ground: np.ndarray) -> dict[str, np.ndarray | None]:
    wrench = (
        None
        if motion.wrench_before is None or motion.wrench_after is None
        else (motion.wrench_before, motion.wrench_after)
    )
    return {
        "root": motion.root, "joints": motion.joints, "rotations": rotmat_to_rotvec(motion.q), "contacts": motion.touching,
        "contact_forces": motion.contact_forces, "external_forces": motion.external_forces,
        "root_wrench": None if wrench is None else np.stack(wrench, -1), "ground": ground,
    }  # fmt: skip


def _flat(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else values.reshape(-1).astype(np.bool_ if values.dtype == np.bool_ else np.float32)
