"""Recordings with a body: cleaned, or followed until something happens and the motion prior takes over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool

from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat, transpose
from dropsim.control.following import clip_simulator
from dropsim.files.tables import markdown, shown
from dropsim.motion.contacts import CONTACT_GAP, FEET, floor_height, label_contacts, on_floor, sphere_heights
from dropsim.motion.feet import Stance, Tolerance, stances, standing, with_own_ankles
from dropsim.motion.glitches import Glitch, find_glitches, without_glitches
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
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
    _require_frames(motion)
    return on_floor(motion) if abs(floor_height(motion)) > FARTHEST_FLOOR else motion


def own_floor(motion: Motion, floor: float | None = None) -> Motion:
    """Return a rig's recording with its own ankles and its floor [m] at z = 0: where its feet stand unless given."""
    _require_frames(motion)
    on = on_floor(motion)
    motion = replace(motion, skeleton=with_own_ankles(on).skeleton)
    if floor is None:
        return on_floor(motion)
    down = np.array([0.0, 0.0, -floor])
    return replace(motion, root=motion.root + down, joints=motion.joints + down)


def _require_frames(motion: Motion) -> None:
    if len(motion) < FEW_FRAMES:
        raise ValueError(
            f"{motion.name or 'the recording'} has {len(motion)} frames: give one with at least {FEW_FRAMES}"
        )
    if not (np.isfinite(motion.joints).all() and np.isfinite(motion.q).all()):
        raise ValueError(f"{motion.name or 'the recording'} holds numbers that are not finite: repair it first")


def _before_first(prior: ClipPrior) -> State:
    """Return the state a frame before the recording, so that its first frame is cleaned too."""
    first = prior.start()
    return replace(
        first, x=first.x - first.v / prior.fps, memory=np.concatenate((first.memory[:1] - 1, first.memory[1:]))
    )


STRENGTHS: Mapping[str, tuple[Tolerance, float]] = {
    "gentle": (Tolerance(slide=0.02, height=0.01), 5.0),
    "normal": (Tolerance(slide=0.005, height=0.002), 3.0),
    "strict": (Tolerance(slide=0.0, height=0.0), 2.0),
}
"""Tolerances of feet by name, and how many times what the fastest tenth of a clip changes its step by is a glitch."""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A recording after cleaning, and what was wrong with it."""

    motion: Motion
    glitches: tuple[Glitch, ...]
    """Glitches that were mended."""
    stances: tuple[Stance, ...]
    """Stances whose foot slid, floated or sank."""
    standing: Bool[np.ndarray, "t 2"]
    """True at frames at which the balls of the left and right foot stand."""


def clean(motion: Motion, *, strength: str = "normal") -> Cleaned:
    """Mend a recording on the floor: glitches of a few frames, then feet that slide, float or sink while they stand.

    What is in order stays as it is, and so do the arms and the trunk relative to the pelvis.
    """
    if strength not in STRENGTHS:
        raise ValueError(f"there is no strength {strength!r}: give {', '.join(STRENGTHS)}")
    tolerance, unusual = STRENGTHS[strength]
    glitches = find_glitches(motion, unusual=unusual)
    mended, wrong = standing(without_glitches(motion, glitches), tolerance)
    held = np.zeros((len(motion), 2), dtype=bool)
    for stance in stances(mended):
        held[stance.start : stance.stop, stance.foot] = True
    return Cleaned(mended, tuple(glitches), tuple(wrong), held)


def perturb(
    motion: Motion,
    scene: Scene,
    free: Simulator,
    *,
    handover: float,
    seconds: float,
    seed: int = 0,
    watch: Watch | None = None,
) -> Motion:
    """Follow a recording until a time [s], and from then on let its person go on with another simulator's prior."""
    prior = free.prior
    motion = motion.resampled(prior.fps)
    last = round(handover * prior.fps)
    if not 1 <= last < len(motion):
        raise ValueError(
            f"the recording is {motion.duration:.2f} s long: the motion prior cannot take over at {handover:g} s"
        )
    follower = ClipPrior(motion, then=prior, handover=last)
    world = World(scene, replace(free, prior=follower), opening=clip_simulator(follower))
    start = replace(world.start_from(_before_first(follower).map(lambda values: values[None])), frame=-1)
    return run(world, max(1, round(seconds * prior.fps)), seed, start=start, watch=watch).motions[0]


FADE = 0.1
"""Half-life of the offset between a recording and the simulation that goes on from it [s]."""


def continued(recording: Motion, result: Motion, at: float) -> Motion:
    """Return the recording's own frames until a time [s], and from then on a simulation of it, at the recording's rate.

    The simulation has followed the recording within centimetres; that offset fades after the handover instead of
    jumping.
    """
    result = result.resampled(recording.fps)
    until = min(int(at * recording.fps + 1e-6), len(recording) - 1, len(result) - 1)
    left = 0.5 ** (np.arange(1, len(result) - until) / (FADE * recording.fps))
    turns = rotmat_to_rotvec(recording.q[until] @ transpose(result.q[until]))
    q = rotvec_to_rotmat(left[:, None, None] * turns) @ result.q[until + 1 :]
    root = result.root[until + 1 :] + left[:, None] * (recording.root[until] - result.root[until])
    q, root = np.concatenate((recording.q[: until + 1], q)), np.concatenate((recording.root[: until + 1], root))
    return replace(
        Motion.from_rotations(recording.skeleton, recording.fps, root, q, name=result.name), events=result.events
    )


def quality_of(
    motion: Motion, recording: Motion, *, standing: Bool[np.ndarray, "t 2"] | None = None
) -> dict[str, float]:
    """Measure a motion next to the recording that it follows, frame by frame; `standing` tells when its feet stand."""
    wrench = np.linalg.norm(root_wrench_of_motion(motion, sphere_heights(motion) < CONTACT_GAP), axis=-1)
    apart = 100 * np.linalg.norm(motion.joints - recording.joints, axis=-1)
    feet = list(metrics.FEET)
    planted = label_contacts(recording)[..., feet]
    speeds = np.linalg.norm(np.diff(motion.joints[..., feet, :2], axis=-3), axis=-1) * motion.fps
    steps = speeds[planted[1:] & planted[:-1]]
    heights = 1000 * sphere_heights(motion)[:, FEET][standing] if standing is not None and standing.any() else None
    on_floor = {} if heights is None else {
        "height of standing feet above the floor [mm]": float(np.maximum(heights, 0).mean()),
        "depth of standing feet in the floor [mm]": float(np.maximum(-heights, 0).mean()),
    }  # fmt: skip
    return on_floor | {
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
