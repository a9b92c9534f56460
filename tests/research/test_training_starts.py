"""How the bank of start states is made."""

from dataclasses import replace

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
from dropsim.priors.prior import Candidates
from dropsim.research.training.starts import StartOptions, draw_frames, held_out_starts, make_starts, placed

SHAPE = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
CLIP = stepping_clip(3.0)


def tiny(shape: CVAEShape = SHAPE) -> CVAEPrior:
    return CVAEPrior(CVAENetwork.random(shape), Skeleton.adult(), name="tiny")


class Coasting(CVAEPrior):
    """Goes on as it is, in a straight line and in the same pose: people who are known by hand."""

    def propose(self, state, num, rng, intent=None):
        x = state.x + state.memory[..., None, :3] / self.fps
        memory = np.zeros_like(state.memory)
        memory[..., :3] = state.memory[..., :3]
        memory[..., 6:72] = np.tile(state.memory[..., :3], 22)
        return Candidates(*(np.repeat(np.expand_dims(t, -n), num, -n) for t, n in ((x, 3), (state.q, 4), (memory, 2))))


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
    assert places == draw_frames(clips, 40, seed=2)
    assert places != draw_frames(clips, 40, seed=3)
    assert [clips[i][0].category for i, _ in places] == ["run", "walk"] * 20
    assert {i for i, _ in places} == {0, 1, 2}
    assert all(1 <= frame < len(clips[i][1]) for i, frame in places)
    prior = tiny()
    starts, places = held_out_starts(clips, prior, 4, seed=2), draw_frames(clips, 4, seed=2)
    assert np.array_equal(starts.x[1], clips[places[1][0]][1].joints[places[1][1]])


def coasting() -> CVAEPrior:
    return Coasting(CVAENetwork.random(SHAPE), Skeleton.adult())


@pytest.mark.parametrize(
    ("category", "speed", "fits"),
    [
        ("stand", 0.0, True),
        ("stand", 0.5, False),
        ("walk", 1.2, True),
        ("walk", 3.0, False),
        ("run", 3.0, True),
        ("run", 1.2, False),
    ],
)
def test_states_fit_their_name_by_speed(category, speed, fits):
    other = clip("stand" if category != "stand" else "walk", gliding(0.0 if category != "stand" else 1.0))
    bank = make_starts(coasting(), [clip(category, gliding(speed)), other], StartOptions(count=3, batch=4, rounds=2))
    assert (category in bank.categories) == fits
    if fits:
        assert bank.count(category) == 3
        assert np.linalg.norm(bank.states[category].v[:, 0, :2], axis=-1).tolist() == pytest.approx(
            [speed] * 3, abs=1e-6
        )


def test_states_are_made_by_rolling_out():
    calls = []

    class Watched(Coasting):
        def propose(self, state, num, rng, intent=None):
            calls.append(state)
            return super().propose(state, num, rng, intent)

    prior = Watched(CVAENetwork.random(SHAPE), Skeleton.adult())
    bank = make_starts(prior, [clip("walk", gliding(1.2))], StartOptions(count=2, batch=2, rounds=1))
    assert bank.count("walk") == 2
    assert len(calls) > 4 * 30


def test_a_bank_is_the_same_for_the_same_seed():
    clips = [clip("walk", gliding(1.2)), clip("walk", gliding(0.9, angle=1.0))]
    one, again, other = (
        make_starts(coasting(), clips, StartOptions(count=6, batch=6, rounds=1, seed=s)) for s in (0, 0, 1)
    )
    assert np.array_equal(one.states["walk"].x, again.states["walk"].x)
    assert not np.array_equal(one.states["walk"].v, other.states["walk"].v)


def test_people_in_the_floor_are_not_kept():
    deep, shallow = (clip("walk", gliding(1.2, sink=sink)) for sink in (0.05, 0.01))
    with pytest.raises(ValueError, match="no rollout"):
        make_starts(coasting(), [deep], StartOptions(count=2, batch=2, rounds=1))
    bank = make_starts(coasting(), [shallow], StartOptions(count=2, batch=2, rounds=1))
    assert (bank.states["walk"].x[..., 2] - Skeleton.adult().radii).min() > -1e-9


def test_poses_out_of_range_are_not_kept():
    shape = PoseShape(radius=())
    tensors = PoseNetwork.random(shape).tensors
    options = StartOptions(count=2, batch=2, rounds=1)
    for bias, kept in ((0.0, True), (100.0, False)):  # a code of 32 times this
        last = {"encoder.2.weight": np.zeros((32, 256), np.float32), "encoder.2.bias": np.full(32, bias, np.float32)}
        network = PoseNetwork(shape, tensors | last)
        if kept:
            assert (
                make_starts(coasting(), [clip("walk", gliding(1.2))], options, pose=PosePrior(network)).count("walk")
                == 2
            )
        else:
            with pytest.raises(ValueError, match="no rollout"):
                make_starts(coasting(), [clip("walk", gliding(1.2))], options, pose=PosePrior(network))


def test_a_prior_of_another_kind_makes_no_bank():
    with pytest.raises(ValueError, match="our own kind"):
        make_starts(tiny(replace(SHAPE, kinematic=False)), [clip("walk", CLIP)], StartOptions())


@pytest.mark.parametrize("asked", ["data", "weights"])
def test_the_command_says_what_is_missing(tmp_path, capsys, asked):
    tiny().save(tmp_path / "prior.safetensors")
    weights = tmp_path / ("none.safetensors" if asked == "weights" else "prior.safetensors")
    assert main(["train", "starts", "--data", str(tmp_path), "--out", str(tmp_path), "--weights", str(weights)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert ("is not a data set" if asked == "data" else "is not there") in error
