"""Pictures and videos of motions, ray-cast in numpy: no GPU, no display.

Every part of the body is a round cone (two spheres and the cone tangent to both) in one depth buffer, drawn at twice the size and averaged.
Left limbs are teal and right limbs are orange.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from dropsim.files import atomic_path
from dropsim.motion import Motion
from dropsim.skeleton import PARENTS, joint_index

Color = tuple[float, float, float]
"""Red, green and blue in [0, 1]."""
Point = tuple[float, float, float]
Box = tuple[slice, slice]
"""Rows and columns of pixels."""
Progress = Callable[[int, int], None]
"""Called with the frames done and their number."""

TEAL, ORANGE, RED, BLUE = (0.11, 0.62, 0.60), (0.96, 0.55, 0.16), (0.90, 0.08, 0.12), (0.15, 0.25, 0.95)
SHIRT, SHORTS, SKIN, HAIR, OUTLINE = (0.80, 0.81, 0.84), (0.33, 0.35, 0.42), (0.92, 0.72, 0.59), (0.27, 0.19, 0.15), (0.13, 0.13, 0.17)

CREASE = 0.05
"""A jump in depth larger than this gets an outline [m]."""
METRES_PER_NEWTON, LONGEST_ARROW = 1e-3, 1.5
FASTEST_GIF = 50.0
"""Browsers slow down a GIF whose frames are shorter than 20 ms [Hz]."""


@dataclass(frozen=True)
class Camera:
    """A perspective camera that looks at a point, with world z up in the picture."""

    target: Point = (0.0, 0.0, 0.9)
    """The point in the middle of the picture [m]."""
    azimuth: float = 30.0
    """Where the camera stands around the target, counterclockwise from +x [degrees]; -90 is behind a person who faces +y."""
    elevation: float = 14.0
    """How far it stands above the target's level [degrees]."""
    distance: float = 5.0
    """From the target [m]."""
    field_of_view: float = 27.0
    """Across the picture's shorter side [degrees]."""


@dataclass(frozen=True)
class Plane:
    """The points p with normal . p = offset."""

    normal: Point = (0.0, 0.0, 1.0)
    """Unit vector, out of the ground."""
    offset: float = 0.0
    """[m]"""


@dataclass(frozen=True, eq=False)
class Sphere:
    """A ball or an obstacle on a path; where the path is not finite, it is not there."""

    path: Float[Tensor, "t 3"]
    """Centre at each frame of the motion [m]."""
    radius: float
    """[m]"""
    color: Color = (0.75, 0.30, 0.62)


FLOOR = Plane()


class _Part(NamedTuple):
    """A round cone in the world: a sphere at either end and the cone tangent to both [m]."""

    near: Float[np.ndarray, "3"]
    far: Float[np.ndarray, "3"]
    near_radius: float
    far_radius: float
    color: Color
    squash: Float[np.ndarray, "3 3"] | None = None
    """The linear map that makes a flattened part round."""
    lift: float = 0.0
    """How much nearer than it is it counts in the depth buffer, so that the body does not hide it [m]."""


class _Segment(NamedTuple):
    """How a part hangs on the skeleton: radii in collision radii of its joints, offsets in metres of an adult in its joints' own axes."""

    near: str
    far: str
    near_radius: float
    far_radius: float
    color: Color
    near_offset: Point = (0.0, 0.0, 0.0)
    """In the rest pose the axes are x left, y up, z forward."""
    far_offset: Point = (0.0, 0.0, 0.0)
    flat: int | None = None
    """The axis of the far joint along which it is flattened."""
    thickness: float = 1.0
    """How thick it is along that axis, as a share of its width."""


