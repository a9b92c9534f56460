"""What recordings on a level floor with empty hands do not have: leaning against a load, and arms held out on ground that tilts."""

import functools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, heading, transpose
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, State

WAIST = joint_index("spine1")
HAND_OUT = 0.3
"""From the middle of the body to a hand that hangs [m]."""
SHARE = 0.3
"""Of a load's moment that the trunk makes up for by leaning; for the rest the feet shift the pressure."""


def lean_against(mass: float, skeleton: Skeleton) -> float:
    """Return how far people lean away from a load in one hand [rad]: the trunk's moment about the waist makes up for the load's."""
    above = _beyond(WAIST)
    upper = float(skeleton.masses[above].sum())
    arm = float((skeleton.masses[above] * (skeleton.rest[above, 1] - skeleton.rest[WAIST, 1])).sum()) / upper
    return float(np.arctan2(SHARE * mass * HAND_OUT, upper * arm))


@dataclass(frozen=True, eq=False)
class LeanStage(Stage):
    """Ask the prior as if people stood upright, and tilt the trunks that it proposes to the left."""

    lean: Float[np.ndarray, "*b"]
    """To the left [rad]."""

    def query(self, state: State) -> State:
        x, q = _tilted(state.x, state.q, -self.lean)
        return replace(state, x=x, q=q)

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        x, q = _tilted(candidates.x, candidates.q, np.broadcast_to(self.lean[..., None], candidates.x.shape[:-2]))
        return Candidates(x, q, candidates.memory)


@dataclass(frozen=True, eq=False)
class BraceStage(Stage):
    """Ask the prior as if people let their arms hang, and hold out the arms that it proposes."""

    out: Float[np.ndarray, "*b"]
    """Away from the body [rad]."""

    def query(self, state: State) -> State:
        x, q = self._held(state.x, state.q, -self.out)
        return replace(state, x=x, q=q)

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        x, q = self._held(candidates.x, candidates.q, np.broadcast_to(self.out[..., None], candidates.x.shape[:-2]))
        return Candidates(x, q, candidates.memory)

    @staticmethod
    def _held(x: np.ndarray, q: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for shoulder, side in ((joint_index("left_shoulder"), 1.0), (joint_index("right_shoulder"), -1.0)):
            x, q = turned_at(shoulder, x, q, side * out)
        return x, q


def _tilted(
    x: Float[np.ndarray, "*c 22 3"], q: Float[np.ndarray, "*c 22 3 3"], lean: Float[np.ndarray, "*c"]
) -> tuple[Float[np.ndarray, "*c 22 3"], Float[np.ndarray, "*c 22 3 3"]]:
    """Turn everything above the waist to the left."""
    return turned_at(WAIST, x, q, -lean)


def turned_at(
    joint: int, x: Float[np.ndarray, "*c 22 3"], q: Float[np.ndarray, "*c 22 3 3"], angle: Float[np.ndarray, "*c"]
) -> tuple[Float[np.ndarray, "*c 22 3"], Float[np.ndarray, "*c 22 3 3"]]:
    """Turn everything beyond a joint about the way that the body faces."""
    turn, moved = exp(angle[..., None] * heading(q[..., 0, :, :])[..., 1, :]), _beyond(joint)
    above = np.eye(3)
    for link in _chain(PARENTS[joint]):
        above = above @ q[..., link, :, :]
    x, q, turns = np.array(x), np.array(q), (angle != 0)[..., None, None]
    pivot = x[..., joint, None, :]
    # Whoever is not turned is left as exactly as without.
    x[..., moved, :] = np.where(turns, pivot + (x[..., moved, :] - pivot) @ transpose(turn), x[..., moved, :])
    q[..., joint, :, :] = np.where(turns, transpose(above) @ turn @ above @ q[..., joint, :, :], q[..., joint, :, :])
    return x, q


def _chain(joint: int) -> list[int]:
    """Return a joint and those that carry it, the pelvis first."""
    return [] if joint < 0 else [*_chain(PARENTS[joint]), joint]


@functools.cache
def _beyond(joint: int) -> list[int]:
    """Return the joints that a joint moves."""
    return [other for other in range(len(PARENTS)) if other != joint and joint in _chain(other)]
