"""HuMoR's checkpoint: our loader and roll-out against a second, naive implementation written from the description of the format alone."""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from dropsim.body.skeleton import Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.humor import humor_prior
from dropsim.priors.prior import State

torch = pytest.importorskip("torch")
NUM_FRAMES = 30
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)
NETWORKS = {
    "encoder": ((678, 1024), (1024, 1024), (1024, 1024), (1024, 1024), (1024, 96)),
    "prior_net": ((339, 1024), (1024, 1024), (1024, 1024), (1024, 1024), (1024, 96)),
    "decoder": ((387, 1024), (1072, 1024), (1072, 512), (560, 216)),
}


def random_weights():
    """Weights in HuMoR's key layout; the last layers are scaled so that 30 frames of deltas stay finite and the latent matters."""
    rng = np.random.default_rng(0)
    weights = {}
    for network, layers in NETWORKS.items():
        last = len(layers) - 1
        for i, (size_in, size_out) in enumerate(layers):
            scale = {"encoder": 1.0, "prior_net": 0.5, "decoder": 0.02}[network] if i == last else 1.0
            weights[f"{network}.net.{3 * i}.weight"] = scale * rng.normal(size=(size_out, size_in)) / np.sqrt(size_in)
            weights[f"{network}.net.{3 * i}.bias"] = scale * 0.1 * rng.normal(size=size_out)
            if i < last:
                weights[f"{network}.net.{3 * i + 1}.weight"] = 1 + 0.2 * rng.normal(size=size_out)
                weights[f"{network}.net.{3 * i + 1}.bias"] = 0.2 * rng.normal(size=size_out)
    return {name: value.astype(np.float32) for name, value in weights.items()}


WEIGHTS = random_weights()


