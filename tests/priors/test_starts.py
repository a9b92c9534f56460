"""Start states: the bank, its file, and how a prior of any body starts from it."""

from dataclasses import replace

import numpy as np
import pytest
from random_priors import batch, tiny

import dropsim.priors.cvae
import dropsim.priors.starts
from dropsim.body.skeleton import JOINTS, Skeleton
from dropsim.files.weights import write_weights
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.starts import MEMORY_SIZE, StartBank

CLIP = stepping_clip(3.0)


def some_bank() -> StartBank:
    prior = tiny(kinematic=True)
    frames = {"walk": (10, 20, 30), "get up": (40, 50)}
    states = {name: batch([prior.start_from(CLIP, f) for f in places]) for name, places in frames.items()}
    # A bank holds the velocities of a memory, without its history.
    return StartBank({name: replace(state, memory=state.memory[:, :MEMORY_SIZE]) for name, state in states.items()})


def test_a_bank_comes_back_from_its_file(tmp_path):
    bank = StartBank(some_bank().states, Skeleton.adult(height=1.5, body_mass=50.0))
    bank.save(str(tmp_path / "starts.safetensors"))
    again = StartBank.load(str(tmp_path / "starts.safetensors"))
    assert again.categories == ("walk", "get up")
    assert [again.count(name) for name in again.categories] == [3, 2]
    assert np.array_equal(again.skeleton.masses, bank.skeleton.masses)
    for name in bank.categories:
        for part in ("x", "v", "q", "memory"):
            # Stored in single precision; the largest values are velocities of a few m/s.
            np.testing.assert_allclose(
                getattr(again.states[name], part), getattr(bank.states[name], part), rtol=1e-6, atol=1e-6
            )


def test_a_state_is_drawn_by_its_seed():
    bank = some_bank()
    one, again = (bank.draw("walk", 5) for _ in range(2))
    assert np.array_equal(one.x, again.x)
    assert one.x.shape == (22, 3)
    crowd = bank.draw("walk", [5, 6, 7, 8])
    assert crowd.memory.shape[0] == 4
    assert np.array_equal(crowd.x[0], one.x)
    assert len({float(bank.draw("walk", seed).memory.sum()) for seed in range(30)}) == 3


def test_a_drawn_state_is_a_copy():
    bank = some_bank()
    before = bank.states["walk"].x.copy()
    for seed in range(9):
        bank.draw("walk", seed).x[:] = np.nan
    assert np.array_equal(bank.states["walk"].x, before)


def test_an_unknown_category_names_those_that_exist():
    with pytest.raises(ValueError, match=r"no start 'fly': use one of walk, get up"):
        some_bank().draw("fly", 0)


