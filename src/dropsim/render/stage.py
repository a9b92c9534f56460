"""The style of a picture, and cameras that follow people."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import plane_basis
from dropsim.export.stage import Stage, as_stage
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.render.camera import Camera

MIN_SIDE, MAX_PIXELS = 16, 3840 * 2160
"""Least side and largest area of a picture [pixels]."""
MAX_FPS = 240.0
"""Largest rate of a video [Hz]."""


def floor_axes(floor: Plane) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]]:
    """Return A and b such that A p + b is the place of p along the floor's squares and its height above the floor."""
    axes = plane_basis(floor.normal)
    return axes, np.array((*(floor.pivot - axes @ floor.pivot)[:2], -float(floor.offset)))


def floor_height(floor: Plane, x: float, y: float) -> float:
    """Return its z at a place [m]; a wall counts as level."""
    normal_x, normal_y, up = floor.normal.tolist()
    return (float(floor.offset) - normal_x * x - normal_y * y) / up if up > 0.2 else float(floor.offset)


@dataclass(frozen=True)
class Style:
    """Size and content of a picture."""

    size: tuple[int, int] = (640, 480)
    """Width and height [pixels]; of one cell in a contact sheet."""
    forces: bool = True
    """Draw contact forces as blue arrows and external forces as red ones, a metre for 1000 N."""
    caption: str = ""
    """A line of text at the top."""

    def __post_init__(self) -> None:
        width, height = self.size
        if min(width, height) < MIN_SIDE or width * height > MAX_PIXELS:
            raise ValueError(
                f"cannot draw a picture of {width} x {height}: give sides from {MIN_SIDE} pixels, up to 3840 x 2160 in all"
            )


ARMS = 0.5
"""Distance from the hips to the farthest part of a walking person [m]."""


def follow(shown: Stage | Motion, *, camera: Camera | None = None, half_life: float = 0.25) -> list[Camera]:
    """Return a camera for each frame that keeps its angle and tracks people over the ground, smoothed by half_life [s].

    The default camera stands in front of the first person's left, as they face in the first frame. It stands further
    back where people are apart, up to six metres from their middle.
    """
    stage = as_stage(shown)
    camera = camera or Camera(azimuth=stage.azimuth())
    height = 0.92 * max(motion.skeleton.standing_height for motion in stage.people)
    paths = np.stack([_padded(motion.root[:, :2], len(stage)) for motion in stage.people])
    middle = (paths.min(0) + paths.max(0)) / 2
    others = (
        paths if stage.ghost is None else np.concatenate((paths, _padded(stage.ghost.root[:, :2], len(stage))[None]))
    )
    spread = np.linalg.norm(others - middle, axis=-1).max(0).clip(max=6.0)
    ground = [floor_height(stage.plane(i), *middle[i].tolist()) for i in range(len(stage))]
    if any(not solid.radius for solid in stage.objects):  # on which people may stand
        lowest = np.stack([_padded(motion.joints[..., 2].min(-1), len(stage)) for motion in stage.people]).min(0)
        ground = np.maximum(ground, _smoothed(lowest[:, None], 2 * half_life * stage.fps)[:, 0] - 0.1)
    track = _smoothed(np.column_stack((middle, ground, spread)), half_life * stage.fps)
    slope = math.tan(math.radians(camera.field_of_view / 2))
    # People at the side are within the picture's width, with their arms.
    return [
        replace(camera, target=(x, y, z + height), distance=max(camera.distance, (apart + ARMS) / slope))
        for x, y, z, apart in track.tolist()
    ]


def _padded(values: np.ndarray, frames: int) -> np.ndarray:
    """Hold the last value until a number of frames is reached."""
    return values[np.minimum(np.arange(frames), len(values) - 1)]


def _smoothed(path: Float[np.ndarray, "t n"], half_life: float) -> Float[np.ndarray, "t n"]:
    reach = max(1, round(2 * half_life))
    weights = np.exp2(-np.square(np.arange(-reach, reach + 1) / half_life))
    padded = np.pad(path, ((reach, reach), (0, 0)), mode="edge")
    return np.stack([np.convolve(column, weights / weights.sum(), mode="valid") for column in padded.T], axis=1)
