"""The conditional VAE: what its steps promise, and its files."""

import pickle
from dataclasses import asdict

import numpy as np
import pytest
from random_priors import tiny

from dropsim.body.rotations import exp, log_small
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.files.weights import write_weights
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAENetwork, CVAEPrior
from dropsim.priors.intent import Intent
from dropsim.priors.prior import State
from dropsim.priors.rollout import roll_out

CLIP = stepping_clip(2.0)


# --- What a step promises ---


def test_our_joints_stay_on_their_bones():
    # Joints by forward kinematics: bones are whole to rounding, however long the rollout.
    prior = tiny(kinematic=True)
    motion = roll_out(prior, prior.start_from(CLIP, 5), 60, Streams(0))
    assert prior.skeleton.bone_error(motion.joints).max() < 1e-12


def test_our_memory_is_the_velocity_of_the_step():
    # Velocities are differences of the frames: those of a start from the same two frames.
    prior = tiny(kinematic=True)
    motion = roll_out(prior, prior.start_from(CLIP, 5), 4, Streams(0))
    state, rng = prior.start_from(CLIP, 5), Streams(0)
    for _ in range(3):
        chosen = prior.propose(state, 2, rng).pick(1)
        state = State(chosen.x, (chosen.x - state.x) * prior.fps, chosen.q, chosen.memory)
    np.testing.assert_allclose(prior.start_from(motion, 3).memory[:135], state.memory[:135], rtol=0, atol=1e-9)


def test_large_turns_are_exact_too():
    # Deltas of several radians: rotations stay rotations, and joints on their bones.
    prior = tiny(kinematic=True)
    tensors = prior.network.tensors
    tensors["output_scale"] = np.full_like(tensors["output_scale"], 5.0)
    wild = CVAEPrior(CVAENetwork(prior.network.shape, tensors), prior.skeleton)
    found = wild.propose(wild.start_from(CLIP, 5), 40, Streams(0))
    np.testing.assert_allclose(
        found.q @ found.q.swapaxes(-1, -2), np.broadcast_to(np.eye(3), found.q.shape), rtol=0, atol=1e-12
    )
    assert wild.skeleton.bone_error(found.x).max() < 1e-12


def test_joints_go_back_to_the_mean_posture():
    # With a network that says nothing, the angle to the mean posture shrinks by the same share in every frame.
    shape = tiny(kinematic=True).network.shape
    pull = np.where(np.arange(22) > 0, 0.1, 0.0)
    silent = {name: np.zeros(size) for name, size in shape.layer_shapes().items()}
    tensors = {"carry": np.zeros_like(shape.constants()["carry"]), "posture": np.full((22, 3), 0.2), "pull": pull}
    prior = CVAEPrior(CVAENetwork(shape, silent | tensors), CLIP.skeleton)
    motion = roll_out(prior, prior.start_from(CLIP, 5), 11, Streams(0), mode=True)
    angles = np.linalg.norm(log_small(exp(prior.network.posture) @ motion.q.swapaxes(-1, -2)), axis=-1)
    np.testing.assert_allclose(angles[10], angles[0] * (1 - pull) ** 10, rtol=0, atol=1e-7)


def test_joints_turn_only_about_the_axes_that_they_have():
    # The shipped model holds the knees' and elbows' own axes where the recordings hold them.
    prior = CVAEPrior.shipped()
    free, held = prior.network.free, prior.network.held
    motion = roll_out(prior, prior.start("jump", 2), 20, Streams(0))
    turns = log_small(motion.q[5:])
    for joint, axis in np.argwhere(free == 0):
        if joint > 0 and np.abs(turns[:, joint]).max() < 3:
            np.testing.assert_allclose(turns[:, joint, axis], held[joint, axis], rtol=0, atol=1e-9)


def test_an_impulse_moves_the_root_and_all_joints():
    prior = tiny(kinematic=True)
    state, change = prior.start_from(CLIP, 5), np.array([0.3, -0.2, 0.1])
    pushed = prior.apply_impulse(state.memory, change)
    moved = (pushed - state.memory)[:72].reshape(24, 3)
    np.testing.assert_allclose(moved, np.where(np.arange(24)[:, None] == 1, 0.0, change), rtol=0, atol=1e-12)
    assert np.array_equal(pushed[72:], state.memory[72:])