def _side(side: str, color: Color) -> tuple[_Segment, ...]:
    """Return the limbs of one side."""
    hip, knee, ankle, foot, collar, shoulder, elbow, wrist = (
        f"{side}_{joint}" for joint in ("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist")
    )
    zero, calf, heel, toes = (0.0, 0.0, 0.0), (0.0, -0.13, -0.018), (0.0, -0.033, -0.040), (0.0, -0.004, 0.060)
    x = 1.0 if side == "left" else -1.0
    palm, fingers, thumb = (0.065 * x, 0.0, 0.0), (0.13 * x, 0.0, 0.005), (0.07 * x, -0.01, 0.05)
    shoe = (0.5 * color[0], 0.5 * color[1], 0.5 * color[2])
    return (
        _Segment(hip, hip, 1.10, 1.08, SHORTS, (0.0, -0.02, 0.0), (0.0, -0.13, 0.0)),
        _Segment(hip, knee, 1.04, 1.00, color, (0.0, -0.04, 0.0)),
        _Segment(knee, knee, 1.00, 1.02, color, zero, calf),
        _Segment(knee, ankle, 1.02, 0.62, color, calf),
        _Segment(ankle, ankle, 0.64, 0.60, shoe, zero, heel),
        _Segment(ankle, foot, 0.62, 1.60, shoe, (0.0, -0.01, 0.012), zero, 1, 0.68),
        _Segment(foot, foot, 1.60, 1.30, shoe, zero, toes, 1, 0.62),
        _Segment(collar, shoulder, 0.90, 0.88, SHIRT, (0.0, -0.01, 0.0)),
        _Segment("neck", shoulder, 0.75, 0.70, SHIRT, (0.0, -0.005, -0.005)),
        _Segment(shoulder, elbow, 0.96, 0.90, color),
        _Segment(elbow, wrist, 0.92, 0.62, color),
        _Segment(wrist, wrist, 0.62, 0.85, SKIN, zero, palm, 1, 0.6),
        _Segment(wrist, wrist, 0.85, 0.50, SKIN, palm, fingers, 1, 0.5),
        _Segment(wrist, wrist, 0.35, 0.28, SKIN, (0.02 * x, 0.0, 0.02), thumb),
    )


_BODY = (
    _Segment("left_hip", "right_hip", 1.06, 1.06, SHORTS),
    _Segment("pelvis", "spine1", 1.16, 1.05, SHORTS, (0.0, -0.02, 0.0), (0.0, 0.0, 0.0), 2, 0.82),
    _Segment("spine1", "spine3", 1.06, 1.38, SHIRT, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 2, 0.74),
    _Segment("neck", "head", 0.90, 0.50, SKIN, (0.0, -0.02, -0.01)),
    _Segment("head", "head", 0.68, 0.90, SKIN, (0.0, 0.012, 0.028), (0.0, 0.072, 0.005), 0, 0.84),
    _Segment("head", "head", 0.80, 0.91, HAIR, (0.0, 0.045, -0.028), (0.0, 0.086, -0.014), 0, 0.88),
    _Segment("head", "head", 0.14, 0.17, SKIN, (0.0, 0.065, 0.092), (0.0, 0.036, 0.103)),
    *_side("left", TEAL),
    *_side("right", ORANGE),
)


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def _person(motion: Motion, index: int) -> list[_Part]:
    """Hang the body's parts on the joints of one frame."""
    joints, radii = _array(motion.joints[index]), _array(motion.skeleton.radii)
    axes = _array(motion.skeleton.global_rotations(motion.q[index]))
    size = motion.skeleton.leg_length / (0.491 * 1.70)
    parts = []
    for segment in _BODY:
        i, j = joint_index(segment.near), joint_index(segment.far)
        near = joints[i] + axes[i] @ np.array(segment.near_offset) * size
        far = joints[j] + axes[j] @ np.array(segment.far_offset) * size
        squash = None
        if segment.flat is not None:
            axis = axes[j][:, segment.flat]
            squash = np.eye(3) + (1 / segment.thickness - 1) * np.outer(axis, axis)
        parts.append(_Part(near, far, segment.near_radius * float(radii[i]), segment.far_radius * float(radii[j]), segment.color, squash))
    return parts