BROKEN = {
    "parts are missing": ({"walk.x": np.zeros((2, 22, 3))}, {"categories": ["walk"]}, "damaged"),
    "no categories": ({}, {}, "does not say which categories"),
    "categories are a number": ({}, {"categories": 3}, "does not say which categories"),
    "categories are numbers": ({}, {"categories": [1]}, "does not say which categories"),
    "other lengths": (
        {"walk.x": np.zeros((2, 22, 3)), "walk.q": np.zeros((3, 22, 3)), "walk.memory": np.zeros((2, 135))},
        {"categories": ["walk"]}, "damaged",
    ),
    "NaN": (
        {"walk.x": np.full((2, 22, 3), np.nan), "walk.q": np.zeros((2, 22, 3)), "walk.memory": np.zeros((2, 135))},
        {"categories": ["walk"]}, "walk.x holds values that are not finite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_bank_is_a_sentence(tmp_path, what):
    tensors, metadata, sentence = BROKEN[what]
    write_weights(tmp_path / "starts.safetensors", "starts", tensors, metadata)
    with pytest.raises(ValueError, match=sentence):
        StartBank.load(tmp_path / "starts.safetensors")


def test_other_weights_are_no_bank(tmp_path):
    tiny(kinematic=True).save(tmp_path / "prior.safetensors")
    with pytest.raises(ValueError, match="holds cvae, not starts"):
        StartBank.load(tmp_path / "prior.safetensors")


# --- Other bodies ---


def long_legged() -> Skeleton:
    """Proportions that no height gives: legs a quarter longer than the rest asks for."""
    adult = Skeleton.adult()
    rest = adult.rest.copy()
    legs = [j for j, name in enumerate(JOINTS) if name.endswith(("knee", "ankle", "foot"))]
    hips = adult.rest[1, 1]
    rest[legs, 1] = hips + 1.25 * (rest[legs, 1] - hips)
    return Skeleton(rest, adult.masses, adult.radii)


BODIES = {
    "child": Skeleton.adult(height=1.2, body_mass=30.0),
    "tall": Skeleton.adult(height=2.05),
    "long legs": long_legged(),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("category", ["stand", "walk", "run", "crouch", "get up", "jump"])
def test_another_body_starts_on_its_own_bones_and_on_the_floor(name, category):
    body, bank = BODIES[name], StartBank.shipped()
    before, state = bank.draw(category, list(range(8))), bank.draw(category, list(range(8)), body)
    assert body.bone_error(state.x).max() < 1e-9
    assert np.array_equal(state.q, before.q)
    # As far above the floor as before, in proportion to the legs.
    scale = body.leg_length / bank.skeleton.leg_length
    gap, wanted = (state.x[..., 2] - body.radii).min(-1), scale * (before.x[..., 2] - bank.skeleton.radii).min(-1)
    np.testing.assert_allclose(gap, wanted, rtol=0, atol=1e-9)
    # The velocity grows with the legs, and memory and state agree.
    np.testing.assert_allclose(state.memory[:, :3], scale * before.memory[:, :3], rtol=0, atol=1e-12)
    np.testing.assert_allclose(state.memory[:, 6:72].reshape(8, 22, 3), state.v, rtol=0, atol=1e-12)


def test_a_body_of_the_same_proportions_is_a_scaled_one():
    # Everything is similar, so that lengths and velocities grow alike; the bank keeps velocities in single precision at
    # 30 Hz.
    bank, body = StartBank.shipped(), Skeleton.adult(height=2.04)
    before, state = bank.draw("walk", [0, 1, 2]), bank.draw("walk", [0, 1, 2], body)
    scale = 2.04 / 1.70
    there, here = (one.x[..., 1:, :] - one.x[..., :1, :] for one in (state, before))
    np.testing.assert_allclose(there, scale * here, rtol=0, atol=1e-5)
    np.testing.assert_allclose(state.v, scale * before.v, rtol=0, atol=2e-3)


def test_a_prior_starts_with_its_own_body():
    prior = CVAEPrior(CVAEPrior.shipped().network, BODIES["tall"])
    assert prior.skeleton.bone_error(prior.start("walk", 2).x) < 1e-9


# --- The package's assets ---


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package whose assets are what the test puts into a folder."""
    (tmp_path / "assets").mkdir()
    monkeypatch.setattr(dropsim.priors.starts.importlib.resources, "files", lambda _: tmp_path)
    dropsim.priors.starts.shipped_starts.cache_clear()
    yield tmp_path / "assets"
    dropsim.priors.starts.shipped_starts.cache_clear()


def test_a_prior_starts_from_the_shipped_bank(shipped):
    some_bank().save(shipped / "starts.safetensors")
    prior = tiny(kinematic=True)
    state = prior.start("walk", 3)
    assert np.array_equal(state.x, StartBank.shipped().draw("walk", 3).x)
    assert prior.start("walk", [1, 2]).x.shape == (2, 22, 3)
    with pytest.raises(ValueError, match="use one of walk, get up"):
        prior.start("swim")


def test_humors_prior_starts_from_it_too(shipped):
    some_bank().save(shipped / "starts.safetensors")
    ours, humors = tiny(kinematic=True).start("walk", 3), tiny().start("walk", 3)
    assert np.array_equal(humors.memory[:72], ours.memory[:72])
    assert np.array_equal(humors.memory[72:], np.zeros(3))


def test_a_package_without_assets_says_so(shipped):
    with pytest.raises(ValueError, match="dropsim train starts"):
        tiny(kinematic=True).start("walk")
    with pytest.raises(ValueError, match="dropsim train prior"):
        CVAEPrior.shipped()


def test_the_shipped_prior_is_the_file_in_the_assets(shipped):
    prior = tiny(kinematic=True)
    prior.save(shipped / "prior.safetensors")
    state, noise = prior.start_from(CLIP, 10), np.zeros((1, prior.network.shape.latent))
    assert np.array_equal(CVAEPrior.shipped().decode(state, noise).x, prior.decode(state, noise).x)
