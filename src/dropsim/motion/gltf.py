"""GLB in and back: a skinned character's animation is read, and written back into the same file; all else stays."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import apply, rotmat_to_unitquat, slerp_rotmat, transpose, unitquat_to_rotmat
from dropsim.files.atomic import atomic_path, errors_of
from dropsim.files.gltf import Glb
from dropsim.motion.bvh import MAX_JOINTS, MAX_POSES, SAME, Rig, RigMotion, SourceFile, unique_name

MAX_SECONDS = 3600.0
"""Longest animation that is read [s]."""
USUAL_RATE = 30.0
"""Rate of an animation whose keys have none of their own [Hz]."""
FASTEST = 240.0
"""Highest rate at which an animation is read [Hz]."""
UNIFORM = 0.01
"""Share by which the three numbers of one scale, and the gaps of keys at one rate, may differ."""
_FULL_SCALE = {"i1": 127.0, "u1": 255.0, "i2": 32767.0, "u2": 65535.0}
"""Integers that mean 1."""


@dataclass(frozen=True, eq=False)
class GlbFile(SourceFile):
    """Animation of a GLB file."""

    path: Path
    animation: int
    numbers: tuple[int, ...]
    """Node of each joint."""
    scales: Float[np.ndarray, "n"]
    """Size of each node's unit, with all nodes above it."""
    rest: RigMotion
    """Nodes without the animation, translations in the unit of the world."""
    moving: RigMotion
    """Nodes in every frame."""
    start: float
    """Time of the first frame [s]."""
    ending: ClassVar[str] = ".glb"
    up: ClassVar[str | None] = "y"

    def write_back(self, motion: RigMotion, path: Path, *, source: RigMotion) -> None:
        """Write frames into the file's animation: the channels of joints that changed are replaced, and nothing else.

        Frames beyond the source's end are added to those channels; the others hold their last keys, as glTF has it.
        """
        with errors_of(self.path):
            glb = Glb.read(self.path)
        R_world = motion.global_rotations()
        points, R_nodes = motion.positions(R_world), R_world @ self.rest.global_rotations()
        at = np.minimum(np.arange(len(motion)), len(source) - 1)
        times = (self.start + np.arange(len(motion)) / motion.fps).astype(np.float32)
        keys: dict[tuple[int, str], np.ndarray] = {}
        for j, (number, parent) in enumerate(zip(self.numbers, self.rest.rig.parents, strict=True)):
            R_parent = R_nodes[:, parent] if parent >= 0 else np.eye(3)
            turned = np.abs(motion.rotations[:, j] - source.rotations[at, j]).max() > SAME
            if turned or len(motion) > len(source):
                local, before = np.swapaxes(R_parent, -1, -2) @ R_nodes[:, j], self.moving.rotations[at, j]
                same = np.abs(local - before).max((-1, -2)) < SAME
                turns = rotmat_to_unitquat(np.where(same[:, None, None], before, local))
                signs = np.where((turns[1:] * turns[:-1]).sum(-1) < 0, -1.0, 1.0)
                turns[1:] *= np.cumprod(signs)[:, None]
                keys[number, "rotation"] = turns
            if np.abs(motion.translations[:, j] - source.translations[at, j]).max() > SAME:
                step = points[:, j] if parent < 0 else points[:, j] - points[:, parent]
                scale = self.scales[parent] if parent >= 0 else 1.0
                keys[number, "translation"] = apply(np.swapaxes(R_parent, -1, -2), step) / scale
        if keys:
            _replace_keys(glb, glb.list("animations")[self.animation], times, keys)
        data = glb.data()
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)


def _replace_keys(
    glb: Glb, animation: dict[str, Any], times: np.ndarray, keys: dict[tuple[int, str], np.ndarray]
) -> None:
    """Give nodes' channels new keys, or new channels."""
    channels, samplers = animation["channels"], animation["samplers"]
    known = {(c["target"].get("node"), c["target"].get("path")): c for c in channels}
    shared = [c["sampler"] for c in channels]
    rows = glb.add(times, bounds=True)
    for (node, path), values in keys.items():
        sampler = {"input": rows, "output": glb.add(values.astype(np.float32)), "interpolation": "LINEAR"}
        channel = known.get((node, path))
        if channel is None:
            channels.append({"sampler": len(samplers), "target": {"node": node, "path": path}})
            samplers.append(sampler)
        elif shared.count(channel["sampler"]) == 1:
            samplers[channel["sampler"]] = sampler
        else:
            channel["sampler"] = len(samplers)
            samplers.append(sampler)