def checkpoint(weights, prefix="module."):
    model = {prefix + name: torch.from_numpy(value) for name, value in weights.items()}
    # A best loss is a numpy number in some checkpoints; it is not needed and must not stand in the way.
    return {
        "model": model,
        "optim": {"state": {}, "param_groups": []},
        "epoch": 3,
        "min_val_loss": np.float64(1.5),
        "min_train_loss": 2.0,
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("humor") / "best_model.pth"
    torch.save(checkpoint(WEIGHTS), file)
    return file


# --- The second implementation: loops over one person in double precision. ---


def naive_mlp(network, x, latent=()):
    """Linear, GroupNorm with 16 groups, ReLU; a plain linear end; the latent again before every linear layer but the first."""
    last = len(NETWORKS[network]) - 1
    for i in range(last + 1):
        if i > 0:
            x = np.concatenate((x, latent))
        x = WEIGHTS[f"{network}.net.{3 * i}.weight"].astype(float) @ x + WEIGHTS[f"{network}.net.{3 * i}.bias"]
        if i < last:
            for group in np.split(np.arange(len(x)), 16):
                values = x[group]
                x[group] = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
            x = x * WEIGHTS[f"{network}.net.{3 * i + 1}.weight"] + WEIGHTS[f"{network}.net.{3 * i + 1}.bias"]
            x = np.maximum(x, 0)
    return x


def naive_exp(w):
    angle = np.linalg.norm(w)
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = w / angle
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


@dataclass
class Humor:
    """HuMoR's state; rotations as matrices."""

    trans: np.ndarray
    trans_vel: np.ndarray
    root_orient: np.ndarray
    root_orient_vel: np.ndarray
    pose_body: np.ndarray
    joints: np.ndarray
    joints_vel: np.ndarray

    def vector(self):
        parts = (
            self.trans,
            self.trans_vel,
            self.root_orient,
            self.root_orient_vel,
            self.pose_body,
            self.joints,
            self.joints_vel,
        )
        return np.concatenate([part.reshape(-1) for part in parts])


def facing_y(root_orient):
    """The turn about z that brings the horizontal part of the body's right, -R[:, 0], onto +x."""
    right = -root_orient[:, 0]
    angle = -np.arctan2(right[1], right[0])
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def moved(s, R, t, t2j):
    """Shift by t and turn by R: trans about itself, joints about the pelvis."""
    return Humor(
        R @ (s.trans + t), R @ s.trans_vel, R @ s.root_orient, R @ s.root_orient_vel, s.pose_body,
        np.array([R @ (p + t + t2j) - t2j for p in s.joints]), np.array([R @ v for v in s.joints_vel]),
    )  # fmt: skip


def moved_back(s, R, t, t2j):
    return Humor(
        R.T @ s.trans - t, R.T @ s.trans_vel, R.T @ s.root_orient, R.T @ s.root_orient_vel, s.pose_body,
        np.array([R.T @ (p + t2j) - t2j - t for p in s.joints]), np.array([R.T @ v for v in s.joints_vel]),
    )  # fmt: skip


def naive_step(s, noise):
    """Decode a latent of the conditional prior and add the deltas to a local state."""
    x = s.vector()
    out = naive_mlp("prior_net", x)
    z = out[:48] + np.exp(0.5 * out[48:]) * noise
    d = naive_mlp("decoder", np.concatenate((x, z)), z)
    turns = d[12:75].reshape(21, 3)
    return Humor(
        s.trans + d[:3], s.trans_vel + d[3:6], naive_exp(d[6:9]) @ s.root_orient, s.root_orient_vel + d[9:12],
        np.array([naive_exp(w) @ R for w, R in zip(turns, s.pose_body, strict=True)]),
        s.joints + d[75:141].reshape(22, 3), s.joints_vel + d[141:207].reshape(22, 3),
    )  # fmt: skip


def naive_kinematics(s, rest):
    """SMPL's joints: the pelvis is trans + J0, and every bone turns with its parent."""
    world, joints = [s.root_orient], [s.trans + rest[0]]
    for j in range(1, 22):
        p = PARENTS[j]
        joints.append(joints[p] + world[p] @ (rest[j] - rest[p]))
        world.append(world[p] @ s.pose_body[j - 1])
    return np.array(joints)


def flat(v):
    return np.array([v[0], v[1], 0.0])


def naive_roll_out(start, noises, rest=None):
    """World states after each step; with a rest pose, joints come from forward kinematics (HuMoR's Qual variant)."""
    R, t = facing_y(start.root_orient), -flat(start.trans)
    t2j = -flat(start.joints[0] + t)
    local, states = moved(start, R, t, t2j), []
    for noise in noises:
        then = naive_step(local, noise)
        if rest is not None:
            then.joints = naive_kinematics(then, rest)
        world = moved_back(then, R, t, t2j)
        states.append(world)
        turn = facing_y(then.root_orient)
        local = moved(then, turn, -flat(then.trans), t2j)
        R, t = turn @ R, -flat(world.trans)
    return states


# --- Comparisons ---


def start_state(prior):
    clip = stepping_clip(1.0)
    start = prior.start_from(clip, 12)
    # Away from the origin and turned, so that frames that are mixed up show.
    R, shift = naive_exp(np.array([0.0, 0.0, 2.1])), np.array([3.0, -2.0, 0.0])
    turned = (start.memory[:72].reshape(24, 3) @ R.T).reshape(-1)
    q = np.concatenate((R @ start.q[:1], start.q[1:]))
    return State(start.x @ R.T + shift, start.v @ R.T, q, np.concatenate((turned, start.memory[72:])))


def as_humor(state, skeleton):
    x, q, memory = state.x, state.q, state.memory
    return Humor(x[0] - skeleton.rest[0], memory[:3], q[0], memory[3:6], q[1:], x.copy(), memory[6:72].reshape(22, 3))


@pytest.mark.parametrize("kinematics", [False, True], ids=["regressed", "Qual"])
@pytest.mark.parametrize("sampled", [False, True], ids=["mode", "sampled"])
def test_the_roll_out_is_humors(path, kinematics, sampled):
    skeleton = Skeleton.adult()
    prior = CVAEPrior.from_humor(path, skeleton, joints_from_kinematics=kinematics)
    noises = np.random.default_rng(1).normal(size=(NUM_FRAMES, 48)) * sampled
    state = start_state(prior)
    expected = naive_roll_out(as_humor(state, skeleton), noises, skeleton.rest if kinematics else None)
    began = state
    for noise, other in zip(noises, expected, strict=True):
        # The mode and a sample side by side, as the simulator asks for them.
        chosen = prior.decode(state, np.stack((np.zeros(48), noise))).pick(int(sampled))
        state = State(chosen.x, state.v, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        # Our network runs in single precision: 1e-7 of states of order one, fed back 30 times.
        ours = {
            "joints": state.x,
            "root": state.q[0],
            "body": state.q[1:],
            "velocities": state.memory[:72].reshape(24, 3),
        }
        trans = state.x[0] + state.memory[72:] - skeleton.rest[0]
        theirs = {"joints": other.joints, "root": other.root_orient, "body": other.pose_body}
        theirs["velocities"] = np.concatenate(([other.trans_vel, other.root_orient_vel], other.joints_vel))
        for name, value in ours.items():
            np.testing.assert_allclose(value, theirs[name], atol=5e-6, rtol=0, err_msg=name)
        np.testing.assert_allclose(trans, other.trans, atol=5e-6, rtol=0)
    # The comparison is of something: the body has gone and turned far beyond the tolerance, and not to infinity.
    assert 0.1 < np.linalg.norm(state.x - began.x, axis=-1).mean() < 50
    assert np.linalg.norm(state.q[0] - began.q[0]) > 0.1
    drift = np.linalg.norm(state.memory[72:])
    assert drift < 1e-6 if kinematics else drift > 1e-3


def test_the_layout_is_humors():
    # The number of parameters that the description of the format gives.
    assert sum(value.size for value in WEIGHTS.values()) == 9_725_976


def test_the_module_prefix_may_be_missing(path, tmp_path):
    plain = tmp_path / "plain.pth"
    torch.save(checkpoint(WEIGHTS, prefix=""), plain)
    state = humor_prior(plain, Skeleton.adult()).network.tensors
    for name, tensor in humor_prior(path, Skeleton.adult()).network.tensors.items():
        assert np.array_equal(state[name], tensor)


def test_a_saved_checkpoint_is_the_same_prior_on_its_body(path, tmp_path):
    body = Skeleton.adult(height=1.6)
    prior = humor_prior(path, body)
    prior.save(tmp_path / "humor.safetensors")
    again = CVAEPrior.load(tmp_path / "humor.safetensors")
    state, noise = start_state(prior), np.random.default_rng(0).normal(size=(3, 48))
    assert np.array_equal(again.decode(state, noise).x, prior.decode(state, noise).x)
    assert np.array_equal(again.skeleton.rest, body.rest)


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def broken(tmp_path):
    """Checkpoints that are not HuMoR's, and a word of the sentence that says so."""
    transposed = dict(WEIGHTS) | {"decoder.net.6.weight": WEIGHTS["decoder.net.6.weight"].T.copy()}
    lacking = {k: v for k, v in WEIGHTS.items() if k != "prior_net.net.9.bias"}
    strange = dict(WEIGHTS) | {"decoder.net.12.bias": np.zeros(3, np.float32)}
    infinite = dict(WEIGHTS) | {"decoder.net.9.bias": np.full(216, np.nan, np.float32)}
    return {
        "shape": (checkpoint(transposed), r"decoder\.net\.6\.weight has shape \(1072, 512\)"),
        "missing": (checkpoint(lacking), r"no tensor prior_net\.net\.9\.bias"),
        "strange": (checkpoint(strange), r"holds decoder\.net\.12\.bias"),
        "infinite": (checkpoint(infinite), "not finite"),
        "no model": ({"weights": {}}, "no entry 'model'"),
        "a list": ([1, 2], "no entry 'model'"),
        "code": (checkpoint(WEIGHTS) | {"epoch": Malicious(tmp_path / "ran")}, r"asks for 'posix\.system'"),
    }


@pytest.mark.parametrize("what", ["shape", "missing", "strange", "infinite", "no model", "a list", "code"])
def test_other_files_are_refused_in_a_sentence(tmp_path, what):
    content, sentence = broken(tmp_path)[what]
    file = tmp_path / "other.pth"
    torch.save(content, file)
    with pytest.raises(ValueError, match=sentence) as error:
        humor_prior(file, Skeleton.adult())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()
