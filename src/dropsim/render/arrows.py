"""Forces on people as arrows."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.clothes import Color
from dropsim.body.skeleton import PARENTS
from dropsim.motion.motion import Motion

RED, BLUE = (0.90, 0.08, 0.12), (0.15, 0.25, 0.95)
METRES_PER_NEWTON, LONGEST_ARROW = 1e-3, 1.5


class Arrow(NamedTuple):
    """An arrow for a force."""

    start: Float[np.ndarray, "3"]
    """Point where the force acts [m]."""
    way: Float[np.ndarray, "3"]
    """Vector from there to the tip [m]."""
    color: Color


def resultants(joints: Float[np.ndarray, "22 3"], forces: Float[np.ndarray, "22 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Merge a push on neighbouring joints: return the middle and the sum of each run of bones with like forces."""
    group = list(range(len(joints)))
    for child, parent in enumerate(PARENTS):
        if parent >= 0 and np.any(forces[child]) and np.allclose(forces[child], forces[parent], rtol=0.05):
            group[child] = group[parent]
    members = [np.flatnonzero(np.array(group) == g) for g in sorted(set(group))]
    return np.stack([joints[m].mean(0) for m in members]), np.stack([forces[m].sum(0) for m in members])


def arrows_of(pose: Motion) -> list[Arrow]:
    """Return arrows for the forces above 1 N on a person at one frame."""
    joints, pairs = pose.joints[0], list[tuple[np.ndarray, np.ndarray, Color]]()
    if pose.contact_forces is not None:
        pairs += [(at, force, BLUE) for at, force in zip(joints, pose.contact_forces[0], strict=True)]
    if pose.external_forces is not None:
        merged = resultants(joints, pose.external_forces[0])
        pairs += [(at, force, RED) for at, force in zip(*merged, strict=True)]
    arrows = list[Arrow]()
    for at, force, color in pairs:
        newtons = float(np.linalg.norm(force))
        if 1 < newtons < np.inf:
            arrows.append(Arrow(at, force * min(METRES_PER_NEWTON, LONGEST_ARROW / newtons), color))
    return arrows
