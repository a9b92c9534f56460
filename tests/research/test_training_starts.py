"""Start states of recordings."""

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.rotations import exp, heading
from dropsim.body.skeleton import Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.pose import PoseNetwork, PosePrior, PoseShape
from dropsim.research.training.starts import NUM_STARTS, draw_frames, held_out_starts, make_starts, placed

SHAPE = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
CLIP = stepping_clip(3.0)


def tiny(shape: CVAEShape = SHAPE) -> CVAEPrior:
    return CVAEPrior(CVAENetwork.random(shape), Skeleton.adult(), name="tiny")


def gliding(speed: float, seconds: float = 4.0, angle: float = 0.0, sink: float = 0.0) -> Motion:
    """A standing person who glides over the floor, facing anywhere."""
    frames = round(30 * seconds)
    R = exp(np.array([0.0, 0.0, angle]))
    q = np.repeat(CLIP.q[:1], frames, axis=0)
    q[:, 0] = R @ q[:, 0]
    lowest = (CLIP.joints[0, :, 2] - CLIP.skeleton.radii).min()
    root = R @ CLIP.root[0] - np.array([0.0, 0.0, lowest + sink])
    way = np.arange(frames)[:, None] / 30 * speed * (R @ np.array([0.0, 1.0, 0.0]))
    return Motion.from_rotations(CLIP.skeleton, 30.0, root + way, q)


def clip(category: str, motion: Motion) -> tuple[Clip, Motion]:
    return Clip(f"{category} clip", "01", category, len(motion), held_out=True), motion


def test_placing_moves_the_world_and_nothing_else():
    prior = tiny()
    motion = gliding(1.2, angle=2.1, sink=0.02)
    state = prior.start_from(motion, 30)
    there = placed(state, motion.skeleton.radii)
    np.testing.assert_allclose(heading(there.q[0]), np.eye(3), rtol=0, atol=1e-12)
    np.testing.assert_allclose(there.x[0, :2], 0, rtol=0, atol=1e-12)
    # 2 cm in the floor before, on it after.
    assert (there.x[:, 2] - motion.skeleton.radii).min() == pytest.approx(0, abs=1e-12)
    # It glides to where it faces, +y, at 1.2 m/s.
    np.testing.assert_allclose(there.v, np.tile([0.0, 1.2, 0.0], (22, 1)), rtol=0, atol=1e-9)
    np.testing.assert_allclose(there.memory[6:72].reshape(22, 3), there.v, rtol=0, atol=1e-9)
    assert motion.skeleton.bone_error(there.x) < 1e-9


def test_frames_are_drawn_in_turn_from_each_category():
    clips = [clip("walk", CLIP), clip("run", CLIP.slice(0, 20)), clip("walk", CLIP.slice(0, 40))]
    places = draw_frames(clips, 40, seed=2)
    assert places == draw_frames(clips, 40, seed=2) != draw_frames(clips, 40, seed=3)
    assert [clips[i][0].category for i, _ in places] == ["run", "walk"] * 20
    assert {i for i, _ in places} == {0, 1, 2}
    assert all(1 <= frame < len(clips[i][1]) for i, frame in places)
    prior = tiny()
    starts, places = held_out_starts(clips, prior, 4, seed=2), draw_frames(clips, 4, seed=2)
    assert np.array_equal(starts.x[1], clips[places[1][0]][1].joints[places[1][1]])


@pytest.mark.parametrize(
    ("category", "speed", "fits"),
    [
        ("stand", 0.0, True),
        ("walk", 1.2, True),
        ("walk", 3.0, False),
    ],
)
def test_states_fit_their_name_by_speed(category, speed, fits):
    other = clip("stand" if category != "stand" else "walk", gliding(0.0 if category != "stand" else 1.0))
    bank = make_starts([clip(category, gliding(speed, angle=1.0)), other])
    assert (category in bank.categories) == fits
    if fits:
        # Every half second from the second one on.
        assert bank.count(category) == 6
        v = bank.states[category].v[:, 0]
        np.testing.assert_allclose(v, np.tile([0.0, speed, 0.0], (6, 1)), rtol=0, atol=1e-6)


def test_states_are_of_as_many_clips_as_there_are():
    speeds = np.linspace(0.8, 1.9, 12)
    bank = make_starts([clip("walk", gliding(speed, seconds=8.0)) for speed in speeds])
    assert bank.count("walk") == NUM_STARTS
    drawn = np.linalg.norm(bank.states["walk"].v[:, 0], axis=-1)
    # One of each, and a second one of four.
    each = [int(np.isclose(drawn, speed).sum()) for speed in speeds]
    assert sorted(each) == [1] * 8 + [2] * 4


def test_people_in_the_floor_are_not_chosen():
    deep, shallow = (clip("walk", gliding(1.2, sink=sink)) for sink in (0.05, 0.01))
    with pytest.raises(ValueError, match="no recording shows"):
        make_starts([deep])
    bank = make_starts([shallow])
    assert (bank.states["walk"].x[..., 2] - Skeleton.adult().radii).min() > -1e-9


def test_poses_out_of_range_are_not_chosen():
    shape = PoseShape(radius=())
    tensors = PoseNetwork.random(shape).tensors
    clips = [clip("walk", gliding(1.2))]
    for bias, in_range in ((0.0, True), (100.0, False)):  # a code of 32 times this
        last = {"encoder.2.weight": np.zeros((32, 256), np.float32), "encoder.2.bias": np.full(32, bias, np.float32)}
        pose = PosePrior(PoseNetwork(shape, tensors | last))
        if in_range:
            assert make_starts(clips, pose=pose).count("walk") == 6
        else:
            with pytest.raises(ValueError, match="no recording shows"):
                make_starts(clips, pose=pose)


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["train", "starts", "--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "is not a data set" in capsys.readouterr().err.splitlines()[-1]
