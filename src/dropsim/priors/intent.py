"""What a person wants to do next: where to go or stand, which way to face, how high to carry the pelvis. Any of it may be unknown."""

from collections.abc import Callable, Sequence
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
    place: Float[np.ndarray, "*b 2"] | None = None
    """Place to stand at, between the feet [m]; None or NaN for people who go somewhere."""

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
        return self._map(lambda values, vector: np.broadcast_to(values, (*batch, *vector)))

    def only(self, people: Bool[np.ndarray, "*b"]) -> "Intent":
        """Keep it for some people."""
        return self._map(lambda values, vector: np.where(people[..., None] if vector else people, values, np.nan))

    def pick(self, index: Int[np.ndarray, "n"]) -> "Intent":
        """Return the intents of some people, counted through all batch dimensions."""
        return self._map(lambda values, vector: values.reshape(-1, *vector)[index])

    def _map(self, change: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]) -> "Intent":
        """Change all parts; the second argument is the shape of a person's."""
        place = None if self.place is None else change(self.place, (2,))
        return Intent(change(self.velocity, (2,)), change(self.facing, (2,)), change(self.height, ()), place)

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
        merged = given[0]
        for other in given[1:]:
            pairs = ((getattr(merged, name), getattr(other, name)) for name in ("velocity", "facing", "height"))
            velocity, facing, height = (np.where(np.isnan(later), earlier, later) for earlier, later in pairs)
            merged = cls(velocity, facing, height, merged.place if other.place is None else other.place)
        return merged
