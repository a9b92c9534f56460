"""The environment keeps Gymnasium's rules, answers the agent's forces, and is decided by its seed."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dropsim.apps.gym import KEEP_UPRIGHT, KNOCK_OVER, PushEnv, Reward

IDS = ("dropsim/KnockOver-v0", "dropsim/KeepUpright-v0")
RIGHT = np.array([1.0, 0.0, 0.0], np.float32)
DOWN = np.array([0.0, 0.0, -1.0], np.float32)
NOTHING = np.zeros(3, np.float32)


def episode(env: gymnasium.Env, action: np.ndarray, *, seed: int, steps: int) -> tuple[np.ndarray, list[float], dict]:
    observation, info = env.reset(seed=seed)
    seen, paid = [observation], []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append(observation)
        paid.append(reward)
        if terminated or truncated:
            break
    return np.stack(seen), paid, info


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_has_nothing_to_say_against_it(name: str):
    # Warnings are errors in these tests, so this is silent too.
    check_env(gymnasium.make(name, num_samples=2, seconds=0.5).unwrapped, skip_render_check=True)


def test_a_seed_decides_everything():
    env = PushEnv(num_samples=2, scene="pushes")
    first, again, other = (episode(env, 0.3 * RIGHT, seed=seed, steps=10)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_person_goes_where_it_is_pushed():
    # Ten frames of 600 N on 70 kg change the velocity by 2.9 m/s where nothing holds; half of that to the person's
    # right is plenty.
    env = PushEnv(num_samples=4, max_force=600.0)
    for seed in (0, 1):
        pushed = episode(env, RIGHT, seed=seed, steps=10)[0]
        calm = episode(env, NOTHING, seed=seed, steps=10)[0]
        pelvis = slice(66, 69)  # its velocity
        assert (pushed[-1, pelvis] - calm[-1, pelvis])[0] > 0.8
        np.testing.assert_array_equal(pushed[0], calm[0])


def test_who_is_felled_pays_for_it_once():
    env = PushEnv(num_samples=4, max_force=2500.0, reward=Reward(fallen=1.0, effort=-1.0))
    _, paid, info = episode(env, DOWN, seed=2, steps=90)
    assert info["fallen"]
    assert sum(paid) == pytest.approx(1.0 - info["impulse"], abs=1e-6)
    # Force times time over weight: 2500 N of 70 kg, for as long as it took.
    assert info["impulse"] == pytest.approx(2500 / (70 * 9.81) * info["seconds"], rel=1e-3)


def test_staying_upright_is_paid_by_the_second():
    env = PushEnv(num_samples=4, seconds=0.5, reward=KEEP_UPRIGHT)
    _, paid, info = episode(env, NOTHING, seed=0, steps=100)
    assert len(paid) == 15
    assert sum(paid) == pytest.approx(0.5 / 6, abs=1e-6)
    assert info["impulse"] == 0.0


def test_an_episode_is_seen_from_the_person_and_is_a_motion():
    env = PushEnv(num_samples=2, reward=KNOCK_OVER)
    joints = episode(env, RIGHT, seed=0, steps=5)[0][0, :66].reshape(22, 3)
    np.testing.assert_allclose(joints[0, :2], 0.0, atol=1e-6)
    assert joints[15, 2] > joints[0, 2] > joints[10, 2]
    assert joints[2, 0] > joints[1, 0], "the right hip is on the right"
    motion = env.motion()
    assert motion.joints.shape == (6, 22, 3)
    assert np.linalg.norm(motion.external_forces[-1].sum(0)) == pytest.approx(300.0, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ("tail",)}, "there is no joint 'tail'"),
        ({"parts": ()}, "needs a body part to push"),
        ({"seconds": 0.0}, "an episode has up to"),
        ({"max_force": float("inf")}, "forces above 0 N"),
        ({"scene": "pusches"}, "did you mean 'pushes'?"),
        ({"scene": "two-people"}, "this environment has one person"),
        ({"render_mode": "human"}, "no render mode 'human'"),
        ({}, "an action has"),
    ],
)
def test_a_wrong_use_is_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):  # noqa: PT012, wherever it is noticed
        env = PushEnv(**options)
        with pytest.raises(ValueError, match=r"call reset\(\) first"):
            env.step(NOTHING)
        env.reset(seed=0)
        for action in (np.zeros(2), np.zeros((1, 3))):
            with pytest.raises(ValueError, match="an action has"):
                env.step(action)
        env.step(np.full(3, np.nan))


def test_pictures():
    env = PushEnv(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    env.step(NOTHING)
    assert first.shape == env.render().shape == (480, 640, 3)
    # Somebody is in the picture: a clothed person is darker than the floor and the sky.
    assert (first.sum(-1, dtype=int) < 300).mean() > 0.01
