"""Laws of Motion: slicing, joining, mirroring, resampling and velocity."""

from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import MIRROR, NUM_JOINTS, Skeleton
from dropsim.motion.motion import Event, Motion

SKELETON = Skeleton.adult()
PER_FRAME = ("root", "q", "joints", "touching", "contact_forces", "external_forces", "wrench_before", "wrench_after")


def assert_same(a, b, *, atol=0.0):
    assert a.fps == b.fps
    for name in PER_FRAME:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=atol)
    assert a.energies.keys() == b.energies.keys()
    for name in a.energies:
        np.testing.assert_allclose(a.energies[name], b.energies[name], rtol=0, atol=atol)


@pytest.fixture
def motion(random_rotations, rng):
    """Two people for 24 frames, every joint turning steadily, with every extra filled in."""
    b, t = 2, 24

    def draw(*shape):
        return rng.standard_normal((b, t, *shape))

    start, axis = random_rotations(b, 1, NUM_JOINTS), rng.standard_normal((b, 1, NUM_JOINTS, 3))
    time = np.arange(t) / 24
    q = start @ exp(axis * time[:, None, None])
    return replace(
        Motion.from_rotations(SKELETON, 24.0, draw(3).cumsum(1) / 24, q, name="spin"),
        touching=draw(NUM_JOINTS) > 0,
        contact_forces=draw(NUM_JOINTS, 3),
        external_forces=draw(NUM_JOINTS, 3),
        wrench_before=draw(),
        wrench_after=draw(),
        energies={"rigidity": draw(), "contact": draw()},
        events=(Event("push", 0.25, 0.5), Event("ball", 0.75)),
    )


def test_concatenate_undoes_slice(motion):
    # Cutting moves data without changing it: to the bit. Events keep their place in the joined motion.
    joined = Motion.concatenate([motion.slice(0, 5), motion.slice(5, 17), motion.slice(17, 24)])
    assert_same(joined, motion)
    assert [e.name for e in joined.events] == ["push", "ball"]
    assert [e.start for e in joined.events] == pytest.approx([0.25, 0.75])


def test_slice_counts_as_python_does(motion):
    assert_same(motion.slice(-4, 1000), motion.slice(20, 24))
    with pytest.raises(ValueError, match="24 frames"):
        motion.slice(24, 30)


def test_events_move_along_with_a_slice(motion):
    # The push starts at frame 6, the ball at frame 18: cut from frame 6, they come 6/24 s sooner; cut to frame 18, the
    # ball is gone.
    assert [(e.name, pytest.approx(e.start)) for e in motion.slice(6, 24).events] == [("push", 0.0), ("ball", 0.5)]
    assert [e.name for e in motion.slice(0, 18).events] == ["push"]
    assert motion.slice(0, 18).events[0].duration == 0.5


def test_an_event_on_a_frame_belongs_to_that_frame():
    # 123 / 30 * 30 is a hair below 123 in floating point; the event still starts in frame 123, however often the motion
    # was cut.
    q = np.broadcast_to(np.eye(3), (300, NUM_JOINTS, 3, 3))
    motion = Motion.from_rotations(SKELETON, 30.0, np.zeros((300, 3)), q)
    for frame in (1, 2, 31, 32, 123, 245, 246, 247):
        marked = replace(motion, events=(Event("push", frame / 30),)).slice(1, 300)
        assert marked.slice(frame - 1, 299).events[0].start == pytest.approx(0, abs=1e-9)
        assert marked.slice(0, frame).events[0].start == pytest.approx((frame - 1) / 30)
        assert frame == 1 or not marked.slice(0, frame - 1).events


def test_concatenate_keeps_only_shared_extras(motion):
    bare = replace(motion, touching=None, energies={"contact": motion.energies["contact"]})
    joined = Motion.concatenate([motion, bare])
    assert joined.touching is None
    assert set(joined.energies) == {"contact"}
    assert joined.contact_forces is not None


