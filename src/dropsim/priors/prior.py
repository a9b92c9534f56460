"""The contract of a motion prior: an autoregressive model that proposes K candidates of the next frame."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.priors.intent import Intent


@dataclass(frozen=True, eq=False)
class State:
    """A person at one frame: what the simulator advances and what the prior sees."""

    x: Float[np.ndarray, "*b 22 3"]
    """World joints [m]."""
    v: Float[np.ndarray, "*b 22 3"]
    """Joint velocities of the last step, (x_t - x_{t-1}) / h [m/s]."""
    q: Float[np.ndarray, "*b 22 3 3"]
    """Local rotations."""
    memory: Float[np.ndarray, "*b m"]
    """What the prior remembers of its own, e.g. its predicted velocities."""
    drift: Float[np.ndarray, "*b 6"] = None  # pyright: ignore[reportAssignmentType]
    """Velocity of the last half second that nothing explains, of the body and of its turning; None is 0 [m/s]."""

    def __post_init__(self) -> None:
        if self.drift is None:
            object.__setattr__(self, "drift", np.zeros((*self.x.shape[:-2], 6)))

    def __getitem__(self, index: int | slice | Sequence[int] | np.ndarray) -> "State":
        """Pick people out of a batch."""
        return self.map(lambda values: values[index])

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> "State":
        """Apply a change of the batch dimensions to every field."""
        return State(*(change(values) for values in vars(self).values()))

    def flat(self) -> "State":
        """Return all people along one batch dimension."""
        dims = self.x.ndim - 2
        people = int(np.prod(self.x.shape[:dims]))
        return self.map(lambda values: values.reshape(people, *values.shape[dims:]))


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate per person."""

    x: Float[np.ndarray, "*b 22 3"]
    """World joints [m]."""
    q: Float[np.ndarray, "*b 22 3 3"]
    """Local rotations."""
    memory: Float[np.ndarray, "*b m"]
    """What the prior will remember if this candidate is taken."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """K candidates of the next frame per person; the first is the prior's mode."""

    x: Float[np.ndarray, "*b k 22 3"]
    """World joints [m]."""
    q: Float[np.ndarray, "*b k 22 3 3"]
    """Local rotations."""
    memory: Float[np.ndarray, "*b k m"]
    """What the prior will remember if a candidate is taken."""
    cost: Float[np.ndarray, "*b k"] = None  # pyright: ignore[reportAssignmentType]
    """What speaks against each in the prior's own view [m^2]; the simulator adds what physics says. None is 0."""

    def __post_init__(self) -> None:
        if self.cost is None:
            object.__setattr__(self, "cost", np.zeros(self.x.shape[:-2]))

    def pick(self, index: int | Int[np.ndarray, "*b"]) -> Candidate:
        """Return a copy of one candidate per person; a single number picks the same one for everybody."""
        batch, num = self.x.shape[:-3], self.x.shape[-3]
        at = np.arange(math.prod(batch)) * num + np.reshape(index, -1)

        def chosen(values: np.ndarray) -> np.ndarray:
            rest = values.shape[len(batch) + 1 :]
            return values.reshape(math.prod(batch) * num, *rest)[at].reshape(*batch, *rest)

        return Candidate(chosen(self.x), chosen(self.q), chosen(self.memory))

    def led_by(self, new: Candidate, people: Bool[np.ndarray, "*b"]) -> "Candidates":
        """Return candidates of which some people's first is replaced by one that they follow whatever it costs."""

        def put(values: np.ndarray, first: np.ndarray) -> np.ndarray:
            values = values.copy()
            values[people, 0] = first[people]
            return values

        x, q, memory = put(self.x, new.x), put(self.q, new.q), put(self.memory, new.memory)
        return Candidates(x, q, memory, put(self.cost, np.full(people.shape, -np.inf)))


@dataclass(frozen=True, eq=False)
class Landings:
    """When and where feet will stand next, on a level floor."""

    seconds: Float[np.ndarray, "*b 2"]
    """Until the left and the right foot stands [s]: 0 for one that does, NaN if it is not known."""
    ankles: Float[np.ndarray, "*b 2 2"]
    """Where the ankle will be, seen from above [m]."""


