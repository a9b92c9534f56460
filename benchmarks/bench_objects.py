"""Processor time of a frame with 20 objects, 7 of them loose crates, and a mesh of 10,000 triangles, next to a frame on the plane."""

import time

import numpy as np

from dropsim import Simulator
from dropsim.scene import Box, Cylinder, Element, Obstacle, Patch, Person, Ramp, Scene, Stairs, Terrain, World

FRAMES, REPEATS = 120, 6
ROWS = 71
"""Of the mesh: 70 x 70 squares on top and as many below are 19,600 triangles, and half of them can be touched."""
CRATES = ((-0.8, 1.5), (0.8, 1.5), (-0.9, 2.6), (0.9, 2.6), (-2.5, 4.0), (2.5, 4.0), (0.2, 6.0))
"""Places of the crates, which fall from 10 cm [m]."""


def scenes() -> dict[str, Scene]:
    """Return the same walker on the plane, next to a mesh and on it, without and with objects."""
    heights = tuple(tuple(row) for row in np.random.default_rng(0).uniform(0, 0.02, (ROWS, ROWS)).tolist())
    fixed: tuple[Element, ...] = (
        *(Patch((x, 1.0)) for x in (-2.0, 2.0)),
        *(Box((x, y, 0.0), (0.4, 0.4, 1.0)) for x in (-1.5, 1.5) for y in (2.0, 5.0)),
        *(Cylinder((x, 3.5, 0.0)) for x in (-1.5, 1.5)),
        *(Obstacle((x, 3.0, 0.1), 0.1) for x in (-1.0, 1.0)),
        Ramp((4.0, 0.0)),
        Stairs((-4.0, 0.0)),
    )
    crates = tuple(Box((x, y, 0.1), (0.3, 0.3, 0.3), mass=4.0) for x, y in CRATES)
    people, found = (Person("walk", speed=1.2),), {"plane": Scene((Person("walk", speed=1.2),))}
    for where, x in (("next to a mesh", -7.0), ("on a mesh", 0.0)):
        mesh = Terrain((x, 4.0), (6.0, 6.0), heights)
        found[where] = Scene(people, (mesh,))
        found[f"{where}, 12 fixed objects"] = Scene(people, (mesh, *fixed))
        found[f"{where}, 12 fixed objects, 7 crates"] = Scene(people, (mesh, *fixed, *crates))
    return found


def main() -> None:
    """Take turns, so that other load affects all, and keep the least time of every frame."""
    simulator = Simulator.shipped()
    worlds = {name: World(scene, simulator) for name, scene in scenes().items()}
    best = {name: np.full(FRAMES, np.inf) for name in worlds}
    for _ in range(REPEATS):
        for name, world in worlds.items():
            now, rng = world.start(1), world.streams(1)
            for frame in range(FRAMES):
                began = time.process_time_ns()
                now, _ = world.step(now, rng)
                best[name][frame] = min(best[name][frame], (time.process_time_ns() - began) / 1e6)
    plane = best["plane"].mean()
    for name, times in best.items():
        print(
            f"{name:45} {times.mean():6.3f} ms, {times.mean() / plane:4.2f} of the plane, slowest second {worst(times) / plane:4.2f}"
        )


def worst(times: np.ndarray) -> float:
    """Return the mean of the slowest second [ms]."""
    return float(np.convolve(times, np.ones(30) / 30, "valid").max())


if __name__ == "__main__":
    main()