def read_glb(path: str | Path, *, animation: str | None = None) -> RigMotion:
    """Read the character of a GLB file on its own rig: the skin with most joints, and an animation.

    That is the animation of a name, or the one that moves most. The rig's zero pose is the pose of the nodes without an
    animation. All nodes above the joints belong to the rig.
    """
    path = Path(path)
    with errors_of(path):
        glb = Glb.read(path)
        numbers, parents = _character(glb)
        chosen, channels = _animation(glb, set(numbers), animation)
        rest, scales = _rest(glb, numbers, parents)
        start, fps, count = _grid(glb, channels)
        if count * len(numbers) > MAX_POSES:
            raise ValueError(f"{count} frames are too many to hold in memory: cut the animation into pieces")
        translations = np.tile(rest.translations, (count, 1, 1))
        rotations = np.tile(rest.rotations, (count, 1, 1, 1))
        times = start + np.arange(count) / fps
        for node, kind, sampler in channels:
            j = numbers.index(node)
            values = _sampled(glb, sampler, times, turns=kind == "rotation")
            if kind == "rotation":
                rotations[:, j] = values
            elif kind == "translation":
                translations[:, j] = values * (scales[parents[j]] if parents[j] >= 0 else 1.0)
            elif np.ptp(values, axis=0).max() > UNIFORM * np.abs(values).max():
                raise ValueError("a joint changes its scale, which no person does: remove the scale keys")
        moving = RigMotion(rest.rig, fps, translations, rotations)
        return _aligned(GlbFile(path, chosen, numbers, scales, rest, moving, start))


def _aligned(file: GlbFile) -> RigMotion:
    """Return the motion with axes that are the world's in the rest pose, as in a BVH file: R' = R R_rest^T."""
    R_rest, R_moving = file.rest.global_rotations(), file.moving.global_rotations()
    x_rest, x = file.rest.positions(R_rest)[0], file.moving.positions(R_moving)
    R = R_moving @ transpose(R_rest)
    offsets, translations, rotations = x_rest.copy(), x.copy(), R.copy()
    for j, parent in enumerate(file.rest.rig.parents):
        if parent >= 0:
            R_back = transpose(R[:, parent])
            offsets[j] = x_rest[j] - x_rest[parent]
            rotations[:, j] = R_back @ R[:, j]
            translations[:, j] = apply(R_back, x[:, j] - x[:, parent])
    rig = Rig(file.rest.rig.names, file.rest.rig.parents, offsets)
    return RigMotion(rig, file.moving.fps, translations, rotations, file.path.stem, file=file)


def _character(glb: Glb) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes of the skin with most joints and those above them, parents first, and their parents."""
    nodes = glb.list("nodes")
    above = {child: number for number, node in enumerate(nodes) for child in node.get("children", [])}
    joints = max((skin["joints"] for skin in glb.list("skins")), key=len, default=[])
    if not joints:
        raise ValueError("has no skinned character: export it with its armature and mesh")
    if len(joints) > MAX_JOINTS:
        raise ValueError(f"more than {MAX_JOINTS} joints: this is not a person")

    def way_down(number: int) -> tuple[int, ...]:
        way = [number]
        while way[-1] in above and len(way) <= MAX_JOINTS:
            way.append(above[way[-1]])
        return tuple(reversed(way))

    wanted = {number for joint in joints for number in way_down(joint)}
    if len(wanted) > MAX_JOINTS or not all(0 <= number < len(nodes) for number in wanted):
        raise ValueError(f"its joints are no tree of at most {MAX_JOINTS} nodes: the file is damaged")
    order = sorted(wanted, key=way_down)
    parents = tuple(order.index(above[number]) if number in above else -1 for number in order)
    if any(parent >= j for j, parent in enumerate(parents)):
        raise ValueError("a node is its own parent: the file is damaged")
    return tuple(order), parents


Channel = tuple[int, str, dict[str, Any]]
"""A node, the property that moves, and its keys."""


def _animation(glb: Glb, nodes: set[int], name: str | None) -> tuple[int, list[Channel]]:
    """Return the number of an animation and its channels that move some nodes."""
    animations = glb.list("animations")

    def channels(animation: dict[str, Any]) -> Iterator[Channel]:
        for channel in animation["channels"]:
            node, path = channel["target"].get("node"), channel["target"].get("path")
            if node in nodes and path in ("rotation", "translation", "scale"):
                yield node, path, animation["samplers"][channel["sampler"]]

    candidates = [(i, list(channels(a))) for i, a in enumerate(animations) if name is None or a.get("name") == name]
    chosen, moved = max(candidates, key=lambda item: len(item[1]), default=(0, []))
    if not moved:
        names = ", ".join(str(a.get("name", "without a name")) for a in animations[:10]) or "none"
        wanted = "no animation" if name is None else f"no animation {name!r}"
        raise ValueError(f"has {wanted} that moves its character; its animations: {names}")
    return chosen, moved


def _rest(glb: Glb, numbers: tuple[int, ...], parents: tuple[int, ...]) -> tuple[RigMotion, Float[np.ndarray, "n"]]:
    """Return the pose of nodes without an animation, in the unit of the world, and the unit below each."""
    names: list[str] = []
    translations, rotations = np.zeros((1, len(numbers), 3)), np.zeros((1, len(numbers), 3, 3))
    scales = np.ones(len(numbers))
    for j, (number, parent) in enumerate(zip(numbers, parents, strict=True)):
        node = glb.list("nodes")[number]
        if "matrix" in node:
            matrix = _numbers(node, "matrix", 16).reshape(4, 4).T
            translation, scale = matrix[:3, 3], np.linalg.norm(matrix[:3, :3], axis=0)
            rotation = matrix[:3, :3] / np.maximum(scale, 1e-12)
        else:
            node = {"translation": [0, 0, 0], "scale": [1, 1, 1], "rotation": [0, 0, 0, 1]} | node
            translation, scale = _numbers(node, "translation", 3), _numbers(node, "scale", 3)
            rotation = unitquat_to_rotmat(_numbers(node, "rotation", 4))
        is_uniform = scale.min() > 0 and np.ptp(scale) <= UNIFORM * scale.max()
        if not (is_uniform and np.abs(rotation @ rotation.T - np.eye(3)).max() < 0.01):
            raise ValueError(f"the node {number} is scaled unevenly or mirrored: apply the scale before exporting")
        above = scales[parent] if parent >= 0 else 1.0
        translations[0, j], rotations[0, j], scales[j] = above * translation, rotation, above * float(scale.mean())
        names.append(unique_name(str(node.get("name") or f"node{number}")[:1000], names))
    return RigMotion(Rig(tuple(names), parents, translations[0]), 1.0, translations, rotations), scales


def _numbers(node: dict[str, Any], name: str, count: int) -> Float[np.ndarray, "n"]:
    try:
        numbers = np.array(node[name], dtype=np.float64)
    except (ValueError, TypeError):
        numbers = np.empty(0)
    if numbers.shape != (count,) or not (np.abs(numbers) < 1e6).all():
        raise ValueError(f"{name!r} of a node should be {count} numbers: the file is damaged")
    return numbers


def _values(glb: Glb, index: int) -> Float[np.ndarray, "n w"]:
    """Return an animation's numbers."""
    values = glb.values(index)
    scale = _FULL_SCALE.get(values.dtype.str[1:], 1.0)
    rows = np.maximum(values / scale, -1.0) if scale > 1 else values.astype(np.float64)
    if not (np.abs(rows) <= 1e6).all():
        raise ValueError("an animation holds numbers that are not finite")
    return rows


