"""The pose prior: its projection, its files, and the model that ships."""

from dataclasses import asdict

import numpy as np
import pytest

from dropsim.body.skeleton import JOINTS, Skeleton, joint_index
from dropsim.files.weights import write_weights
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.pose import PoseNetwork, PosePrior, PoseShape

CLIP = stepping_clip(4.0)


def naive_exp(w):
    angle = np.linalg.norm(w)
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = w / angle
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


@pytest.fixture(scope="module")
def prior():
    """Random weights, and a limit that half of the poses below exceed."""
    network = PoseNetwork.random(PoseShape())
    return PosePrior(network, limit=float(np.median(PosePrior(network).norm(CLIP.q))))


# --- The projection ---


def project(prior, q):
    """Poses out of range replaced by what their codes say when scaled back to the limit."""
    outside, projected = prior.norm(q) > prior.limit, q.copy()
    projected[outside] = prior.scaled_back(q[outside])
    return projected


def test_inside_the_limit_nothing_changes_and_outside_the_code_has_the_limits_norm(prior):
    q = CLIP.q
    norm, z, projected = prior.norm(q), prior.encode(q), project(prior, q)
    outside = norm > prior.limit
    assert 0 < outside.sum() < len(q)
    assert np.array_equal(projected[~outside], q[~outside])
    assert np.array_equal(projected[:, 0], q[:, 0])
    scaled = z[outside] * (prior.limit / norm[outside, None])
    # Rounding of single precision, which the network runs in.
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=-1), prior.limit, rtol=1e-6, atol=0)
    # The columns that a random network decodes are short: as rotations their rounding is larger.
    np.testing.assert_allclose(projected[outside, 1:], prior.decode(scaled), rtol=0, atol=1e-5)


def test_decoded_poses_are_rotations_in_double_precision(prior, rng):
    R = prior.decode(rng.normal(size=(7, 32)))
    np.testing.assert_allclose(R @ R.swapaxes(-1, -2), np.broadcast_to(np.eye(3), R.shape), rtol=0, atol=1e-12)
    assert (np.linalg.det(R) > 0).all()


def test_the_projection_is_continuous_outside(prior, rng):
    q = CLIP.q[prior.norm(CLIP.q) > 1.001 * prior.limit]
    step = 1e-4
    near = q @ np.array([[naive_exp(w) for w in pose] for pose in step * rng.normal(size=(len(q), 22, 3))])
    # A random network of this kind stretches by less than a hundred.
    assert np.abs(project(prior, near) - project(prior, q)).max() < 100 * step


def test_poses_that_are_not_finite_do_not_spread(prior):
    q = CLIP.q[:3].copy()
    q[1, 5] = np.nan
    assert np.array_equal(project(prior, q)[[0, 2]], project(prior, q[[0, 2]]))


def test_weights_come_back_from_a_file(prior, tmp_path):
    prior.save(tmp_path / "pose.safetensors")
    again = PosePrior.load(tmp_path / "pose.safetensors")
    assert again.limit == prior.limit
    assert np.array_equal(project(again, CLIP.q), project(prior, CLIP.q))


def test_other_weights_are_refused(prior, tmp_path):
    tensors = prior.network.tensors
    write_weights(tmp_path / "cvae.safetensors", "cvae", tensors, {})
    write_weights(tmp_path / "sizes.safetensors", "pose", tensors, {})
    write_weights(tmp_path / "shape.safetensors", "pose", tensors, {"shape": {"encoder": [16], "decoder": [16]}})
    for name, sentence in (
        ("cvae", "holds cvae, not pose"),
        ("sizes", "does not say the shape"),
        ("shape", "has shape|hold"),
    ):
        with pytest.raises(ValueError, match=sentence):
            PosePrior.load(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_cannot_be_is_refused(prior, tmp_path, limit):
    with pytest.raises(ValueError, match="above zero"):
        PosePrior(prior.network, limit)
    metadata = {"shape": asdict(prior.network.shape), "limit": limit}
    write_weights(tmp_path / "pose.safetensors", "pose", prior.network.tensors, metadata)
    with pytest.raises(ValueError, match="its limit is"):
        PosePrior.load(tmp_path / "pose.safetensors")


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_that_cannot_be_is_refused(prior, tmp_path, scale):
    tensors = prior.network.tensors | {"input_scale": np.full(126, scale, dtype=np.float32)}
    write_weights(tmp_path / "pose.safetensors", "pose", tensors, {"shape": asdict(prior.network.shape)})
    with pytest.raises(ValueError, match="input_scale has to be above zero"):
        PosePrior.load(tmp_path / "pose.safetensors")


# --- The model that ships ---


def bent_back(q, joint, axis, degrees):
    bad = q.copy()
    bad[:, joint_index(joint)] = naive_exp(np.radians(degrees) * np.array(axis))
    return bad


def test_the_shipped_model_knows_a_walk_from_broken_bones():
    prior = PosePrior.shipped()
    assert (prior.norm(CLIP.q) < prior.limit).all()
    for joint, axis, degrees in (
        ("left_knee", (1.0, 0, 0), -50),
        ("right_knee", (1.0, 0, 0), -50),
        ("neck", (0, 1.0, 0), 150),
    ):
        assert (prior.norm(bent_back(CLIP.q, joint, axis, degrees)) > prior.limit).mean() > 0.95, joint


def test_the_shipped_model_takes_a_knee_back_and_leaves_the_rest():
    prior, skeleton = PosePrior.shipped(), Skeleton.adult()
    bad = bent_back(CLIP.q, "left_knee", (1.0, 0, 0), -60)
    projected = project(prior, bad)
    knee = projected[:, joint_index("left_knee")]
    # Sine of the bend to the front: 60 degrees before, no more than the 15 that recorded knees have, and a little,
    # after.
    assert np.median(np.degrees(np.arcsin((knee[:, 1, 2] - knee[:, 2, 1]) / 2))) < 25
    joints = [skeleton.forward(q, CLIP.root) for q in (projected, CLIP.q)]
    others = [j for j in range(22) if JOINTS[j] not in ("left_knee", "left_ankle", "left_foot")]
    assert np.linalg.norm((joints[0] - joints[1])[:, others], axis=-1).mean() < 0.06
