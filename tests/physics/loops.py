"""Steps in a row without a world, for tests of the simulator alone."""

from collections.abc import Callable

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import Simulator, StepInputs, stack_frames
from dropsim.priors.prior import State

World = Callable[[int, State], StepInputs]


def simulate(simulator: Simulator, start: State, num: int, rng: Streams, *, world: World | None = None) -> Motion:
    """Return frames of people who never meet, on level ground unless `world` says what happens after a frame."""
    states, reports, level = [start], [], StepInputs(colliders=(Plane.ground(),))
    for i in range(num - 1):
        state, report = simulator.step(states[-1], world(i, states[-1]) if world else level, rng)
        states.append(state)
        reports.append(report)
    return stack_frames(simulator, states, reports)
