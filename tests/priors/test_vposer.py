"""VPoser's files against a naive reading of them."""

import os

import numpy as np
import pytest

from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.pose import PosePrior

torch = pytest.importorskip("torch")
CLIP = stepping_clip(1.0)


def naive_exp(w):
    angle = np.linalg.norm(w)
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = w / angle
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


NORMS_1 = {"bodyprior_enc_bn1": 63, "bodyprior_enc_bn2": 512}
LINEARS_1 = {
    "bodyprior_enc_fc1": (512, 63), "bodyprior_enc_fc2": (512, 512), "bodyprior_enc_mu": (32, 512), "bodyprior_enc_logvar": (32, 512),
    "bodyprior_dec_fc1": (512, 32), "bodyprior_dec_fc2": (512, 512), "bodyprior_dec_out": (126, 512),
}  # fmt: skip
NORMS_2 = {"vp_model.encoder_net.1": 63, "vp_model.encoder_net.4": 512}
LINEARS_2 = {
    "vp_model.encoder_net.2": (512, 63), "vp_model.encoder_net.6": (512, 512), "vp_model.encoder_net.7": (512, 512),
    "vp_model.encoder_net.8.mu": (32, 512), "vp_model.encoder_net.8.logvar": (32, 512), "vp_model.decoder_net.0": (512, 32),
    "vp_model.decoder_net.3": (512, 512), "vp_model.decoder_net.5": (126, 512),
}  # fmt: skip


def vposer_weights(norms, linears):
    rng = np.random.default_rng(0)
    weights = {}
    for name, size in norms.items():
        weights[f"{name}.weight"] = 1 + 0.3 * rng.normal(size=size)
        weights[f"{name}.bias"] = 0.3 * rng.normal(size=size)
        weights[f"{name}.running_mean"] = 0.3 * rng.normal(size=size)
        weights[f"{name}.running_var"] = rng.uniform(0.2, 2.0, size=size)
    for name, shape in linears.items():
        weights[f"{name}.weight"] = 1.5 * rng.normal(size=shape) / np.sqrt(shape[1])
        weights[f"{name}.bias"] = 0.3 * rng.normal(size=shape[0])
    return {name: torch.from_numpy(value).float() for name, value in weights.items()} | {
        f"{name}.num_batches_tracked": torch.tensor(7) for name in norms
    }


WEIGHTS_1, WEIGHTS_2 = vposer_weights(NORMS_1, LINEARS_1), vposer_weights(NORMS_2, LINEARS_2)


def naive_layer(weights, name, x):
    return weights[f"{name}.weight"].double().numpy() @ x + weights[f"{name}.bias"].double().numpy()


def naive_norm(weights, name, x):
    gain, shift, mean, variance = (
        weights[f"{name}.{p}"].double().numpy() for p in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + 1e-5) * gain + shift


def leaky(x, slope):
    return np.where(x > 0, x, slope * x)


def naive_encode_1(rotvecs):
    x = naive_norm(WEIGHTS_1, "bodyprior_enc_bn1", rotvecs.reshape(63))
    x = leaky(naive_layer(WEIGHTS_1, "bodyprior_enc_fc1", x), 0.2)
    x = naive_norm(WEIGHTS_1, "bodyprior_enc_bn2", x)
    x = leaky(naive_layer(WEIGHTS_1, "bodyprior_enc_fc2", x), 0.2)
    return naive_layer(WEIGHTS_1, "bodyprior_enc_mu", x)


def naive_encode_2(rotvecs):
    x = naive_norm(WEIGHTS_2, "vp_model.encoder_net.1", rotvecs.reshape(63))
    x = leaky(naive_layer(WEIGHTS_2, "vp_model.encoder_net.2", x), 0.01)
    x = naive_norm(WEIGHTS_2, "vp_model.encoder_net.4", x)
    for name in ("6", "7", "8.mu"):
        x = naive_layer(WEIGHTS_2, f"vp_model.encoder_net.{name}", x)
    return x


def naive_decode(weights, names, slope, z):
    for name in names[:-1]:
        z = leaky(naive_layer(weights, name, z), slope)
    rotations = []
    for six in naive_layer(weights, names[-1], z).reshape(21, 6):
        a, b = six[[0, 2, 4]], six[[1, 3, 5]]  # the columns of a 3 x 2 matrix that is stored by rows
        a = a / np.linalg.norm(a)
        b = b - (a @ b) * a
        b = b / np.linalg.norm(b)
        rotations.append(np.stack((a, b, np.cross(a, b)), axis=1))
    return np.array(rotations)


