"""Recordings with a body: followed closely to clean them, or until something happens and the motion prior takes over."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat, transpose
from dropsim.compute.random import Streams
from dropsim.control.following import clip_simulator
from dropsim.files.tables import markdown, shown
from dropsim.motion.contacts import CONTACT_GAP, floor_height, label_contacts, on_floor, sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import DivergedError, Simulator, simulate
from dropsim.physics.wrench import root_wrench_of_motion
from dropsim.priors.prior import State
from dropsim.priors.recording import ClipPrior
from dropsim.scene import Scene, World, run

FEW_FRAMES = 4
"""Jerk takes as many."""
FARTHEST_FLOOR = 0.01
"""A recording whose floor is farther from z = 0 than this is put onto it [m]."""
Watch = Callable[[int, int], None]


def checked(motion: Motion) -> Motion:
    """Return a recording ready to be followed: finite, long enough, and with its floor at z = 0."""
    if len(motion) < FEW_FRAMES:
        raise ValueError(f"{motion.name or 'the recording'} has {len(motion)} frames: give one with at least {FEW_FRAMES}")
    if not (np.isfinite(motion.joints).all() and np.isfinite(motion.q).all()):
        raise ValueError(f"{motion.name or 'the recording'} holds numbers that are not finite: repair it first")
    return on_floor(motion) if abs(floor_height(motion)) > FARTHEST_FLOOR else motion


def _before_first(prior: ClipPrior) -> State:
    """Return the state a frame before the recording, so that its first frame is cleaned too."""
    first = prior.start()
    return replace(first, x=first.x - first.v / prior.fps, memory=np.concatenate((first.memory[:1] - 1, first.memory[1:])))


def clean(motion: Motion, *, watch: Watch | None = None) -> Motion:
    """Return a recording as a body would have moved: feet on the floor and not through it, bones whole, less root wrench."""
    prior = ClipPrior(motion)
    try:
        cleaned = simulate(clip_simulator(prior), _before_first(prior), len(motion) + 1, Streams(0), watch=watch)
    except DivergedError as error:
        raise ValueError(f"{motion.name or 'the recording'} cannot be followed: {error}") from error
    return replace(cleaned.slice(1, len(cleaned)), name=motion.name)


def perturb(
    motion: Motion, scene: Scene, free: Simulator, *, handover: float, seconds: float, seed: int = 0, watch: Watch | None = None
) -> Motion:
    """Follow a recording until a time [s], and from then on let its person go on with another simulator's prior."""
    prior = free.prior
    motion = motion.resampled(prior.fps)
    last = round(handover * prior.fps)
    if not 1 <= last < len(motion):
        raise ValueError(f"the recording is {motion.duration:.2f} s long: the motion prior cannot take over at {handover:g} s")
    follower = ClipPrior(motion, then=prior, handover=last)
    world = World(scene, replace(free, prior=follower), opening=clip_simulator(follower))
    start = replace(world.start_from(_before_first(follower).map(lambda values: values[None])), frame=-1)
    return run(world, max(1, round(seconds * prior.fps)), seed, start=start, watch=watch).motions[0]


FADE = 0.1
"""Half-life of the offset between a recording and the simulation that goes on from it [s]."""


def continued(recording: Motion, result: Motion, at: float) -> Motion:
    """Return the recording's own frames until a time [s], and from then on a simulation of it, at the recording's rate.

    The simulation has followed the recording within centimetres; that offset fades after the handover instead of jumping.
    """
    result = result.resampled(recording.fps)
    until = min(int(at * recording.fps + 1e-6), len(recording) - 1, len(result) - 1)
    left = 0.5 ** (np.arange(1, len(result) - until) / (FADE * recording.fps))
    turns = rotmat_to_rotvec(recording.q[until] @ transpose(result.q[until]))
    q = rotvec_to_rotmat(left[:, None, None] * turns) @ result.q[until + 1 :]
    root = result.root[until + 1 :] + left[:, None] * (recording.root[until] - result.root[until])
    q, root = np.concatenate((recording.q[: until + 1], q)), np.concatenate((recording.root[: until + 1], root))
    return replace(Motion.from_rotations(recording.skeleton, recording.fps, root, q, name=result.name), events=result.events)


def quality_of(motion: Motion, recording: Motion) -> dict[str, float]:
    """Measure a motion next to the recording that it follows, frame by frame."""
    wrench = np.linalg.norm(root_wrench_of_motion(motion, sphere_heights(motion) < CONTACT_GAP), axis=-1)
    apart = 100 * np.linalg.norm(motion.joints - recording.joints, axis=-1)
    feet = list(metrics.FEET)
    planted = label_contacts(recording)[..., feet]
    speeds = np.linalg.norm(np.diff(motion.joints[..., feet, :2], axis=-3), axis=-1) * motion.fps
    steps = speeds[planted[1:] & planted[:-1]]
    return {
        "foot skate [m/s]": float(metrics.foot_skate(motion)),
        "speed of the feet that the recording has on the floor [m/s]": float(steps.mean()) if len(steps) else 0.0,
        "penetration [mm]": float(metrics.penetration_mm(motion)),
        "float [mm]": float(metrics.float_mm(motion)),
        "jerk [m/s^3]": float(metrics.jerk(motion)),
        "root wrench, median [body weights]": float(np.median(wrench)),
        "root wrench, 95th percentile [body weights]": float(np.quantile(wrench, 0.95)),
        "distance from the recording, mean [cm]": float(apart.mean()),
        "distance from the recording, mean of the worst frame [cm]": float(apart.mean(-1).max()),
        "distance from the recording, farthest joint [cm]": float(apart.max()),
    }


def table_of(columns: dict[str, dict[str, float]]) -> str:
    """Return measures as a Markdown table, one column each."""
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = ((name, *(shown(column.get(name), ".3f") for column in columns.values())) for name in names)
    return markdown([("measure", *columns), *rows])
