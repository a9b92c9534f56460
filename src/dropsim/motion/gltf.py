"""GLB in and back: an animated, skinned character's motion is read, and written back into the same file; all else in it stays as it is."""

import functools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import rotmat_to_unitquat, transpose, unitquat_to_rotmat
from dropsim.files.atomic import atomic_path
from dropsim.motion.bvh import MAX_JOINTS, MAX_POSES, SAME, Rig, RigMotion, SourceFile

MAX_BYTES = 1 << 30
MAX_JSON = 64 << 20
MAX_SECONDS = 3600.0
USUAL_RATE = 30.0
"""At which an animation whose keys have no rate of their own is read [Hz]."""
FASTEST = 240.0
"""[Hz]"""
UNIFORM = 0.01
"""Scales whose three numbers differ by less than this share are one number, and keys whose gaps do have a rate."""
_TYPES: Mapping[int, tuple[str, float]] = {
    5120: ("<i1", 127.0), 5121: ("<u1", 255.0), 5122: ("<i2", 32767.0), 5123: ("<u2", 65535.0), 5125: ("<u4", 1.0), 5126: ("<f4", 1.0),
}  # fmt: skip
_WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}
_FLOAT = 5126


class _Document:
    """A GLB file's two parts, and checked ways into them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise self.error(f"over {MAX_BYTES >> 30} GB: too large to be a character")
        if len(data) < 20 or data[:4] != b"glTF" or struct.unpack_from("<I", data, 4)[0] != 2:
            raise self.error("not a GLB file of glTF 2.0: export it as glTF Binary (.glb)")
        length, kind = struct.unpack_from("<I4s", data, 12)
        if kind != b"JSON" or length > min(MAX_JSON, len(data) - 20):
            raise self.error("cut off, or damaged at its beginning: export it again")
        try:
            self.json: Any = json.loads(data[20 : 20 + length])
        except (ValueError, RecursionError):
            raise self.error("its JSON part cannot be read: export it again") from None
        if not isinstance(self.json, dict):
            raise self.error("its JSON part is no object: export it again")
        self.rest = data[20 + length :]
        self.blob = b""
        if len(self.rest) >= 8:
            size, kind = struct.unpack_from("<I4s", self.rest)
            if kind != b"BIN\0" or size > len(self.rest) - 8:
                raise self.error("its binary part is cut off: export it again")
            self.blob, self.rest = self.rest[8 : 8 + size], self.rest[8 + size :]

    def error(self, message: str) -> ValueError:
        return ValueError(f"{self.path}: {message}")

    def list(self, name: str, of: Any = None) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
        """Return a list of objects, or an empty one."""
        found = (self.json if of is None else of).get(name, [])
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.error(f"{name!r} should be a list of objects: the file is damaged")
        return found

    def at(self, name: str, index: object) -> dict[str, Any]:
        """Return an object that another refers to."""
        items = self.list(name)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(items):
            raise self.error(f"there is no number {str(index)[:20]} in {name!r}: the file is damaged")
        return items[index]

    def values(self, index: object) -> Float[np.ndarray, "n w"]:
        """Return an accessor's numbers, one row an element."""
        accessor = self.at("accessors", index)
        view = self.at("bufferViews", accessor.get("bufferView"))
        kind, width = accessor.get("componentType"), _WIDTHS.get(str(accessor.get("type")))
        if kind not in _TYPES or width is None or "sparse" in accessor:
            raise self.error(
                "an animation's numbers are of a kind that is not read here: export it without compression"
            )
        if view.get("buffer") != 0 or "extensions" in view or self.at("buffers", 0).get("uri") is not None:
            raise self.error(
                "an animation lies in another file or is compressed: export it as one GLB file without compression"
            )
        dtype, scale = _TYPES[kind]  # pyright: ignore[reportArgumentType]
        size = np.dtype(dtype).itemsize
        count, start, offset, stride = (
            self._whole(of.get(name, default), name)
            for of, name, default in (
                (accessor, "count", 0), (view, "byteOffset", 0), (accessor, "byteOffset", 0), (view, "byteStride", width * size),
            )
        )  # fmt: skip
        end = start + offset + (max(count, 1) - 1) * stride + width * size
        if stride < width * size or end > len(self.blob):
            raise self.error("an animation's numbers end outside the file: it is damaged")
        rows = np.ndarray((count, width), dtype, self.blob, start + offset, (stride, size)).astype(np.float64)
        rows = np.maximum(rows / scale, -1.0) if scale > 1 else rows
        if not np.isfinite(rows).all() or np.abs(rows).max(initial=0) > 1e6:
            raise self.error("an animation holds numbers that are not finite")
        return rows

    def _whole(self, value: object, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_BYTES:
            raise self.error(f"{name!r} should be a whole number: the file is damaged")
        return value

    def numbers(self, value: object, count: int, name: str) -> Float[np.ndarray, "n"]:
        if not isinstance(value, list) or len(value) != count or not all(isinstance(v, int | float) for v in value):
            raise self.error(f"{name!r} of a node should be {count} numbers: the file is damaged")
        numbers = np.array(value, dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise self.error(f"{name!r} of a node is not finite")
        return numbers


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The nodes of a character in a pose: each relative to the one above."""

    numbers: tuple[int, ...]
    """In the file; parents first."""
    parents: tuple[int, ...]
    """Among these nodes; -1 for those without one."""
    translations: Float[np.ndarray, "*t n 3"]
    """In the file's numbers, before the scale of those above."""
    rotations: Float[np.ndarray, "*t n 3 3"]
    scales: Float[np.ndarray, "n"]
    """Of the space of each node's children, with all above it."""

    def posed(self) -> tuple[Float[np.ndarray, "*t n 3 3"], Float[np.ndarray, "*t n 3"]]:
        """Return global rotations and places."""
        R, x = np.empty_like(self.rotations), np.empty_like(self.translations)
        for j, parent in enumerate(self.parents):
            if parent < 0:
                R[..., j, :, :], x[..., j, :] = self.rotations[..., j, :, :], self.translations[..., j, :]
            else:
                R[..., j, :, :] = R[..., parent, :, :] @ self.rotations[..., j, :, :]
                step = (R[..., parent, :, :] @ self.translations[..., j, :, None])[..., 0]
                x[..., j, :] = x[..., parent, :] + self.scales[parent] * step
        return R, x


@dataclass(frozen=True, eq=False)
class GlbFile(SourceFile):
    """Where a character's motion comes from."""

    path: Path
    animation: int
    rest: _Nodes
    moving: _Nodes
    start: float
    """Time of the first frame [s]."""
    ending: ClassVar[str] = ".glb"
    up: ClassVar[str | None] = "y"

    def write_back(self, motion: RigMotion, path: Path, *, source: RigMotion) -> None:
        """Write frames into the file's animation: the channels of joints that changed are replaced, and nothing else.

        Frames beyond the source's end are added to those channels; the others hold their last keys, as glTF has it.
        """
        document = _Document(self.path)
        R_rest, _ = self.rest.posed()
        R_world = motion.global_rotations()
        points = motion.positions(R_world)
        R_nodes = R_world @ R_rest
        at = np.minimum(np.arange(len(motion)), len(source) - 1)
        out = _Out(
            document, document.list("animations")[self.animation], self.start + np.arange(len(motion)) / motion.fps
        )
        for j, (number, parent) in enumerate(zip(self.moving.numbers, self.moving.parents, strict=True)):
            turned = np.abs(motion.rotations[:, j] - source.rotations[at, j]).max() > SAME
            if turned or len(motion) > len(source):
                local = R_nodes[:, j] if parent < 0 else transpose(R_nodes[:, parent]) @ R_nodes[:, j]
                own = self.moving.rotations[at, j]
                same = np.abs(local - own).max((-1, -2)) < SAME
                turns = rotmat_to_unitquat(np.where(same[:, None, None], own, local))
                signs = np.where((turns[1:] * turns[:-1]).sum(-1) < 0, -1.0, 1.0)
                turns[1:] *= np.cumprod(signs)[:, None]
                out.replace(number, "rotation", turns)
            if np.abs(motion.translations[:, j] - source.translations[at, j]).max() > SAME:
                step = points[:, j] if parent < 0 else points[:, j] - points[:, parent]
                if parent >= 0:
                    step = (transpose(R_nodes[:, parent]) @ step[..., None])[..., 0] / self.moving.scales[parent]
                out.replace(number, "translation", step)
        data = out.data()
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)


class _Out:
    """A document whose animation is being changed: numbers are added behind the old ones."""

    def __init__(self, document: _Document, animation: dict[str, Any], times: Float[np.ndarray, "t"]) -> None:
        self.document, self.animation, self.times = document, animation, times
        self.blob = bytearray(document.blob + bytes(-len(document.blob) % 4))

    @functools.cached_property
    def _input(self) -> int:
        return self._add(self.times[:, None], "SCALAR", bounds=True)

    def _add(self, values: np.ndarray, kind: str, *, bounds: bool = False) -> int:
        rows, json = values.astype("<f4"), self.document.json
        views, accessors = json.setdefault("bufferViews", []), json.setdefault("accessors", [])
        views.append({"buffer": 0, "byteOffset": len(self.blob), "byteLength": rows.nbytes})
        self.blob.extend(rows.tobytes())
        accessor = {"bufferView": len(views) - 1, "componentType": _FLOAT, "count": len(rows), "type": kind}
        accessors.append(accessor | ({"min": rows.min(0).tolist(), "max": rows.max(0).tolist()} if bounds else {}))
        return len(accessors) - 1

    def replace(self, node: int, path: str, values: np.ndarray) -> None:
        """Give a node's channel new keys, or a new channel."""
        channels, samplers = self.animation["channels"], self.animation["samplers"]
        sampler = {
            "input": self._input,
            "output": self._add(values, f"VEC{values.shape[1]}"),
            "interpolation": "LINEAR",
        }
        found = next((c for c in channels if c["target"].get("node") == node and c["target"].get("path") == path), None)
        if found is None:
            found = {"target": {"node": node, "path": path}}
            channels.append(found)
        if "sampler" in found and sum(c["sampler"] == found["sampler"] for c in channels) == 1:
            samplers[found["sampler"]] = sampler
        else:
            samplers.append(sampler)
            found["sampler"] = len(samplers) - 1  # pyright: ignore[reportArgumentType]

    def data(self) -> bytes:
        json_part = self.document.json
        self.blob.extend(bytes(-len(self.blob) % 4))
        json_part["buffers"][0]["byteLength"] = len(self.blob)
        text = json.dumps(json_part, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 4)
        chunks = (
            struct.pack("<I4s", len(text), b"JSON")
            + text
            + struct.pack("<I4s", len(self.blob), b"BIN\0")
            + bytes(self.blob)
        )
        chunks += self.document.rest
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def read_glb(path: str | Path, *, animation: str | None = None) -> RigMotion:
    """Read the character of a GLB file on its own rig: the skin with most joints, and the animation of a name, or the one that moves most.

    The rig's zero pose is the pose of the nodes without an animation. All nodes above the joints belong to the rig.
    """
    document = _Document(Path(path))
    numbers, parents = _character(document)
    chosen, channels = _animation(document, set(numbers), animation)
    rest = _rest(document, numbers, parents)
    start, fps, count = _grid(document, channels)
    if count * len(numbers) > MAX_POSES:
        raise document.error(
            f"{count} frames of {len(numbers)} joints are too many to hold in memory: cut the animation into pieces"
        )
    translations = np.tile(rest.translations, (count, 1, 1))
    rotations = np.tile(rest.rotations, (count, 1, 1, 1))
    times = start + np.arange(count) / fps
    place = {number: j for j, number in enumerate(numbers)}
    for node, kind, sampler in channels:
        values = _sampled(document, sampler, times, turns=kind == "rotation")
        if kind == "rotation":
            rotations[:, place[node]] = unitquat_to_rotmat(values)
        elif kind == "translation":
            translations[:, place[node]] = values
        elif np.ptp(values, axis=0).max() > UNIFORM * np.abs(values).max():
            raise document.error("a joint changes its scale, which no person does: remove the scale keys")
    moving = _Nodes(numbers, parents, translations, rotations, rest.scales)
    return _aligned(document, GlbFile(document.path, chosen, rest, moving, start), fps)


def _aligned(document: _Document, file: GlbFile, fps: float) -> RigMotion:
    """Return the motion with axes that are the world's in the rest pose, as in a BVH file: R' = R R_rest^T."""
    R_rest, x_rest = file.rest.posed()
    R, x = file.moving.posed()
    R = R @ transpose(R_rest)
    parents = file.rest.parents
    offsets, translations, rotations = x_rest.copy(), x.copy(), R.copy()
    for j, parent in enumerate(parents):
        if parent >= 0:
            offsets[j] = x_rest[j] - x_rest[parent]
            rotations[:, j] = transpose(R[:, parent]) @ R[:, j]
            translations[:, j] = (transpose(R[:, parent]) @ (x[:, j] - x[:, parent])[..., None])[..., 0]
    rig = Rig(_names(document, file.rest.numbers), parents, offsets)
    return RigMotion(rig, fps, translations, rotations, document.path.stem, file=file)


def _names(document: _Document, numbers: Sequence[int]) -> tuple[str, ...]:
    names: list[str] = []
    for number in numbers:
        name = str(document.at("nodes", number).get("name") or f"node{number}")[:1000]
        names.append(name if name not in names else f"{name}_duplicate{number}")
    return tuple(names)


def _character(document: _Document) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes of the skin with most joints and those above them, parents first, and their parents among them."""
    nodes = document.list("nodes")
    above: dict[int, int] = {}
    for number, node in enumerate(nodes):
        for child in node.get("children", []) if isinstance(node.get("children", []), list) else []:
            document.at("nodes", child)
            if child in above:
                raise document.error("a node has two parents: the file is damaged")
            above[child] = number
    skins = [skin.get("joints", []) for skin in document.list("skins")]
    joints = max(skins, key=len, default=[])
    if not joints:
        raise document.error("has no skinned character: export it with its armature and mesh")
    wanted: set[int] = set()
    for joint in joints:
        document.at("nodes", joint)
        steps = 0
        while joint not in wanted:
            wanted.add(joint)
            steps += 1
            if steps > len(nodes):
                raise document.error("a node is its own parent: the file is damaged")
            if joint not in above:
                break
            joint = above[joint]
    if len(wanted) > MAX_JOINTS:
        raise document.error(f"more than {MAX_JOINTS} joints: this is not a person")
    order: list[int] = []
    stack = sorted((number for number in wanted if above.get(number, -1) not in wanted), reverse=True)
    while stack:
        number = stack.pop()
        if number in order:
            raise document.error("a node is its own parent: the file is damaged")
        order.append(number)
        stack.extend(sorted((c for c in nodes[number].get("children", []) if c in wanted), reverse=True))
    index = {number: j for j, number in enumerate(order)}
    return tuple(order), tuple(index.get(above.get(number, -1), -1) for number in order)


Channel = tuple[int, str, dict[str, Any]]
"""A node, what moves, and the keys."""


def _animation(document: _Document, nodes: set[int], name: str | None) -> tuple[int, list[Channel]]:
    found: list[tuple[int, list[Channel]]] = []
    for number, animation in enumerate(document.list("animations")):
        if name is not None and animation.get("name") != name:
            continue
        samplers, channels = document.list("samplers", animation), []
        for channel in document.list("channels", animation):
            target, sampler = channel.get("target"), channel.get("sampler")
            if not isinstance(target, dict) or not isinstance(sampler, int) or not 0 <= sampler < len(samplers):
                raise document.error("a channel of an animation is damaged")
            if target.get("node") in nodes and target.get("path") in ("rotation", "translation", "scale"):
                channels.append((target["node"], target["path"], samplers[sampler]))
        found.append((number, channels))
    best = max(found, key=lambda item: len(item[1]), default=(0, []))
    if not best[1]:
        names = ", ".join(str(a.get("name", "without a name")) for a in document.list("animations")[:10]) or "none"
        wanted = (
            "no animation that moves its character"
            if name is None
            else f"no animation {name!r} that moves its character"
        )
        raise document.error(f"has {wanted}; its animations: {names}")
    return best


def _rest(document: _Document, numbers: tuple[int, ...], parents: tuple[int, ...]) -> _Nodes:
    translations, rotations, scales = (
        np.zeros((len(numbers), 3)),
        np.tile(np.eye(3), (len(numbers), 1, 1)),
        np.ones(len(numbers)),
    )
    for j, (number, parent) in enumerate(zip(numbers, parents, strict=True)):
        node = document.at("nodes", number)
        if "matrix" in node:
            matrix = document.numbers(node["matrix"], 16, "matrix").reshape(4, 4).T
            translation, scale = matrix[:3, 3], np.linalg.norm(matrix[:3, :3], axis=0)
            rotation = matrix[:3, :3] / np.maximum(scale, 1e-12)
        else:
            translation = document.numbers(node.get("translation", [0, 0, 0]), 3, "translation")
            scale = document.numbers(node.get("scale", [1, 1, 1]), 3, "scale")
            turn = document.numbers(node.get("rotation", [0, 0, 0, 1]), 4, "rotation")
            if not np.linalg.norm(turn) > 0.5:
                raise document.error("the rotation of a node is no unit quaternion: the file is damaged")
            rotation = unitquat_to_rotmat(turn)
        if (
            np.ptp(scale) > UNIFORM * scale.max()
            or not scale.min() > 0
            or np.abs(rotation @ rotation.T - np.eye(3)).max() > 0.01
        ):
            raise document.error(
                f"the node {node.get('name', number)!r} is scaled unevenly or mirrored: apply the scale before exporting"
            )
        translations[j], rotations[j] = translation, rotation
        scales[j] = float(scale.mean()) * (scales[parent] if parent >= 0 else 1.0)
    return _Nodes(numbers, parents, translations, rotations, scales)


def _grid(document: _Document, channels: list[Channel]) -> tuple[float, float, int]:
    """Return the first time [s], the rate [Hz] and the number of frames at which the keys are read."""
    keys = [document.values(sampler.get("input"))[:, 0] for _, _, sampler in channels]
    if any(len(times) == 0 or (np.diff(times) <= 0).any() for times in keys):
        raise document.error("the times of an animation do not rise: the file is damaged")
    start, end = min(float(times[0]) for times in keys), max(float(times[-1]) for times in keys)
    if end - start > MAX_SECONDS:
        raise document.error(f"an animation of {end - start:.0f} s: cut it into pieces of at most {MAX_SECONDS:.0f} s")
    gaps = np.diff(max(keys, key=len))
    fps = USUAL_RATE
    if len(gaps) and np.ptp(gaps) < UNIFORM * gaps.mean() + 1e-4:
        rate = 1 / float(gaps.mean())
        fps = min(FASTEST, float(round(rate)) if abs(rate - round(rate)) < 0.01 * rate and round(rate) else rate)
    return start, fps, math.floor((end - start) * fps + 1e-3) + 1


def _sampled(
    document: _Document, sampler: dict[str, Any], at: Float[np.ndarray, "t"], *, turns: bool
) -> Float[np.ndarray, "t w"]:
    """Return a sampler's values at given times, as glTF interpolates them."""
    times, values = document.values(sampler.get("input"))[:, 0], document.values(sampler.get("output"))
    kind = sampler.get("interpolation", "LINEAR")
    parts = 3 if kind == "CUBICSPLINE" else 1
    if len(values) != parts * len(times) or values.shape[1] != (4 if turns else 3):
        raise document.error("an animation has another number of keys than of times: the file is damaged")
    low = np.clip(np.searchsorted(times, at + 1e-6, side="right") - 1, 0, max(len(times) - 2, 0))
    high = np.minimum(low + 1, len(times) - 1)
    gap = times[high] - times[low]
    share = np.clip((at - times[low]) / np.maximum(gap, 1e-9), 0, 1)[:, None]
    # Times are single precision: what is a hair from a key is the key.
    share = np.where(share < 1e-4, 0.0, np.where(share > 1 - 1e-4, 1.0, share))
    if kind == "CUBICSPLINE":
        inward, points, outward = values[::3], values[1::3], values[2::3]
        s2, s3 = share**2, share**3
        span = gap[:, None]
        found = (2 * s3 - 3 * s2 + 1) * points[low] + span * (s3 - 2 * s2 + share) * outward[low]
        found += (3 * s2 - 2 * s3) * points[high] + span * (s3 - s2) * inward[high]
    elif kind == "STEP":
        found = np.where(share < 1, values[low], values[high])
    elif turns:
        a, b = values[low], values[high]
        cosine = (a * b).sum(-1, keepdims=True)
        b, cosine = np.where(cosine < 0, -b, b), np.minimum(np.abs(cosine), 1.0)
        angle = np.arccos(cosine)
        near = angle < 1e-4
        weight = np.where(near, 1.0, np.sin(np.where(near, 1.0, angle)))
        one, other = (
            np.where(near, 1 - share, np.sin((1 - share) * angle)),
            np.where(near, share, np.sin(share * angle)),
        )
        found = (one * a + other * b) / weight
    else:
        found = (1 - share) * values[low] + share * values[high]
    if not turns:
        return found
    size = np.linalg.norm(found, axis=-1, keepdims=True)
    if not size.min() > 0.1:
        raise document.error("the rotation of a key is no unit quaternion: the file is damaged")
    return found / size
