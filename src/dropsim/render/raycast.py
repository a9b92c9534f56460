"""A painter in numpy alone: people are capsules with outlines, drawn at twice the size and averaged. No GPU, no display, no OpenGL."""

import math

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from dropsim.render.camera import Camera, View, plane_basis
from dropsim.render.snapshot import Snapshot, Part, Parts
from dropsim.render.painter import Painter
from dropsim.render.shadow import Square, sky_shadow
from dropsim.render.stage import Floor, Style

Box = tuple[slice, slice]
"""Rows and columns of pixels."""

OUTLINE = (0.13, 0.13, 0.17)
CREASE = 0.05
"""A jump in depth larger than this gets an outline [m]."""
SIGHT = 3.2
"""How far one sees before fog, in distances of the camera from its target."""


class RayCaster(Painter):
    """Casts a ray through every pixel, in one depth buffer."""

    def paint(self, moment: Snapshot, camera: Camera, style: Style) -> Image.Image:
        """Paint the floor, the ghost over it, and everybody else over that."""
        width, height = style.size
        picture = _draw_floor(View.of(camera, width, height), moment, sight=SIGHT * camera.distance)
        fine = View.of(camera, 2 * width, 2 * height)
        if moment.ghost is not None:
            _paint(picture, fine, moment.ghost.capsules(), moment.floor, opacity=moment.ghost_opacity)
        parts = Parts.join([*(figure.capsules() for figure in moment.people), moment.spheres, moment.arrows])
        _paint(picture, fine, parts, moment.floor)
        return Image.fromarray((picture.clip(0, 1) * 255 + 0.5).astype(np.uint8))


def _rays(view: View, box: Box, axes: Float[np.ndarray, "3 3"]) -> list[Float[np.ndarray, "h w"]]:
    """Return the rays of a box of pixels, each one metre deep, along three given axes."""
    rows, columns = box
    u = ((np.arange(columns.start, columns.stop) + 0.5 - view.centre[0]) / view.focal).astype(np.float32)
    v = ((view.centre[1] - 0.5 - np.arange(rows.start, rows.stop)) / view.focal).astype(np.float32)
    return [(u * row[0])[None, :] + (v * row[1] + row[2])[:, None] for row in (axes @ view.axes.T).astype(np.float32)]


def _everything(view: View) -> Box:
    return slice(0, view.height), slice(0, view.width)


def _floor_depth(view: View, floor: Floor) -> Float[np.ndarray, "h w"]:
    """Return the depth of the floor [m]; infinite from the horizon up."""
    down = np.minimum(_rays(view, _everything(view), plane_basis(floor.normal))[2], -1e-9)
    return np.where(down < -1e-4, np.float32(floor.offset - float(np.dot(floor.normal, view.eye))) / down, np.float32(np.inf))


def _box(view: View, part: Part) -> Box | None:
    """Return the pixels that a part may cover; none if it is out of sight."""
    ends = (np.stack((part.near, part.far)) - view.eye) @ view.axes.T
    depth = ends[:, 2] - part.radii
    if not (np.isfinite(ends).all() and depth.min() > 0.05):
        return None
    middle = view.centre + view.focal * ends[:, :2] * (1, -1) / ends[:, 2:]
    reach = (3 + 1.1 * view.focal * part.radii / depth)[:, None]
    left, top = np.clip((middle - reach).min(0), 0, (view.width, view.height)).astype(int).tolist()
    right, bottom = np.clip((middle + reach).max(0) + 1, 0, (view.width, view.height)).astype(int).tolist()
    return (slice(top, bottom), slice(left, right)) if left < right and top < bottom else None