def test_a_history_is_that_of_the_frames_before():
    # From any frame on, rolling along a recording by `recall` gives the memory of a start at its end.
    prior = tiny(kinematic=True)
    state = prior.start_from(CLIP, 20)
    for frame in range(21, 31):
        x, q = CLIP.joints[frame], CLIP.q[frame]
        state = State(x, (x - state.x) * prior.fps, q, prior.recall(state, x, q))
    there = prior.start_from(CLIP, 30)
    way = slice(147, 150)
    known = np.arange(213) < 147
    np.testing.assert_allclose(state.memory[known], there.memory[known], rtol=0, atol=1e-9)
    np.testing.assert_allclose(state.memory[150:], there.memory[150:], rtol=0, atol=1e-9)
    # The way is where people went at the start, and then where they are sent.
    assert np.array_equal(state.memory[way], prior.start_from(CLIP, 20).memory[way])
    sent = prior.propose(state, 2, Streams(0), Intent.toward(np.array([0.3, -0.8]))).memory
    np.testing.assert_allclose(sent[:, way], [[0.3, -0.8, 0.0]] * 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("speed", "asked", "turn"), [(1.0, 90, 40), (1.0, -150, -40), (1.0, 20, 20), (0.1, 90, 90)])
def test_people_who_go_are_turned_bit_by_bit(speed, asked, turn):
    prior = tiny(kinematic=True)
    memory = np.zeros(prior.network.shape.memory_size)
    memory[142] = speed  # along y
    state = State(CLIP.joints[0], np.zeros((22, 3)), CLIP.q[0], memory)
    way, then = ((-np.sin(np.radians(angle)), np.cos(np.radians(angle)), 0.0) for angle in (asked, turn))
    memory = prior.propose(state, 2, Streams(0), Intent.toward(np.array(way[:2]))).memory
    np.testing.assert_allclose(memory[:, 147:150], [then] * 2, rtol=0, atol=1e-12)


def test_unlikely_samples_cost_more_than_the_mode():
    prior = tiny(kinematic=True)
    cost = prior.propose(prior.start_from(CLIP, 5), 9, Streams(0)).cost
    assert cost[0] == 0
    assert (cost[1:] > 0).all()


# --- Files ---


def small_person() -> Skeleton:
    """Proportions and masses that no height gives."""
    adult = Skeleton.adult(height=1.5, body_mass=50.0)
    return Skeleton(adult.rest * np.array([1.1, 0.9, 1.0]), adult.masses * np.linspace(0.9, 1.1, 22), adult.radii * 1.2)


@pytest.mark.parametrize(
    "variant", [{"kinematic": True}, {}, {"joints_from_kinematics": True}], ids=["ours", "humor", "Qual"]
)
def test_a_prior_comes_back_from_its_file_with_its_body(tmp_path, variant):
    before = tiny(small_person(), **variant)
    prior = CVAEPrior(before.network, before.skeleton, fps=60.0, temperature=0.7)
    prior.save(str(tmp_path / "mine.safetensors"))
    again = CVAEPrior.load(str(tmp_path / "mine.safetensors"))
    assert (again.name, again.fps, again.temperature) == ("mine", 60.0, 0.7)
    assert again.network.shape == prior.network.shape
    for name in ("rest", "masses", "radii"):
        assert np.array_equal(getattr(again.skeleton, name), getattr(prior.skeleton, name))
    state = prior.start_from(CLIP, 9)
    assert np.array_equal(again.propose(state, 4, Streams(1)).x, prior.propose(state, 4, Streams(1)).x)


def test_a_prior_survives_pickling():
    prior = CVAEPrior.shipped()
    state = prior.start("walk", 1)
    prior.propose(state, 2, Streams(0))
    again = pickle.loads(pickle.dumps(prior))
    assert np.array_equal(again.propose(state, 5, Streams(0)).x, prior.propose(state, 5, Streams(0)).x)


SIZE = tiny(kinematic=True).network.shape.state_size
NAN = np.full((SIZE,), np.nan, dtype=np.float32)
SKELETON = {"skeleton.rest": Skeleton.adult().rest, "skeleton.masses": np.ones(22), "skeleton.radii": np.ones(22)}


def good() -> tuple[dict[str, np.ndarray], dict]:
    prior = tiny(kinematic=True)
    shape = asdict(prior.network.shape)
    return prior.network.tensors | SKELETON, {"shape": shape, "fps": 30.0, "temperature": 1.0}


def spoilt(tensors=None, **changes):
    """A file's contents, with tensors and metadata changed; a change to None takes an entry out."""
    arrays, metadata = good()
    arrays = {k: v for k, v in (arrays | (tensors or {})).items() if v is not None}
    for name, value in changes.items():
        place, _, key = name.partition("__")
        if key:
            metadata["shape"][key] = value
        else:
            metadata[place] = value
    return arrays, {k: v for k, v in metadata.items() if v is not None}