def test_concatenate_refuses_two_rates(motion):
    with pytest.raises(ValueError, match="resample them to one rate"):
        Motion.concatenate([motion, motion.resampled(30.0)])


def test_map_changes_every_part(motion):
    # One person and the other, put together again, are both of them, to the bit; what nobody recorded stays away.
    one, other = (motion.map(lambda values, i=i: values[i : i + 1]) for i in (0, 1))
    for name in PER_FRAME:
        np.testing.assert_allclose(
            np.concatenate((getattr(one, name), getattr(other, name))), getattr(motion, name), rtol=0, atol=0
        )
    assert set(one.energies) == {"rigidity", "contact"}
    for name, values in motion.energies.items():
        assert np.array_equal(np.concatenate((one.energies[name], other.energies[name])), values)
    assert (one.fps, one.events, one.name) == (motion.fps, motion.events, motion.name)
    assert replace(motion, touching=None).map(lambda values: values[0]).touching is None


def test_mirror_is_an_involution(motion):
    # Signs and places change, never a value: twice is the same to the bit.
    assert_same(motion.mirrored().mirrored(), motion)


def test_mirrored_rotations_give_the_mirrored_joints(motion):
    mirrored = motion.mirrored()
    assert np.array_equal(mirrored.joints[..., 0], -motion.joints[..., MIRROR, 0])
    # Kinematics commutes with the reflection, to rounding of a chain of 9 joints.
    np.testing.assert_allclose(SKELETON.forward(mirrored.q, mirrored.root), mirrored.joints, rtol=0, atol=1e-13)
    assert (np.linalg.det(mirrored.q) > 0).all()


@pytest.mark.parametrize("fps", [48.0, 120.0])
def test_resampling_up_and_down_returns_the_frames(motion, fps):
    # Every old frame is a frame of a rate that is a multiple, so going there and back samples them again. Slerp rounds.
    there = motion.resampled(fps)
    assert len(there) == 23 * fps / 24 + 1
    assert there.duration == pytest.approx(motion.duration) == pytest.approx(23 / 24)
    assert_same(there.resampled(24.0), motion, atol=1e-9)
    assert there.events == motion.events


def test_resampling_a_steady_turn_is_exact(motion):
    # Slerp of a constant angular velocity is that same turn at any time, so two ways to the same frames agree.
    coarse = motion.slice(0, 23).resampled(12.0)
    again = coarse.resampled(24.0)
    np.testing.assert_allclose(again.q, motion.q[:, :23], rtol=0, atol=1e-9)
    # Bones keep their length between frames, as interpolated positions would not.
    assert SKELETON.bone_error(motion.resampled(50.0).joints).max() < 1e-9


def test_resampling_interpolates_a_solvers_residual(motion):
    # Joints off the bones by a constant stay off by that constant.
    off = replace(motion, joints=motion.joints + 0.01)
    np.testing.assert_allclose(off.resampled(60.0).joints, motion.resampled(60.0).joints + 0.01, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fps", [0.0, -30.0, float("nan"), float("inf")])
def test_resampling_refuses_a_rate_that_is_none(motion, fps):
    with pytest.raises(ValueError, match="positive number"):
        motion.resampled(fps)


def test_velocity_of_steady_motion_is_exact():
    # x(t) = x0 + v t: differences of any kind give v; float64 positions of up to 3 m over 2/30 s round to 1e-14 m/s
    # times a few.
    v = np.array([1.2, -0.4, 0.1])
    time = np.arange(10) / 30
    q = np.broadcast_to(np.eye(3), (10, NUM_JOINTS, 3, 3))
    motion = Motion.from_rotations(SKELETON, 30.0, time[:, None] * v, q)
    np.testing.assert_allclose(motion.velocity(), np.broadcast_to(v, (10, NUM_JOINTS, 3)), rtol=0, atol=1e-13)
    assert np.abs(motion.slice(0, 1).velocity()).max() == 0
