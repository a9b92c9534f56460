"""The floor under a recording, toes that dip into it, and which joints touch it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.motion.contacts import (
    ANKLES,
    CONTACT_GAP,
    FEET,
    floor_height,
    grounded,
    label_contacts,
    on_floor,
    out_of_floor,
    sphere_heights,
)
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import CADENCE, LIFT, somersault_clip, stepping_clip

CLIP = stepping_clip(4.0)


def moved(motion: Motion, by: np.ndarray) -> Motion:
    """Shift a motion, by one vector or by one a frame."""
    return replace(motion, root=motion.root + by, joints=motion.joints + by.reshape(-1, 1, 3))


def lifted(motion: Motion, height: float | np.ndarray) -> Motion:
    by = np.zeros((len(motion), 3))
    by[:, 2] = height
    return moved(motion, by)


# --- the floor


@pytest.mark.parametrize("height", [0.0, 0.14, -0.3, 12.0])
def test_the_floor_is_found_wherever_the_clip_is(height: float):
    # One foot of the stepping clip stands on z = 0 in every frame, so the lower standing toe is at 0 in all of them.
    clip = lifted(CLIP, height)
    assert floor_height(clip) == pytest.approx(height, abs=1e-9)
    back = on_floor(clip)
    np.testing.assert_allclose(back.joints, CLIP.joints, rtol=0, atol=1e-9)
    np.testing.assert_allclose(back.root, CLIP.root, rtol=0, atol=1e-9)
    assert back.q is clip.q


@pytest.mark.parametrize(("height", "share"), [(0.4, 2 / 3), (0.05, 1 / 3)], ids=["table", "mat"])
def test_a_table_or_a_mat_is_not_the_floor(height: float, share: float):
    # High things are left out, and the median does not care about a low one for a third of the time.
    raised = np.where(np.arange(len(CLIP)) < (1 - share) * len(CLIP), 0.0, height)
    assert floor_height(lifted(CLIP, raised)) == pytest.approx(0.0, abs=1e-9)


def test_the_floor_of_one_who_never_stands_still():
    # At 2 m/s no foot is slower than 0.15 m/s: the floor is what the lowest sphere comes down to, which is 0.1 in every
    # frame.
    time = np.arange(len(CLIP)) / CLIP.fps
    gliding = moved(CLIP, np.stack((2 * time, 0 * time, np.full_like(time, 0.1)), axis=-1))
    assert floor_height(gliding) == pytest.approx(0.1, abs=1e-9)
    # A flight in between does not lift it: 5 % of the frames on the floor are enough to see it.
    assert floor_height(lifted(gliding, np.maximum(np.sin(6 * time), 0))) == pytest.approx(0.1, abs=0.005)


# --- toes


def dipping() -> tuple[Motion, np.ndarray]:
    """The stepping clip with its feet pitched by up to 0.6 rad, and where a toe is in the floor."""
    time = np.arange(len(CLIP)) / CLIP.fps
    q = CLIP.q.copy()
    for joint, phase in zip(ANKLES, (0.0, 1.0), strict=True):
        pitch = np.zeros((len(CLIP), 3))
        pitch[:, 0] = 0.6 * np.sin(2 * math.pi * 0.7 * time + phase)
        q[:, joint] = q[:, joint] @ rotvec_to_rotmat(pitch)
    motion = Motion.from_rotations(CLIP.skeleton, CLIP.fps, CLIP.root, q)
    return motion, sphere_heights(motion)[:, FEET] < 0


def test_toes_come_out_of_the_floor_and_nothing_else_moves():
    motion, sunk = dipping()
    deepest = float(sphere_heights(motion)[:, FEET].min())
    assert -0.10 < deepest < -0.02, "the clip is no test otherwise"
    assert 0.2 < float(sunk.mean()) < 0.8
    up = out_of_floor(motion)
    # The foot turns about its ankle by the law of cosines' own triangle, so a toe that was below ends exactly on the
    # floor.
    heights = sphere_heights(up)[:, FEET]
    assert heights.min() > -1e-9
    np.testing.assert_allclose(heights[sunk], np.zeros(int(sunk.sum())), rtol=0, atol=1e-9)
    np.testing.assert_allclose(up.joints[:, FEET][~sunk], motion.joints[:, FEET][~sunk], rtol=0, atol=1e-9)
    others = [j for j in range(NUM_JOINTS) if j not in FEET]
    np.testing.assert_allclose(up.joints[:, others], motion.joints[:, others], rtol=0, atol=1e-9)
    turned = [j for j in range(NUM_JOINTS) if j not in ANKLES]
    np.testing.assert_allclose(up.q[:, turned], motion.q[:, turned], rtol=0, atol=1e-7)
    assert CLIP.skeleton.bone_error(up.joints).max() < 1e-9
    # It points where it pointed, seen from above.
    before, after = (m.joints[:, FEET, :2] - m.joints[:, ANKLES, :2] for m in (motion, up))
    cosine = (before * after).sum(-1) / (np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1))
    assert cosine.min() > 1 - 1e-9


def test_a_foot_that_cannot_come_out_points_up():
    # A person in the floor up to the knees: no turn of the ankle brings the toe out, but it points up as far as it
    # goes.
    up = out_of_floor(lifted(CLIP, -0.6))
    assert np.isfinite(up.joints).all()
    rise = (up.joints[:, FEET, 2] - up.joints[:, ANKLES, 2]) / CLIP.skeleton.lengths[list(FEET)]
    assert rise.min() > 1 - 1e-6


def test_arms_come_out_of_the_floor():
    # Hanging arms of a person who is in the floor up to the waist: elbows and hands come up to it, shoulders stay.
    skeleton = CLIP.skeleton
    sunk = lifted(CLIP, -1.05)
    up = out_of_floor(sunk)
    heights = sphere_heights(up)
    arms = [joint_index(f"{side}_{part}") for side in ("left", "right") for part in ("elbow", "wrist")]
    assert sphere_heights(sunk)[:, arms].min() < -0.1, "the clip is no test otherwise"
    assert heights[:, arms].min() > -1e-9
    assert skeleton.bone_error(up.joints).max() < 1e-9
    still = [j for j in range(NUM_JOINTS) if j not in (*arms, *FEET)]
    np.testing.assert_allclose(up.joints[:, still], sunk.joints[:, still], rtol=0, atol=1e-9)


# --- people on the ground


def lying(height: float | np.ndarray = 0.0) -> Motion:
    """Four seconds on the back, arms at the sides, the lowest sphere of the trunk at a height above the floor."""
    q = np.tile(np.eye(3), (120, NUM_JOINTS, 1, 1))
    q[:, 0] = rotvec_to_rotmat(np.array([0.0, 0.0, math.pi]))
    for side, sign in (("left", -1.0), ("right", 1.0)):
        q[:, joint_index(f"{side}_shoulder")] = rotvec_to_rotmat(np.array([0.0, 0.0, sign * 1.4]))
    flat = Motion.from_rotations(Skeleton.adult(), 30.0, np.zeros((120, 3)), q)
    return lifted(flat, height - sphere_heights(flat).min())


def test_the_floor_of_one_who_never_gets_up():
    # No feet stand. Breathing moves the lowest sphere by 2 cm; all of it but the lowest twentieth is above the floor.
    breath = 0.01 * np.sin(np.arange(120) / 5)
    assert floor_height(lying(0.4 + breath)) == pytest.approx(0.39, abs=0.001)


def test_low_feet_in_the_air_are_no_floor():
    # Someone on the back with still feet 30 cm up: the back is on the floor, not the feet.
    motion = lying(0.2)
    q = motion.q.copy()
    for side in ("left", "right"):
        q[:, joint_index(f"{side}_hip")] = rotvec_to_rotmat(np.array([-0.9, 0.0, 0.0]))
    raised = Motion.from_rotations(motion.skeleton, 30.0, motion.root, q)
    assert sphere_heights(raised)[:, FEET].min() > 0.4
    assert floor_height(raised) == pytest.approx(0.2, abs=0.01)


def test_standing_feet_decide_where_there_are_both():
    # Two seconds of standing on z = 0, then lying 10 cm deep in it: the floor is under the feet.
    both = Motion.concatenate([CLIP.slice(0, 60), lying(-0.1)])
    assert floor_height(both) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("height", [-0.2, -0.05, 0.0, 0.1])
def test_low_bodies_settle_on_the_floor(height: float):
    settled_lying = grounded(lying(height))
    np.testing.assert_allclose(sphere_heights(settled_lying).min(-1), 0.0, atol=1e-9)
    np.testing.assert_allclose(settled_lying.joints, lying(0.0).joints, atol=1e-9)


def test_whoever_does_not_fall_freely_touches_the_floor():
    # Steps in place on a floor that was taken 8 cm too low. Feet that are borne are brought down; between steps the
    # shift is an average, so a foot that rolls from heel to toes stays within the few millimetres by which its lower
    # end moves.
    settled = grounded(lifted(CLIP, 0.08))
    assert np.abs(sphere_heights(settled).min(-1)).mean() < 0.01
    np.testing.assert_allclose(settled.root, grounded(CLIP).root, rtol=0, atol=1e-9)


def test_flight_stays_flight():
    # In the air nothing tells where the floor is: the shift is that of take-off and landing, and a jump is as high as
    # it was.
    clip = somersault_clip()
    settled = grounded(lifted(clip, 0.05))
    flight = slice(43, 58)
    before, after = (sphere_heights(motion)[flight].min(-1).max() for motion in (clip, settled))
    assert after == pytest.approx(before, abs=0.02)


# --- contacts


def test_contacts_of_steps_alternate():
    contacts = label_contacts(CLIP)
    beat = np.sin(2 * math.pi * CADENCE * np.arange(len(CLIP)) / CLIP.fps)
    left, right = contacts[:, FEET[0]], contacts[:, FEET[1]]
    # A foot is LIFT * beat^2 above its place at its half of the beat; its toe hangs down by at most a third of that. So
    # beyond the beat where the ankle is at twice the gap it is in the air, while the other one has not moved.
    high = math.sqrt(2 * CONTACT_GAP / LIFT)
    assert right[beat > 0].all()
    assert left[beat < 0].all()
    assert not left[beat > high].any()
    assert not right[beat < -high].any()
    assert (beat > high).any()
    # Up and down once a beat: 3.6 beats in 4 s.
    assert int((left[1:] & ~left[:-1]).sum()) == 4
    others = [j for j in range(NUM_JOINTS) if j not in (*ANKLES, *FEET)]
    assert not contacts[:, others].any()


def test_a_joint_that_slides_or_hangs_does_not_touch():
    time = np.arange(len(CLIP)) / CLIP.fps
    along = np.stack((time, 0 * time, 0 * time), axis=-1)
    # HuMoR's threshold is 0.6 m/s; the feet of a person pulled along at 1 m/s never stand.
    assert not label_contacts(moved(CLIP, along)).any()
    assert label_contacts(moved(CLIP, 0.3 * along))[:, FEET].any()
    assert not label_contacts(lifted(CLIP, CONTACT_GAP + 1e-6)).any()
