"""GLB in and back: a skinned character's animation is read, and written back into the same file; all else stays."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import rotmat_to_unitquat, slerp_rotmat, unitquat_to_rotmat
from dropsim.files.atomic import atomic_path, errors_of
from dropsim.files.gltf import Glb
from dropsim.motion.bvh import MAX_JOINTS, SAME, Rig, RigMotion, SourceFile, unique_name

MAX_SECONDS = 3600.0
"""Longest animation that is read [s]."""
MAX_POSES = 2_000_000
"""Frames times joints that any file may have, ten minutes of 100 joints at 30 Hz: few keys can make many frames."""
USUAL_RATE = 30.0
"""Rate of an animation whose keys have none of their own [Hz]."""
FASTEST = 240.0
"""Highest rate at which an animation is read [Hz]."""
UNIFORM = 0.01
"""Share by which the three numbers of one scale, and the gaps of keys at one rate, may differ."""
_FULL_SCALE = {"i1": 127.0, "u1": 255.0, "i2": 32767.0, "u2": 65535.0}
"""Integers that mean 1."""

Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Number = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]


class _Node(msgspec.Struct):
    name: str | None = None
    children: list[Index] = []
    matrix: Annotated[list[Number], msgspec.Meta(min_length=16, max_length=16)] | None = None
    translation: tuple[Number, Number, Number] = (0.0, 0.0, 0.0)
    rotation: tuple[Number, Number, Number, Number] = (0.0, 0.0, 0.0, 1.0)
    scale: tuple[Number, Number, Number] = (1.0, 1.0, 1.0)


class _Skin(msgspec.Struct):
    joints: list[Index]


class _Target(msgspec.Struct):
    node: Index | None = None
    path: str | None = None


class _Channel(msgspec.Struct):
    sampler: Index
    target: _Target


class _Sampler(msgspec.Struct):
    input: Index
    output: Index
    interpolation: str = "LINEAR"


class _Animation(msgspec.Struct):
    channels: list[_Channel]
    samplers: list[_Sampler]
    name: str | None = None


class _Document(msgspec.Struct):
    """The parts of a glTF document that are read here, with their types."""

    nodes: list[_Node] = []
    skins: list[_Skin] = []
    animations: list[_Animation] = []


@dataclass(frozen=True, eq=False)
class GlbFile(SourceFile):
    """Animation of a GLB file."""

    path: Path
    animation: int
    numbers: tuple[int, ...]
    """Node of each joint."""
    scales: Float[np.ndarray, "n"]
    """Metres per unit of each joint's translation: the scale of all nodes above it."""
    start: float
    """Time of the first frame [s]."""
    ending: ClassVar[str] = ".glb"
    up: ClassVar[str | None] = "y"

    def write_back(self, motion: RigMotion, path: Path, *, source: RigMotion) -> None:
        """Write frames into the file's animation: the channels of joints that changed are replaced, and nothing else.

        Frames beyond the source's end are added to those channels; the others hold their last keys, as glTF has it.
        """
        at = np.minimum(np.arange(len(motion)), len(source) - 1)
        keys: dict[tuple[int, str], np.ndarray] = {}
        for j, number in enumerate(self.numbers):
            turns, before = motion.rotations[:, j], source.rotations[at, j]
            same = np.abs(turns - before).max((-1, -2)) < SAME
            if not same.all() or len(motion) > len(source):
                quaternions = rotmat_to_unitquat(np.where(same[:, None, None], before, turns))
                signs = np.where((quaternions[1:] * quaternions[:-1]).sum(-1) < 0, -1.0, 1.0)
                quaternions[1:] *= np.cumprod(signs)[:, None]
                keys[number, "rotation"] = quaternions
            if np.abs(motion.translations[:, j] - source.translations[at, j]).max() > SAME:
                keys[number, "translation"] = motion.translations[:, j] / self.scales[j]
        times = (self.start + np.arange(len(motion)) / motion.fps).astype(np.float32)
        with errors_of(self.path):
            glb = Glb.read(self.path)
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
    rows = glb.add(times, bounds=True)
    for (node, path), values in keys.items():
        channel: dict[str, Any] = known.get((node, path), {"target": {"node": node, "path": path}})
        if "sampler" not in channel:
            channels.append(channel)
        # A sampler of its own: channels may share one.
        channel["sampler"] = len(samplers)
        samplers.append({"input": rows, "output": glb.add(values.astype(np.float32)), "interpolation": "LINEAR"})


