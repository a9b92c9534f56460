"""The kernels that draw: triangles into a buffer of nearness, light on what is seen of them, and the floor under a sky."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.compute.jit import fast_kernel

Array = Any
"""numba knows the types."""
SMOOTH = 1.005
"""Ratio of the depths in a pixel above which an edge runs through it."""
EDGE = -1e-6
"""Slack of a triangle's edge, so that no sample falls between two triangles."""

GROUND_LIGHT, SKY_LIGHT, SUN_LIGHT = (0.40, 0.38, 0.36), (0.62, 0.66, 0.72), (0.80, 0.76, 0.70)
"""Light on people and objects: from below, from above, and from the sun."""
HORIZON, ZENITH = (0.955, 0.965, 0.975), (0.74, 0.82, 0.90)
DARK_TILE, LIGHT_TILE = (0.775, 0.825, 0.840), (0.905, 0.930, 0.935)
FLOOR_SKY, FLOOR_SUN = (0.60, 0.63, 0.68), (0.42, 0.40, 0.37)
"""Light of the sky and of the sun on the floor."""
OPEN = tuple(math.sqrt(sky + sun) for sky, sun in zip(FLOOR_SKY, FLOOR_SUN, strict=True))
"""Brightness of a floor without shadows."""


class Light(NamedTuple):
    """Light of a picture, as the kernels take it."""

    eye: np.ndarray
    """Place of the camera [m]."""
    sun: np.ndarray
    """Unit vector towards it."""
    above: np.ndarray
    """Dot product with (p, 1): height of p above the floor [m]."""
    onto_sun: np.ndarray
    """3 x 4: column, row and nearness of a point in the sun's map."""
    sun_map: np.ndarray
    """Nearness to the sun of what it shines on."""
    texel: float
    """Size of a texel of the sun's map [m]."""


@fast_kernel
def rasterize(points: Array, faces: Array, facing: int, floor: Array, nearness: Array, owner: Array) -> None:
    """Draw triangles of one winding, given by column, row and nearness of their corners, into buffers that begin with zeros.

    The largest nearness wins; `owner` gets the number of its triangle, from 1 on. Nothing is drawn that is behind the
    floor, whose nearness at a pixel is the dot product of `floor` with (column, row, 1).
    """
    height, width = nearness.shape
    for f in range(len(faces)):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ax, ay, az = points[a, 0], points[a, 1], points[a, 2]
        bx, by, bz = points[b, 0], points[b, 1], points[b, 2]
        cx, cy, cz = points[c, 0], points[c, 1], points[c, 2]
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        if not area * facing > 0:
            continue
        left, right = max(min(ax, bx, cx) - 0.5, 0.0), min(max(ax, bx, cx) - 0.5, width - 1.0)
        top, bottom = max(min(ay, by, cy) - 0.5, 0.0), min(max(ay, by, cy) - 0.5, height - 1.0)
        # Changes of two corners' weights from column to column.
        da, db = (by - cy) / area, (cy - ay) / area
        for row in range(math.ceil(top), math.floor(bottom) + 1):
            y = row + 0.5
            a_of_row, b_of_row = ((bx * (cy - y) - cx * (by - y)) / area, (cx * (ay - y) - ax * (cy - y)) / area)
            for column in range(math.ceil(left), math.floor(right) + 1):
                x = column + 0.5
                wa, wb = a_of_row + da * x, b_of_row + db * x
                wc = 1.0 - wa - wb
                if wa >= EDGE and wb >= EDGE and wc >= EDGE:
                    near = wa * az + wb * bz + wc * cz
                    if near > nearness[row, column] and near > floor[0] * x + floor[1] * y + floor[2]:
                        nearness[row, column] = near
                        owner[row, column] = f + 1


@fast_kernel
def _sunlight(x: float, y: float, z: float, onto: Array, sun_map: Array) -> float:
    """Return how much of the sun reaches a point: a tent filter over 4 x 4 texels of its map."""
    column = onto[0, 0] * x + onto[0, 1] * y + onto[0, 2] * z + onto[0, 3] - 0.5
    row = onto[1, 0] * x + onto[1, 1] * y + onto[1, 2] * z + onto[1, 3] - 0.5
    near = onto[2, 0] * x + onto[2, 1] * y + onto[2, 2] * z + onto[2, 3]
    left, top = math.floor(column) - 1, math.floor(row) - 1
    if left < 0 or top < 0 or left + 4 > sun_map.shape[1] or top + 4 > sun_map.shape[0]:
        return 1.0
    total = 0.0
    for i in range(4):
        for j in range(4):
            if near >= sun_map[top + i, left + j]:
                total += (2.0 - abs(top + i - row)) * (2.0 - abs(left + j - column))
    return total / 16.0


