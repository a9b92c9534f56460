"""What a person wants to do next: where to go, which way to face, how high to carry the pelvis. Any of it may be unknown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Intent:
    """The wanted velocity, facing and height of some people; NaN where a person leaves it open."""

    velocity: Float[np.ndarray, "*b 2"]
    """Over the ground, in the world [m/s]."""
    facing: Float[np.ndarray, "*b 2"]
    """Horizontal unit vector."""
    height: Float[np.ndarray, "*b"]
    """Of the pelvis above the ground [m]."""

    @classmethod
    def unknown(cls, *batch: int) -> "Intent":
        """Return the intent of people who want nothing in particular."""
        return cls(np.full((*batch, 2), np.nan), np.full((*batch, 2), np.nan), np.full(batch, np.nan))

    @classmethod
    def toward(cls, velocity: Float[np.ndarray, "*b 2"], *, look_ahead: bool = True) -> "Intent":
        """Go at a velocity, and face that way unless told otherwise or nearly standing."""
        speed = np.linalg.norm(velocity, axis=-1, keepdims=True)
        facing = np.where((speed > 0.2) & look_ahead, velocity / np.maximum(speed, 1e-9), np.nan)
        return cls(velocity, facing, np.full(velocity.shape[:-1], np.nan))

    def broadcast(self, *batch: int) -> "Intent":
        """Give it batch dimensions."""
        return Intent(
            np.broadcast_to(self.velocity, (*batch, 2)), np.broadcast_to(self.facing, (*batch, 2)), np.broadcast_to(self.height, batch)
        )

    def only(self, people: Bool[np.ndarray, "*b"]) -> "Intent":
        """Keep it for some people."""
        return Intent(
            np.where(people[..., None], self.velocity, np.nan),
            np.where(people[..., None], self.facing, np.nan),
            np.where(people, self.height, np.nan),
        )

    def pick(self, index: Int[np.ndarray, "n"]) -> "Intent":
        """Return the intents of some people, counted through all batch dimensions."""
        return Intent(self.velocity.reshape(-1, 2)[index], self.facing.reshape(-1, 2)[index], self.height.reshape(-1)[index])

    @property
    def known(self) -> Bool[np.ndarray, "*b"]:
        """People who want something."""
        return np.asarray(~(np.isnan(self.velocity).any(-1) & np.isnan(self.facing).any(-1) & np.isnan(self.height)))

    @classmethod
    def merged(cls, intents: Sequence["Intent | None"]) -> "Intent | None":
        """Combine intents: a later one decides where it is known."""
        given = [intent for intent in intents if intent is not None]
        if not given:
            return None
        found = given[0]
        for other in given[1:]:
            found = cls(*(np.where(np.isnan(b), a, b) for a, b in zip(vars(found).values(), vars(other).values(), strict=True)))
        return found