def _grid(glb: Glb, channels: list[Channel]) -> tuple[float, float, int]:
    """Return the first time [s], the rate [Hz] and the number of frames at which the keys are read."""
    keys = [_values(glb, sampler["input"])[:, 0] for _, _, sampler in channels]
    if any(len(times) == 0 or (np.diff(times) <= 0).any() for times in keys):
        raise ValueError("the times of an animation do not rise: the file is damaged")
    start, end = min(float(times[0]) for times in keys), max(float(times[-1]) for times in keys)
    if end - start > MAX_SECONDS:
        raise ValueError(f"an animation of {end - start:.0f} s: cut it into pieces of at most {MAX_SECONDS:.0f} s")
    gaps = np.diff(max(keys, key=len))
    fps = USUAL_RATE
    if len(gaps) and np.ptp(gaps) < UNIFORM * gaps.mean() + 1e-4:
        rate = 1 / float(gaps.mean())
        fps = min(FASTEST, float(round(rate)) if abs(rate - round(rate)) < 0.01 * rate and round(rate) else rate)
    return start, fps, math.floor((end - start) * fps + 1e-3) + 1


def _sampled(glb: Glb, sampler: dict[str, Any], at: Float[np.ndarray, "t"], *, turns: bool) -> np.ndarray:
    """Return a sampler's vectors or rotation matrices at given times, as glTF interpolates them."""
    times, values = _values(glb, sampler["input"])[:, 0], _values(glb, sampler["output"])
    kind = sampler.get("interpolation", "LINEAR")
    if values.shape != ((3 if kind == "CUBICSPLINE" else 1) * len(times), 4 if turns else 3):
        raise ValueError("an animation has another number of keys than of times: the file is damaged")
    low = np.clip(np.searchsorted(times, at + 1e-6, side="right") - 1, 0, max(len(times) - 2, 0))
    high = np.minimum(low + 1, len(times) - 1)
    gap = times[high] - times[low]
    share = np.clip((at - times[low]) / np.maximum(gap, 1e-9), 0, 1)[:, None]
    # Times are single precision: within a hair of a key is at the key.
    share = np.where(share < 1e-4, 0.0, np.where(share > 1 - 1e-4, 1.0, share))
    if kind == "CUBICSPLINE":
        inward, points, outward = values[::3], values[1::3], values[2::3]
        s2, s3 = share**2, share**3
        span = gap[:, None]
        curve = (2 * s3 - 3 * s2 + 1) * points[low] + span * (s3 - 2 * s2 + share) * outward[low]
        curve += (3 * s2 - 2 * s3) * points[high] + span * (s3 - s2) * inward[high]
    elif kind == "STEP":
        curve = np.where(share < 1, values[low], values[high])
    elif turns:
        R = unitquat_to_rotmat(values)
        return slerp_rotmat(R[low], R[high], share[:, 0])
    else:
        curve = (1 - share) * values[low] + share * values[high]
    return unitquat_to_rotmat(curve) if turns else curve