@fast_kernel
def _lit(at: Array, albedo: Array, light: Light, color: Array) -> None:
    """Add the colour of a point to a sum: `at` is its place and normal, `albedo` what it is painted with."""
    eye, sun, above = light.eye, light.sun, light.above
    x, y, z = at[0], at[1], at[2]
    length = max(math.sqrt(at[3] ** 2 + at[4] ** 2 + at[5] ** 2), 1e-12)
    nx, ny, nz = at[3] / length, at[4] / length, at[5] / length
    facing = nx * sun[0] + ny * sun[1] + nz * sun[2]
    lit, out = 0.0, 2.5 * light.texel
    if facing > 0.0:
        lit = facing * _sunlight(x + out * nx, y + out * ny, z + out * nz, light.onto_sun, light.sun_map)
    # From above comes the sky, from below what the floor throws back, less of it close to the floor.
    up = 0.5 + 0.5 * (nx * above[0] + ny * above[1] + nz * above[2])
    low = 0.55 + 0.45 * min(max((above[0] * x + above[1] * y + above[2] * z + above[3]) / 0.6, 0.0), 1.0)
    sky = low + (1.0 - low) * up
    ex, ey, ez = eye[0] - x, eye[1] - y, eye[2] - z
    far = math.sqrt(ex * ex + ey * ey + ez * ez)
    ex, ey, ez = ex / far, ey / far, ez / far
    rim = 0.10 * (1.0 - min(max(nx * ex + ny * ey + nz * ez, 0.0), 1.0)) ** 3
    hx, hy, hz = ex + sun[0], ey + sun[1], ez + sun[2]
    shine = (nx * hx + ny * hy + nz * hz) / math.sqrt(hx * hx + hy * hy + hz * hz)
    gloss = 0.05 * lit * min(max(shine, 0.0), 1.0) ** 24
    direct = 0.85 * lit + 0.18 * min(max(0.25 + 0.75 * facing, 0.0), 1.0)
    for k in range(3):
        ambient = (GROUND_LIGHT[k] + (SKY_LIGHT[k] - GROUND_LIGHT[k]) * up) * sky
        color[k] += math.sqrt(albedo[k] ** 2 * (ambient + SUN_LIGHT[k] * direct) + rim * ambient + gloss)