VPOSER = {
    1: (WEIGHTS_1, naive_encode_1, [f"bodyprior_dec_{n}" for n in ("fc1", "fc2", "out")], 0.2),
    2: (WEIGHTS_2, naive_encode_2, [f"vp_model.decoder_net.{n}" for n in "035"], 0.01),
}


def vposer_file(folder, version):
    if version == 1:
        torch.save(WEIGHTS_1, folder / "TR00_E096.pt")
        return folder / "TR00_E096.pt"
    # A Lightning checkpoint holds the body that it was trained on, too.
    state = WEIGHTS_2 | {"bm_train.v_template": torch.zeros(3, 3)}
    torch.save(
        {"state_dict": state, "epoch": 13, "val_loss": np.float64(0.03)}, folder / "V02_05_epoch=13_val_loss=0.03.ckpt"
    )
    return folder / "V02_05_epoch=13_val_loss=0.03.ckpt"


@pytest.mark.parametrize("version", [1, 2])
def test_vposer_is_read(tmp_path, version):
    weights, encode, names, slope = VPOSER[version]
    prior = PosePrior.from_vposer(vposer_file(tmp_path, version))
    rng = np.random.default_rng(1)
    rotvecs = 0.6 * rng.normal(size=(5, 21, 3))
    q = np.tile(np.eye(3), (5, 22, 1, 1))
    q[:, 1:] = [[naive_exp(w) for w in pose] for pose in rotvecs]
    z = np.array([encode(pose) for pose in rotvecs])
    # Codes of norm 10 or so through three layers in single precision, normalisation folded in.
    np.testing.assert_allclose(prior.encode(q), z, atol=5e-5, rtol=0)
    body = np.array([naive_decode(weights, names, slope, code) for code in z])
    np.testing.assert_allclose(prior.decode(z), body, atol=5e-5, rtol=0)
    norms = np.linalg.norm(z, axis=1)
    assert (norms > 6).any()
    np.testing.assert_allclose(prior.norm(q), norms, atol=5e-5, rtol=0)
    for i, projected in enumerate(prior.scaled_back(q)):
        expected = naive_decode(weights, names, slope, z[i] * 6 / norms[i])
        np.testing.assert_allclose(projected[1:], expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("version", [1, 2])
def test_vposers_folder_will_do(tmp_path, version):
    (tmp_path / "snapshots").mkdir()
    file = vposer_file(tmp_path / "snapshots", version)
    a, b = (PosePrior.from_vposer(p).network.tensors for p in (tmp_path, file))
    assert all(np.array_equal(a[name], b[name]) for name in a)


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w, _: w | {"bodyprior_dec_out.weight": torch.zeros(63, 512)}, r"dec_out\.weight has shape \(63, 512\), VPoser needs"),
        (lambda w, _: {k: v for k, v in w.items() if "bn2" not in k}, r"has no tensor bodyprior_enc_bn2\.weight"),
        (lambda w, _: w | {"bodyprior_enc_mu.bias": torch.full((32,), torch.inf)}, "not finite"),
        (lambda w, folder: w | {"extra": Malicious(folder / "ran")}, r"asks for 'posix\.system', which could run code"),
        (lambda w, _: w | {"bodyprior_enc_bn1.running_var": -torch.ones(63)}, "negative variance"),
        (lambda w, _: {"state_dict": w}, r"has no tensor vp_model\.encoder_net"),
        (lambda *_: [1, 2, 3], "has no tensor"),
    ],
    ids=["shape", "missing", "infinite", "code", "variance", "version", "list"],
)  # fmt: skip
def test_other_files_are_refused_in_a_sentence(tmp_path, change, sentence):
    torch.save(change(WEIGHTS_1, tmp_path), tmp_path / "other.pt")
    with pytest.raises(ValueError, match=sentence) as error:
        PosePrior.from_vposer(tmp_path / "other.pt")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no VPoser checkpoint"):
        PosePrior.from_vposer(tmp_path)
    with pytest.raises(ValueError, match="is not there"):
        PosePrior.from_vposer(tmp_path / "none.pt")