BROKEN = {
    "no shape": (spoilt(shape=None), "does not say the shape"),
    "shape is a list": (spoilt(shape=[1]), "does not say the shape"),
    "strange entry": (spoilt(shape__depth=3), "'depth', which this version does not know"),
    "latent is a text": (spoilt(shape__latent="48"), "invalid shape.latent: 48"),
    "latent is negative": (spoilt(shape__latent=-1), "invalid shape.latent: -1"),
    "latent is huge": (spoilt(shape__latent=16_000_000), "invalid shape.latent: 16000000"),
    "latent does not fit": (spoilt(shape__latent=1_000_000), "has shape"),
    "groups do not fit": (spoilt(shape__groups=5), "cannot be normalised in 5 groups"),
    "width is a bool": (spoilt(shape__prior=[True]), "invalid shape: .*prior"),
    "many layers": (spoilt(shape__prior=[4] * 100_000), "too long|invalid shape.prior"),
    "no layers": (spoilt(shape__prior=[]), "at least one hidden layer"),
    "kinematic is a number": (spoilt(shape__kinematic=1), "invalid shape: .*kinematic"),
    "no rate": (spoilt(fps=None), "its fps is None"),
    "rate is NaN": (spoilt(fps=float("nan")), "its fps is nan"),
    "no skeleton": (spoilt(dict.fromkeys(SKELETON)), "it has no skeleton"),
    "temperature is NaN": (spoilt(temperature=float("nan")), "its temperature is nan"),
    "a tensor is missing": (spoilt({"prior.linears.0.bias": None}), r"lack prior\.linears\.0\.bias"),
    "a tensor too many": (spoilt({"extra": np.zeros(3, np.float32)}), "hold extra, which"),
    "a tensor of another shape": (spoilt({"carry": np.zeros(3, np.float32)}), r"carry has shape \(3,\), the network needs \(69,\)"),
    "integers": (spoilt({"carry": np.zeros(69, np.int64)}), "carry holds int64"),
    "NaN": (spoilt({"state_mean": NAN}), "state_mean holds values that are not finite"),
    "zero scale": (spoilt({"state_scale": np.zeros(SIZE, np.float32)}), "state_scale has to be above zero"),
    "half a skeleton": (spoilt({"skeleton.masses": None}), "it has no skeleton of 22 joints"),
    "a skeleton of one point": (spoilt(SKELETON | {"skeleton.rest": np.zeros((22, 3))}), "has no length"),
    "a skeleton without mass": (spoilt(SKELETON | {"skeleton.masses": np.zeros(22)}), "invalid masses"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_cannot_be_is_refused_in_a_sentence(tmp_path, what):
    (tensors, metadata), sentence = BROKEN[what]
    path = tmp_path / "broken.safetensors"
    write_weights(path, "cvae", tensors, metadata)
    with pytest.raises(ValueError, match=sentence) as error:
        CVAEPrior.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(path))


def test_sizes_are_compared_before_anything_is_built(tmp_path, monkeypatch):
    # A file of a few kilobytes that claims a million codes must not make the program allocate for them.
    import tracemalloc

    arrays, metadata = spoilt(shape__latent=1_000_000, shape__decoder=[1_000_000, 1_000_000], shape__groups=1)
    write_weights(tmp_path / "huge.safetensors", "cvae", arrays, metadata)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"has shape|lack"):
        CVAEPrior.load(tmp_path / "huge.safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


ODD = {"list": "[1]", "cut": "{", "deep": "[" * 50_000, "null": "null", "text": '"cvae"', "long": "x" * 200_000}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_metadata_of_any_kind_is_a_sentence(tmp_path, text):
    import safetensors.numpy

    path = tmp_path / "odd.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, metadata={"dropsim": text})
    with pytest.raises(ValueError, match="JSON part cannot be read") as error:
        CVAEPrior.load(path)
    assert len(str(error.value)) < 400 + len(str(path))


def test_weights_of_another_kind_say_what_they_are(tmp_path):
    write_weights(tmp_path / "pose.safetensors", "pose", {"x": np.zeros(1)}, {})
    with pytest.raises(ValueError, match="it holds pose, not cvae"):
        CVAEPrior.load(tmp_path / "pose.safetensors")
    with pytest.raises(ValueError, match="is not there"):
        CVAEPrior.load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="is not there"):
        CVAEPrior.load(tmp_path)