def _arrows(joints: Float[Tensor, "22 3"], forces: Float[Tensor, "22 3"], color: Color, *, head: bool) -> list[_Part]:
    """Draw forces [N] from their joints on, with an arrow head or without."""
    parts = []
    for start, force in zip(_array(joints), _array(forces), strict=True):
        newtons = float(np.linalg.norm(force))
        if newtons > 1:
            direction, length = force / newtons, min(newtons * METRES_PER_NEWTON, LONGEST_ARROW)
            tip = start + length * direction
            neck = tip - min(0.09, 0.7 * length) * direction if head else tip
            parts.append(_Part(start, neck, 0.012, 0.012, color, lift=1.0))
            if head:
                parts.append(_Part(neck, tip, 0.035, 0.002, color, lift=1.0))
    return parts


def _basis(normal: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Return two tangents and the unit normal itself as rows (Duff et al. 2017); they are x, y, z for z."""
    x, y, z = normal.tolist()
    sign = math.copysign(1.0, z)
    a = -1 / (sign + z)
    return np.array(((1 + sign * x * x * a, sign * x * y * a, -sign * x), (x * y * a, sign + y * y * a, -y), (x, y, z)))


@dataclass(frozen=True, eq=False)
class _View:
    """A camera with a picture: its place and axes in the world, and its lens in pixels."""

    eye: Float[np.ndarray, "3"]
    axes: Float[np.ndarray, "3 3"]
    """Right, up and forward as rows."""
    focal: float
    centre: tuple[float, float]
    """Column and row that the camera looks along."""
    width: int
    height: int

    @classmethod
    def of(cls, camera: Camera, width: int, height: int) -> "_View":
        a, e = math.radians(camera.azimuth), math.radians(camera.elevation)
        forward = -np.array((math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)))
        right = np.array((-math.sin(a), math.cos(a), 0.0))
        focal = 0.5 * min(width, height) / math.tan(math.radians(camera.field_of_view) / 2)
        axes = np.stack((right, np.cross(right, forward), forward))
        return cls(np.array(camera.target) - camera.distance * forward, axes, focal, (width / 2, height / 2), width, height)

    def everything(self) -> Box:
        return slice(0, self.height), slice(0, self.width)

    def cropped(self, box: Box) -> "_View":
        rows, columns = box
        centre = (self.centre[0] - columns.start, self.centre[1] - rows.start)
        return replace(self, centre=centre, width=columns.stop - columns.start, height=rows.stop - rows.start)

    def box(self, part: _Part) -> Box | None:
        """Return the pixels that a part may cover; none if it is out of sight."""
        ends = (np.stack((part.near, part.far)) - self.eye) @ self.axes.T
        radii = np.array((part.near_radius, part.far_radius))
        depth = ends[:, 2] - radii
        if not (np.isfinite(ends).all() and depth.min() > 0.05):
            return None
        middle = self.centre + self.focal * ends[:, :2] * (1, -1) / ends[:, 2:]
        reach = (3 + 1.1 * self.focal * radii / depth)[:, None]
        left, top = np.clip((middle - reach).min(0), 0, (self.width, self.height)).astype(int).tolist()
        right, bottom = np.clip((middle + reach).max(0) + 1, 0, (self.width, self.height)).astype(int).tolist()
        return (slice(top, bottom), slice(left, right)) if left < right and top < bottom else None

    def rays(self, box: Box, axes: Float[np.ndarray, "3 3"]) -> list[Float[np.ndarray, "h w"]]:
        """Return the rays of a box of pixels, each one metre deep, along three given axes."""
        rows, columns = box
        u = ((np.arange(columns.start, columns.stop) + 0.5 - self.centre[0]) / self.focal).astype(np.float32)
        v = ((self.centre[1] - 0.5 - np.arange(rows.start, rows.stop)) / self.focal).astype(np.float32)
        return [(u * row[0])[None, :] + (v * row[1] + row[2])[:, None] for row in (axes @ self.axes.T).astype(np.float32)]

    def depth(self, plane: Plane) -> Float[np.ndarray, "h w"]:
        """Return the depth of a plane [m]; infinite from the horizon up."""
        down = np.minimum(self.rays(self.everything(), _basis(np.array(plane.normal)))[2], -1e-9)
        return np.where(down < -1e-4, (plane.offset - float(np.dot(plane.normal, self.eye))) / down, np.float32(np.inf))


def _cast(view: _View, box: Box, part: _Part, light: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Return the depth [m] (not a number where it is missed) and the brightness of a part along the rays of a box.

    In axes that make it round, with z along it, the cone is at rho = (r0 - z sin) / cos, where sin = (r0 - r1) / length. A ray o + t d
    meets each of the three surfaces where a t^2 + 2 b t + c = 0, first at t = c / (sqrt(b^2 - a c) - b). What is under the root is
    rewritten by Lagrange's identity, e.g. to a r^2 - |o x d|^2 for a sphere: b^2 - a c itself would cancel in single precision.
    """
    squash = np.eye(3) if part.squash is None else part.squash
    axis = squash @ (part.far - part.near)
    length = float(np.linalg.norm(axis))
    frame = _basis(axis / length if length > 1e-9 else np.eye(3)[2]) @ squash
    r0, r1 = part.near_radius, part.far_radius
    ox, oy, oz = (float(o) for o in frame @ (view.eye - part.near))
    dx, dy, dz = view.rays(box, frame)
    squared, turn = dx * dx + dy * dy + dz * dz, np.square(ox * dy - oy * dx)
    b, c = ox * dx + oy * dy, ox * ox + oy * oy
    depth, slope = np.float32(np.nan), 0.0
    for z, r in ((oz, r0), (oz - length, r1)):
        root = np.sqrt(r * r * squared - turn - np.square(oy * dz - z * dy) - np.square(z * dx - ox * dz))
        depth = np.fmin(depth, (c + z * z - r * r) / (root - b - z * dz))
    if abs(r0 - r1) < length:
        sine = (r0 - r1) / length
        slope, rho = (value / math.sqrt(1 - sine * sine) for value in (sine, r0 - sine * oz))
        thinning = slope * dz
        root = np.sqrt(np.square(rho * dx + ox * thinning) + np.square(rho * dy + oy * thinning) - turn)
        side = (c - rho * rho) / (root - b - rho * thinning)
        z = oz + side * dz
        depth = np.fmin(depth, np.where((z > r0 * sine) & (z < length + r1 * sine), side, np.float32(np.nan)))
    x, y, z = ox + depth * dx, oy + depth * dy, oz + depth * dz
    z -= np.clip(z - slope * np.sqrt(x * x + y * y), 0.0, length)
    return depth, _brightness((x, y, z), frame, light)


def _brightness(
    normal: tuple[np.ndarray, np.ndarray, np.ndarray], frame: Float[np.ndarray, "3 3"], light: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "h w"]:
    """Shade by the angle between the light and a normal in a part's axes, softly around to the dark side."""
    x, y, z = normal
    world = [a * x + b * y + c * z for a, b, c in frame.T.astype(np.float32)]
    lit = world[0] * light[0] + world[1] * light[1] + world[2] * light[2]
    wrapped = 1 + lit / np.sqrt(world[0] ** 2 + world[1] ** 2 + world[2] ** 2)
    return 0.44 + 0.16 * wrapped * wrapped


def _outline(depth: Float[np.ndarray, "h w"], width: int) -> Bool[np.ndarray, "h w"]:
    """Return the pixels within a width of something that is nearer by more than a crease."""
    edge = np.zeros(depth.shape, bool)
    for lines, z in ((edge, depth), (edge.T, depth.T)):
        step = z[width:] - z[:-width]
        lines[width:] |= step > CREASE
        lines[:-width] |= step < -CREASE
    return edge


def _draw_parts(view: _View, parts: Sequence[_Part], floor: Plane, *, line: int) -> Float[np.ndarray, "h w 4"]:
    """Draw parts above the floor with lines of a width [pixels]: colours times coverage, and coverage in the fourth channel."""
    depth = view.depth(floor)
    shade = np.ones(depth.shape, np.float32)
    owner = np.zeros(depth.shape, np.intp)
    light = (np.array((-0.45, 0.75, -0.50)) @ view.axes).astype(np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        for number, part in enumerate(parts, start=1):
            if (box := view.box(part)) is not None:
                hit, brightness = _cast(view, box, part, light)
                hit -= part.lift
                nearer = hit < depth[box]
                for buffer, value in ((depth, hit), (shade, brightness), (owner, number)):
                    np.copyto(buffer[box], value, where=nearer)
    depth[owner == 0] = 1e6
    edge = _outline(depth, line)
    coverage = (edge | (owner > 0)).astype(np.float32)
    owner[edge], shade[edge] = 0, 1.0
    palette = np.array([(*OUTLINE, 1.0), *((*part.color, 1.0) for part in parts)], np.float32)
    picture = palette.take(owner, axis=0)
    picture[..., :3] *= shade[..., None]
    picture *= coverage[..., None]
    return picture


def _shadow(floor: Plane, points: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return a square map of the balls' shadow on the floor (0 to 1), the corner where it starts, and its texels per metre.

    A ball darkens a Gaussian below it that widens and pales with its height; a sum of separable Gaussians is one matrix product.
    """
    along = points @ _basis(np.array(floor.normal)).T
    spread = 0.6 * radii + 0.25 * np.maximum(along[:, 2] - floor.offset, radii)
    corner = along[:, :2].min(0) - 1.0
    texels, side = 256, float((along[:, :2].max(0) + 1.0 - corner).max())
    ticks = np.arange(texels) * side / texels
    x, y = (np.exp(-0.5 * ((ticks[:, None] + corner[i] - along[:, i]) / spread) ** 2) for i in range(2))
    # In strips too small for BLAS to wake its threads: waiting for them on busy cores takes longer than the whole picture.
    density = (x * (0.7 * radii / spread) ** 2).reshape(-1, 8, len(radii)) @ y.T
    shadow = 1 - np.exp(-density.reshape(texels, texels).astype(np.float32))
    # Everything further out reads the rim.
    shadow[[0, -1]] = shadow[:, [0, -1]] = 0.0
    return shadow, corner, texels / side


def _draw_floor(view: _View, floor: Plane, points: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"]) -> Float[np.ndarray, "h w 3"]:
    """Draw squares of half a metre that fade into the distance, with the shadow of balls on them."""
    axes = _basis(np.array(floor.normal))
    origin = (axes @ view.eye).tolist()
    dx, dy, down = view.rays(view.everything(), axes)
    depth = np.minimum(view.depth(floor), np.float32(1e4))
    x, y = origin[0] + depth * dx, origin[1] + depth * dy
    check = np.float32(1.0)
    for at, slope in ((x, dx), (y, dy)):
        # A triangle wave over two squares, cut off one pixel from its zeros: a checkerboard that does not alias.
        pixel = depth * (1 + np.abs(slope / down.clip(max=-1e-3))) / view.focal
        check = check * np.clip((np.abs(at - np.floor(at) - 0.5) - 0.25) / (0.5 * pixel), -1.0, 1.0)
    sight = 3.2 * float(np.linalg.norm(view.eye - points.mean(0)))
    shadow, corner, texels_per_metre = _shadow(floor, points, radii)
    i, j = (((at - float(c)) * texels_per_metre).clip(0, len(shadow) - 1).astype(np.intp) for at, c in ((x, corner[0]), (y, corner[1])))
    value = (0.93 + np.exp(-np.square(depth / sight)) * (0.055 * check - 0.10)) * (1 - 0.7 * shadow[i, j])
    return value[..., None] * np.array((0.97, 0.985, 1.0), np.float32)


def _shadow_casters(motion: Motion, index: int) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
    """Return balls that stand for the body in its shadow: at the joints and halfway along the bones."""
    joints, radii, parents = _array(motion.joints[index]), _array(motion.skeleton.radii), np.array(PARENTS[1:])
    return np.concatenate((joints, (joints[1:] + joints[parents]) / 2)), np.concatenate((radii, (radii[1:] + radii[parents]) / 2))


def draw_frame(
    motion: Motion, index: int, *, camera: Camera, size: tuple[int, int] = (480, 480), spheres: Sequence[Sphere] = (), floor: Plane = FLOOR
) -> Image.Image:
    """Draw one frame in a picture of a width and height [pixels], with external forces as red arrows and contact forces as blue lines."""
    _check(motion, spheres)
    parts = _person(motion, index)
    if motion.external_forces is not None:
        parts += _arrows(motion.joints[index], motion.external_forces[index], RED, head=True)
    if motion.contact_forces is not None:
        parts += _arrows(motion.joints[index], motion.contact_forces[index], BLUE, head=False)
    points, radii = _shadow_casters(motion, index)
    for sphere in spheres:
        centre = _array(sphere.path[index])
        if np.isfinite(centre).all():
            parts.append(_Part(centre, centre, sphere.radius, sphere.radius, sphere.color))
            points, radii = np.vstack((points, centre)), np.append(radii, sphere.radius)
    picture = _draw_floor(_View.of(camera, *size), floor, points, radii)
    _paint(picture, _View.of(camera, 2 * size[0], 2 * size[1]), parts, floor)
    return Image.fromarray((picture.clip(0, 1) * 255 + 0.5).astype(np.uint8))


def _paint(picture: Float[np.ndarray, "h w 3"], view: _View, parts: Sequence[_Part], floor: Plane) -> None:
    """Paint parts over a picture half as large as the view."""
    boxes = [box for part in parts if (box := view.box(part)) is not None]
    if not boxes:
        return
    line = max(1, round(min(view.width, view.height) / 500))
    edges = np.array([(rows.start, columns.start, rows.stop, columns.stop) for rows, columns in boxes])
    top, left = (np.maximum(edges[:, :2].min(0) - 2 * line, 0) // 2 * 2).tolist()
    bottom, right = (np.minimum(edges[:, 2:].max(0) + 2 * line, (view.height, view.width)) // 2 * 2).tolist()
    fine = _draw_parts(view.cropped((slice(top, bottom), slice(left, right))), parts, floor, line=line)
    coarse = (fine[::2, ::2] + fine[1::2, ::2] + fine[::2, 1::2] + fine[1::2, 1::2]) / 4
    region = picture[top // 2 : bottom // 2, left // 2 : right // 2]
    region *= 1 - coarse[..., 3:]
    region += coarse[..., :3]


def _check(motion: Motion, spheres: Sequence[Sphere] = ()) -> None:
    if motion.root.ndim != 2:
        raise ValueError(f"can draw one person at a time, got a motion with batch shape {tuple(motion.root.shape[:-2])}: pick one first")
    if not (finite := torch.isfinite(motion.joints).flatten(1).all(1)).all():
        raise ValueError(
            f"cannot draw a motion whose joints are not finite from frame {int((~finite).int().argmax())} on: cut it there first"
        )
    for sphere in spheres:
        if len(sphere.path) != len(motion):
            raise ValueError(f"a sphere's path needs a centre for each of the motion's {len(motion)} frames, got {len(sphere.path)}")


def _facing(motion: Motion) -> float:
    """Return where the person faces in the first frame, counterclockwise from +x [degrees]."""
    right_x, right_y = (-motion.q[0, 0, :2, 0]).tolist()
    return math.degrees(math.atan2(right_y, right_x)) + 90


def follow(motion: Motion, *, camera: Camera | None = None, half_life: float = 0.25) -> list[Camera]:
    """Return a camera for each frame that keeps its angle and tracks the pelvis over the ground, smoothed over +- half_life [s].

    The default camera stands in front of the person's left, as they face in the first frame.
    """
    _check(motion)
    camera = camera or Camera(azimuth=_facing(motion) + 55)
    height = 0.92 * motion.skeleton.standing_height
    path = _array(motion.root[:, :2])
    reach = max(1, round(2 * half_life * motion.fps))
    weights = np.exp2(-np.square(np.arange(-reach, reach + 1) / (half_life * motion.fps)))
    padded = np.pad(path, ((reach, reach), (0, 0)), mode="edge")
    smooth = [np.convolve(padded[:, i], weights / weights.sum(), mode="valid") for i in range(2)]
    return [replace(camera, target=(float(x), float(y), height)) for x, y in zip(*smooth, strict=True)]


def contact_sheet(
    motions: Sequence[Motion], path: Path, *, frames: int = 8, labels: Sequence[str] = (), size: tuple[int, int] = (220, 260)
) -> None:
    """Write a PNG with a row of evenly spaced frames for each motion; `size` is a cell's width and height [pixels]."""
    if not motions:
        raise ValueError("a contact sheet needs at least one motion")
    if labels and len(labels) != len(motions):
        raise ValueError(f"got {len(labels)} labels for {len(motions)} motions: give one each, or none")
    for motion in motions:
        _check(motion)
    header, (width, height) = 22, size
    sheet = Image.new("RGB", (frames * width, len(motions) * (height + header)), (40, 42, 48))
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    for row, motion in enumerate(motions):
        top = row * (height + header)
        draw.text((6, top + 3), labels[row] if labels else motion.name, fill="white", font=font)
        cameras = follow(motion, camera=Camera(azimuth=_facing(motion) + 55, distance=4.2))
        for column, index in enumerate(np.linspace(0, len(motion) - 1, frames).round().astype(int).tolist()):
            sheet.paste(draw_frame(motion, index, camera=cameras[index], size=(width - 2, height)), (column * width, top + header))
            draw.text((column * width + 5, top + header + 3), f"{index / motion.fps:.2f} s", fill=(60, 60, 70), font=font)
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def video(
    motion: Motion, path: Path, *, size: tuple[int, int] = (640, 480), fps: float | None = None, progress: Progress | None = None,
    camera: Camera | None = None, spheres: Sequence[Sphere] = (),
) -> None:  # fmt: skip
    """Write an mp4 or a gif, by the path's suffix, at the motion's own rate unless `fps` is given."""
    _check(motion, spheres)
    writers = {".mp4": _write_mp4, ".gif": _write_gif}
    if path.suffix.lower() not in writers:
        raise ValueError(f"cannot write a video as {path.name!r}: use a name that ends in .mp4 or .gif")
    if path.suffix.lower() == ".gif":
        fps = min(fps or motion.fps, FASTEST_GIF)
    if fps is not None:
        spheres = [replace(s, path=_resampled_path(s.path, motion.fps, fps)) for s in spheres]
        motion = motion.resampled(fps)
    pictures = _pictures(motion, size, follow(motion, camera=camera), spheres, progress)
    with atomic_path(path) as temporary:
        writers[path.suffix.lower()](temporary, pictures, size, motion.fps)


def _pictures(
    motion: Motion, size: tuple[int, int], cameras: Sequence[Camera], spheres: Sequence[Sphere], progress: Progress | None
) -> Iterator[Image.Image]:
    for index, camera in enumerate(cameras):
        yield draw_frame(motion, index, camera=camera, size=size, spheres=spheres)
        if progress is not None:
            progress(index + 1, len(motion))


def _resampled_path(path: Float[Tensor, "t 3"], fps: float, new_fps: float) -> Float[Tensor, "n 3"]:
    """Interpolate a path at the times of Motion.resampled."""
    at = (torch.arange(int((len(path) - 1) / fps * new_fps + 1e-6) + 1) * (fps / new_fps)).clamp(max=len(path) - 1)
    low = at.long()
    return torch.lerp(path[low], path[(low + 1).clamp(max=len(path) - 1)], (at - low).to(path)[:, None])


def _write_mp4(path: Path, pictures: Iterator[Image.Image], size: tuple[int, int], fps: float) -> None:
    try:
        import av
    except ImportError as error:
        raise ValueError("writing mp4 needs PyAV: run `pip install dropsim[video]`, or write a .gif") from error
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"H.264 needs an even width and height, got {size[0]} x {size[1]}")
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options={"crf": "18", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        # One thread: the same bytes on every machine, and drawing is slower than encoding anyway.
        stream.thread_count = 1
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())


def _write_gif(path: Path, pictures: Iterator[Image.Image], size: tuple[int, int], fps: float) -> None:
    first = next(pictures).quantize(256)
    rest = [picture.quantize(palette=first, dither=Image.Dither.NONE) for picture in pictures]
    # A GIF counts in hundredths of a second: spread the rounding, or 30 frames a second play 10 % too fast.
    ends = [round(100 * i / fps) for i in range(len(rest) + 2)]
    durations = [10 * (end - start) for start, end in pairwise(ends)]
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0)