@fast_kernel
def shade(
    picture: Array,
    samples: tuple[Array, Array, Array],
    mesh: tuple[Array, Array],
    light: Light,
    opacity: float,
) -> None:
    """Light the triangles that own the samples of a picture, four a pixel, and lay them over it.

    `samples` are owners and nearness, as `rasterize` writes them, and its points. `mesh` is a row for each corner, with
    place, normal, colour and smooth piece (-1: none), and the faces.
    """
    (owner, nearness, points), (surface, faces) = samples, mesh
    at, albedo, color = np.empty(6), np.empty(3), np.empty(3)
    for row in range(0, owner.shape[0], 2):
        for column in range(0, owner.shape[1], 2):
            near, far, count = 0.0, np.inf, 0
            first, last = np.inf, -1.0
            for i in range(row, row + 2):
                for j in range(column, column + 2):
                    if owner[i, j] > 0:
                        near, far, count = max(near, nearness[i, j]), min(far, nearness[i, j]), count + 1
                        piece = surface[faces[owner[i, j] - 1, 0], 9]
                        first, last = min(first, piece), max(last, piece)
            if count == 0:
                continue
            # One sample is enough where no edge and no seam runs through a person's skin.
            smooth = count == 4 and near < SMOOTH * far and 0 <= first == last
            color[:], shaded = 0.0, 0
            for sample in range(1 if smooth else 4):
                i, j = row + sample // 2, column + sample % 2
                f = owner[i, j] - 1
                if f < 0:
                    continue
                a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
                ax, ay, az = points[a, 0], points[a, 1], points[a, 2]
                bx, by, bz = points[b, 0], points[b, 1], points[b, 2]
                cx, cy, cz = points[c, 0], points[c, 1], points[c, 2]
                x, y = j + 0.5, i + 0.5
                # Nearness, the inverse depth, makes weights on the screen those in the world.
                wa = az * ((bx - x) * (cy - y) - (by - y) * (cx - x))
                wb = bz * ((cx - x) * (ay - y) - (cy - y) * (ax - x))
                wc = cz * ((ax - x) * (by - y) - (ay - y) * (bx - x))
                total = wa + wb + wc
                for k in range(6):
                    at[k] = (wa * surface[a, k] + wb * surface[b, k] + wc * surface[c, k]) / total
                for k in range(3):
                    albedo[k] = (wa * surface[a, 6 + k] + wb * surface[b, 6 + k] + wc * surface[c, 6 + k]) / total
                _lit(at, albedo, light, color)
                shaded += 1
            share, pixel = 0.25 * count * opacity, picture[row // 2, column // 2]
            for k in range(3):
                pixel[k] = min(pixel[k] + share * (255.0 * color[k] / shaded - pixel[k]) + 0.5, 255.0)


@fast_kernel
def _wave(at: float, width: float) -> float:
    """Return the mean of a wave of squares of half a metre over an interval (a box filter)."""
    a, b = at + 0.5 * width, at - 0.5 * width
    return (abs(a - np.floor(a) - 0.5) - abs(b - np.floor(b) - 0.5)) / width


@fast_kernel
def draw_floor(picture: Array, rays: Array, ground: Array, sight: float, shadows: Array, square: Array) -> None:
    """Draw the floor's squares with the shadows on them, fading into the sky where sight ends [m].

    A pixel (column, row, 1) is turned by `rays` into the direction of its ray, and by `ground` into the place on the
    floor and 1, over the depth. `square` is the corner and the side of the part of the floor that the shadows' map
    covers [m].
    """
    texels, texel = len(shadows), len(shadows) / square[2]
    for row in range(picture.shape[0]):
        for column in range(picture.shape[1]):
            x, y = column + 0.5, row + 0.5
            dx = rays[0, 0] * x + rays[0, 1] * y + rays[0, 2]
            dy = rays[1, 0] * x + rays[1, 1] * y + rays[1, 2]
            dz = rays[2, 0] * x + rays[2, 1] * y + rays[2, 2]
            length = math.sqrt(dx * dx + dy * dy + dz * dz)
            # The sky is palest at the horizon.
            pale = math.exp(-2.2 * dz / length) if dz > 0 else 1.0
            near = ground[2, 0] * x + ground[2, 1] * y + ground[2, 2]
            clear, tile, sky_dark, sun_dark = 0.0, 0.0, 0.0, 0.0
            if near * sight > 0.4 * length:
                depth = 1.0 / near
                clear = math.exp(-((length * depth / sight) ** 2))
                u = (ground[0, 0] * x + ground[0, 1] * y + ground[0, 2]) * depth
                v = (ground[1, 0] * x + ground[1, 1] * y + ground[1, 2]) * depth
                # How far the place moves from a pixel to its neighbours.
                du = (abs(ground[0, 0] - u * ground[2, 0]) + abs(ground[0, 1] - u * ground[2, 1])) * depth
                dv = (abs(ground[1, 0] - v * ground[2, 0]) + abs(ground[1, 1] - v * ground[2, 1])) * depth
                tile = 0.5 + 0.5 * _wave(u, max(du, 1e-4)) * _wave(v, max(dv, 1e-4))
                i, j = (v - square[1]) * texel - 0.5, (u - square[0]) * texel - 0.5
                if 0.0 <= i < texels - 1.0 and 0.0 <= j < texels - 1.0:
                    top, left = int(i), int(j)
                    for k in range(4):
                        share = abs(1 - k // 2 - i + top) * abs(1 - k % 2 - j + left)
                        sky_dark += share * shadows[top + k // 2, left + k % 2, 0]
                        sun_dark += share * shadows[top + k // 2, left + k % 2, 1]
            for k in range(3):
                color = ZENITH[k] + (HORIZON[k] - ZENITH[k]) * pale
                if clear > 0.0:
                    albedo, brightness = DARK_TILE[k] + (LIGHT_TILE[k] - DARK_TILE[k]) * tile, OPEN[k]
                    if sky_dark + sun_dark > 0.0:
                        sun = FLOOR_SUN[k] * (1.0 - sun_dark) * (1.0 - 0.25 * sky_dark)
                        brightness = math.sqrt(FLOOR_SKY[k] * (1.0 - 0.80 * sky_dark) + sun)
                    color += (albedo * brightness - color) * clear
                picture[row, column, k] = 255.0 * color + 0.5


@fast_kernel
def blur(values: Array, weights: Array) -> Array:
    """Return the transpose of an array, filtered along its rows by a symmetric kernel given from its middle on."""
    height, width = values.shape
    out = np.empty((width, height), values.dtype)
    for row in range(height):
        for column in range(width):
            total = weights[0] * values[row, column]
            for k in range(1, len(weights)):
                total += weights[k] * (values[row, max(column - k, 0)] + values[row, min(column + k, width - 1)])
            out[column, row] = total
    return out