def read_glb(path: str | Path, *, animation: str | None = None) -> RigMotion:
    """Read the character of a GLB file on its own rig: the skin with most joints, and an animation.

    The animation is the named one, or the one that moves most. The rig's zero pose is the pose of the nodes without an
    animation. All nodes above the joints belong to the rig.
    """
    path = Path(path)
    with errors_of(path):
        glb = Glb.read(path)
        try:
            document = msgspec.convert(glb.json, _Document)
        except (msgspec.ValidationError, OverflowError) as error:
            raise ValueError(f"the file is damaged, export it again: {error}") from None
        numbers, parents = _character(glb, document.skins)
        joint_of = {number: j for j, number in enumerate(numbers)}
        chosen, channels = _animation(document, joint_of, animation)
        rig, scales = _rig(document.nodes, numbers, parents)
        start, fps, count = _grid(glb, channels)
        if count * len(numbers) > MAX_POSES and glb.budget is not None:
            glb.budget.take(count, len(numbers), 12)
        translations, rotations = np.tile(rig.offsets, (count, 1, 1)), np.tile(rig.rotations, (count, 1, 1, 1))
        times = start + np.arange(count) / fps
        for target, sampler in channels:
            j = joint_of[target.node or 0]
            values = _sampled(glb, sampler, times, turns=target.path == "rotation")
            if target.path == "rotation":
                rotations[:, j] = values
            elif target.path == "translation":
                translations[:, j] = values * scales[j]
            elif np.ptp(values, axis=0).max() > UNIFORM * np.abs(values).max():
                raise ValueError("a joint changes its scale, which no person does: remove the scale keys")
        file = GlbFile(path, chosen, numbers, scales, start)
        return RigMotion(rig, fps, translations, rotations, path.stem, file=file)


def _character(glb: Glb, skins: list[_Skin]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the nodes of the skin with most joints and those above them, parents first, and their parents."""
    joints = max((skin.joints for skin in skins), key=len, default=[])
    if not joints:
        raise ValueError("has no skinned character: export it with its armature and mesh")
    order, parents = glb.tree()
    wanted = set[int]()
    for joint in joints:
        while joint >= 0 and joint not in wanted:
            wanted.add(joint)
            joint = parents[joint]
    if len(wanted) > MAX_JOINTS:
        raise ValueError(f"more than {MAX_JOINTS} joints: this is not a person")
    numbers = [number for number in order if number in wanted]
    place = {number: j for j, number in enumerate(numbers)} | {-1: -1}
    return tuple(numbers), tuple(place[parents[number]] for number in numbers)


Channel = tuple[_Target, _Sampler]


def _animation(document: _Document, nodes: dict[int, int], name: str | None) -> tuple[int, list[Channel]]:
    """Return the number of an animation and its channels that move some nodes."""

    def channels(animation: _Animation) -> list[Channel]:
        moving = [c for c in animation.channels if c.target.node in nodes]
        moving = [c for c in moving if c.target.path in ("rotation", "translation", "scale")]
        return [(channel.target, animation.samplers[channel.sampler]) for channel in moving]

    animations = list(enumerate(document.animations))
    candidates = [(i, channels(one)) for i, one in animations if name is None or one.name == name]
    chosen, moved = max(candidates, key=lambda item: len(item[1]), default=(0, []))
    if not moved:
        names = ", ".join(one.name or "without a name" for _, one in animations[:10]) or "none"
        wanted = "no animation" if name is None else f"no animation {name!r}"
        raise ValueError(f"has {wanted} that moves its character; its animations: {names}")
    return chosen, moved


def _rig(nodes: list[_Node], numbers: tuple[int, ...], parents: tuple[int, ...]) -> tuple[Rig, Float[np.ndarray, "n"]]:
    """Return nodes without an animation, in the unit of the world, and the unit of each one's translation."""
    names: dict[str, None] = {}
    offsets, rotations, below = np.zeros((len(numbers), 3)), np.zeros((len(numbers), 3, 3)), np.ones(len(numbers) + 1)
    for j, (number, parent) in enumerate(zip(numbers, parents, strict=True)):
        node = nodes[number]
        if node.matrix is not None:
            matrix = np.array(node.matrix).reshape(4, 4).T
            translation, scale = matrix[:3, 3], np.linalg.norm(matrix[:3, :3], axis=0)
            rotation = matrix[:3, :3] / np.maximum(scale, 1e-12)
        else:
            translation, scale = np.array(node.translation), np.array(node.scale)
            rotation = unitquat_to_rotmat(np.array(node.rotation))
        is_uniform = scale.min() > 0 and np.ptp(scale) <= UNIFORM * scale.max()
        if not (is_uniform and np.abs(rotation @ rotation.T - np.eye(3)).max() < 0.01):
            raise ValueError(f"the node {number} is scaled unevenly or mirrored: apply the scale before exporting")
        offsets[j], rotations[j], below[j] = below[parent] * translation, rotation, below[parent] * scale.mean()
        names[unique_name((node.name or f"node{number}")[:1000], names)] = None
    return Rig(tuple(names), parents, offsets, rotations), below[list(parents)]


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
    keys = [_values(glb, sampler.input)[:, 0] for _, sampler in channels]
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


def _sampled(glb: Glb, sampler: _Sampler, at: Float[np.ndarray, "t"], *, turns: bool) -> np.ndarray:
    """Return a sampler's vectors or rotation matrices at given times, as glTF interpolates them."""
    times, values = _values(glb, sampler.input)[:, 0], _values(glb, sampler.output)
    kind = sampler.interpolation
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