class Prior(ABC):
    """An autoregressive motion model: a class with one method, `propose`; the others have defaults.

    A prior sees the world only through the state. It must not depend on where a person stands or looks, and somebody in
    a batch must get the candidates that they would get alone. Random numbers come from `rng` and nowhere else. What it
    has to remember between frames it keeps in `memory`, a row of numbers per person, and nowhere else: rollouts are
    stopped, copied and batched.

    Forces, objects and other people it sees only by what they did to the state; if its memory holds velocities,
    `apply_impulse` tells it of impulses. Its floor is at z = 0: the simulator takes the state there and the candidates
    back. Its body is `skeleton`, whose joints the candidates have. docs/your-own-prior.md says more, and
    tests/priors/test_contract.py tests every prior.
    """

    name: str
    """For reports."""
    fps: float
    """Frame rate of its motion [Hz]."""
    skeleton: Skeleton
    """Body whose joints it proposes."""
    starts_at_mode: bool = False
    """Whether the solver's iterations start at its mode, as in the paper, or at a sample: the mode of some priors soon
    stands still."""
    num_samples: int = 64
    """Candidates that it proposes unless asked for another number."""
    drift: float = 0.08
    """Unexplained velocity that may add up within half a second as noise of its candidates [m/s]: 0.012 body weights
    all the time."""
    takes_intent: bool = False
    """Whether it goes where an intent says; other priors are steered by a planner that looks ahead over their
    samples."""

    gets_up: bool = False
    """Whether it knows people on the ground and how they get up; for other priors a motion field does
    (dropsim.control.getting_up)."""

    @abstractmethod
    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose `num` next frames, the mode first; a prior with fewer to offer may return fewer.

        `intent` says where the person wants to go. A prior that takes none ignores it.
        """

    def explore(self, state: State, rng: Streams) -> Candidate:
        """Propose one next frame for a planner that looks ahead: a bold candidate rather than the likeliest; by default the last of two."""
        candidates = self.propose(state, 2, rng)
        return candidates.pick(candidates.x.shape[-3] - 1)

    def landings(self, state: State) -> Landings | None:
        """Return when and where people's feet will stand next, so that these are put onto steps; by default it is not known."""
        del state
        return None

    def commit(
        self, chosen: Candidate, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Return the memory for the next query after a frame was solved; by default the chosen candidate's own.

        The paper keeps the prior's predicted velocities: overwriting them with solved ones makes it unstable.
        """
        del x, q
        return chosen.memory

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Return the memory after the world changed the velocity of the whole body by `change` [m/s]; by default it stays as it is."""
        del change
        return memory

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        """Return the memory of people who were turned about the vertical by R; by default it stays as it is."""
        del R
        return memory

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Return the memory of somebody who went from a state to a frame that the prior did not propose; by default the state's own."""
        del x, q
        return before.memory

    def start(self, category: str, seed: Sequence[int] | int = 0) -> State:
        """Return a state to start from, e.g. "walk", above the origin and facing +y; a sequence of seeds gives a batch.

        By default people start in a frame of the package's recordings, as with `start_from`.
        """
        from dropsim.priors.motion_field import shipped_field

        motion = shipped_field(self.skeleton).recording(category, seed).resampled(self.fps)
        return self.start_from(motion, len(motion) - 1)

    def start_from(self, motion: Motion, frame: int) -> State:
        """Return the state of a motion at a frame; velocities are differences from the frame before.

        The memory is what `recall` makes of a state that has none yet.
        """
        motion = motion.resampled(self.fps)
        if not 1 <= frame < len(motion):
            raise ValueError(
                f"cannot start at frame {frame}: give one from 1 to {len(motion) - 1}, so that there is a frame before it"
            )
        (x0, q0), (x, q) = ((motion.joints[..., i, :, :], motion.q[..., i, :, :, :]) for i in (frame - 1, frame))
        before = State(x0, np.zeros_like(x0), q0, x0[..., 0, :0])
        return State(x, (x - x0) * self.fps, q, self.recall(before, x, q))