def _cast(view: View, box: Box, part: Part, light: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Return the depth [m] (not a number where it is missed) and the brightness of a part along the rays of a box.

    In axes that make it round, with z along it, the cone is at rho = (r0 - z sin) / cos, where sin = (r0 - r1) / length. A ray o + t d
    meets each of the three surfaces where a t^2 + 2 b t + c = 0, first at t = c / (sqrt(b^2 - a c) - b). What is under the root is
    rewritten by Lagrange's identity, e.g. to a r^2 - |o x d|^2 for a sphere: b^2 - a c itself would cancel in single precision.
    """
    axis = part.squash @ (part.far - part.near)
    length = float(np.linalg.norm(axis))
    frame = plane_basis(axis / length if length > 1e-9 else np.eye(3)[2]) @ part.squash
    r0, r1 = part.radii.tolist()
    ox, oy, oz = (float(o) for o in frame @ (view.eye - part.near))
    dx, dy, dz = _rays(view, box, frame)
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


def _draw_parts(view: View, parts: Parts, floor: Floor, *, line: int) -> Float[np.ndarray, "h w 4"]:
    """Draw parts above the floor with lines of a width [pixels]: colours times coverage, and coverage in the fourth channel."""
    depth = _floor_depth(view, floor)
    shade = np.ones(depth.shape, np.float32)
    owner = np.zeros(depth.shape, np.intp)
    light = (np.array((-0.45, 0.75, -0.50)) @ view.axes).astype(np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        for number, part in enumerate(parts, start=1):
            if (box := _box(view, part)) is not None:
                hit, brightness = _cast(view, box, part, light)
                hit -= part.lift
                nearer = hit < depth[box]
                for buffer, value in ((depth, hit), (shade, brightness), (owner, number)):
                    np.copyto(buffer[box], value, where=nearer)
    depth[owner == 0] = 1e6
    edge = _outline(depth, line)
    coverage = (edge | (owner > 0)).astype(np.float32)
    owner[edge], shade[edge] = 0, 1.0
    palette = np.concatenate(([OUTLINE], parts.color)).astype(np.float32)
    return (
        np.concatenate((palette.take(owner, axis=0) * shade[..., None], np.ones((*owner.shape, 1), np.float32)), -1) * coverage[..., None]
    )


def _draw_floor(view: View, moment: Snapshot, *, sight: float) -> Float[np.ndarray, "h w 3"]:
    """Draw squares of half a metre that fade where sight ends [m], with soft shadows on them."""
    points, radii = moment.balls()
    axes, shift = moment.floor.frame()
    origin = (axes @ view.eye + shift).tolist()
    dx, dy, down = _rays(view, _everything(view), axes)
    depth = np.minimum(_floor_depth(view, moment.floor), np.float32(1e4))
    x, y = origin[0] + depth * dx, origin[1] + depth * dy
    check = np.float32(1.0)
    for at, slope in ((x, dx), (y, dy)):
        # A triangle wave over two squares, cut off one pixel from its zeros: a checkerboard that does not alias.
        pixel = depth * (1 + np.abs(slope / down.clip(max=-1e-3))) / view.focal
        check = check * np.clip((np.abs(at - np.floor(at) - 0.5) - 0.25) / (0.5 * pixel), -1.0, 1.0)
    texels, square = 256, Square.around((points @ axes.T + shift)[:, :2])
    shadow = sky_shadow(moment.floor, square, points, radii, texels=texels)
    i, j = (
        ((at - float(c)) * (texels / square.side)).clip(0, texels - 1).astype(np.intp) for at, c in zip((x, y), square.corner, strict=True)
    )
    value = (0.93 + np.exp(-np.square(depth / sight)) * (0.055 * check - 0.10)) * (1 - 0.7 * shadow[i, j])
    return value[..., None] * np.array((0.97, 0.985, 1.0), np.float32)


def _paint(picture: Float[np.ndarray, "h w 3"], view: View, parts: Parts, floor: Floor, *, opacity: float = 1.0) -> None:
    """Paint parts over a picture half as large as the view."""
    boxes = [box for part in parts if (box := _box(view, part)) is not None]
    if not boxes:
        return
    line = max(1, round(min(view.width, view.height) / 500))
    edges = np.array([(rows.start, columns.start, rows.stop, columns.stop) for rows, columns in boxes])
    top, left = (np.maximum(edges[:, :2].min(0) - 2 * line, 0) // 2 * 2).tolist()
    bottom, right = (np.minimum(edges[:, 2:].max(0) + 2 * line, (view.height, view.width)) // 2 * 2).tolist()
    fine = _draw_parts(view.cropped(slice(top, bottom), slice(left, right)), parts, floor, line=line)
    coarse = opacity * (fine[::2, ::2] + fine[1::2, ::2] + fine[::2, 1::2] + fine[1::2, 1::2]) / 4
    region = picture[top // 2 : bottom // 2, left // 2 : right // 2]
    region *= 1 - coarse[..., 3:]
    region += coarse[..., :3]
