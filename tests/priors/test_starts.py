"""Start states: the bank, how it is made, and how a prior starts from it."""

from dataclasses import replace

import pytest
import torch

import dropsim.priors.starts
from dropsim.apps.cli import main
from dropsim.body.rotations import exp, heading
from dropsim.body.skeleton import Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.pose import PoseNetwork, PosePrior, PoseShape
from dropsim.priors.prior import Candidates, State
from dropsim.priors.starts import StartBank
from dropsim.research.training.starts import StartOptions, draw_frames, held_out_starts, make_starts, placed, stacked

SHAPE = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
CLIP = stepping_clip(3.0)


def tiny(shape: CVAEShape = SHAPE) -> CVAEPrior:
    torch.manual_seed(0)
    return CVAEPrior(CVAENetwork(shape), Skeleton.adult(), name="tiny")


class Coasting(CVAEPrior):
    """Goes on as it is, in a straight line and in the same pose: people who are known by hand."""

    def sample(self, state, num_samples, rng):
        x = state.x + state.memory[..., None, :3] / self.fps
        memory = state.memory.clone()
        memory[..., 3:6] = 0
        memory[..., 6:72] = state.memory[..., :3].repeat(*[1] * (state.memory.ndim - 1), 22)
        memory[..., 72:] = 0
        return Candidates(*(t.unsqueeze(-n).repeat_interleave(num_samples, -n) for t, n in ((x, 3), (state.q, 4), (memory, 2))))


def gliding(speed: float, seconds: float = 4.0, angle: float = 0.0, sink: float = 0.0) -> Motion:
    """A standing person who glides over the floor, facing anywhere."""
    frames = round(30 * seconds)
    R = exp(torch.tensor([0.0, 0.0, angle], dtype=torch.float64))
    q = CLIP.q[:1].expand(frames, -1, -1, -1).clone()
    q[:, 0] = R @ q[:, 0]
    lowest = (CLIP.joints[0, :, 2] - CLIP.skeleton.radii).min()
    root = CLIP.root[0] @ R.T - torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64) * (lowest + sink)
    way = torch.arange(frames, dtype=torch.float64)[:, None] / 30 * speed * (R @ torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    return Motion.from_rotations(CLIP.skeleton, 30.0, root + way, q)


def clip(category: str, motion: Motion) -> tuple[Clip, Motion]:
    return Clip(f"{category} clip", "01", category, len(motion), held_out=True), motion


def some_bank() -> StartBank:
    prior = tiny()
    states = {name: stacked([placed(prior.start_from(CLIP, f), CLIP.skeleton.radii) for f in frames]) for name, frames in
              (("walk", (10, 20, 30)), ("get up", (40, 50)))}  # fmt: skip
    return StartBank(states)


def test_a_bank_comes_back_from_its_file(tmp_path):
    bank = some_bank()
    bank.save(tmp_path / "starts.safetensors")
    again = StartBank.load(tmp_path / "starts.safetensors")
    assert again.categories == ("walk", "get up")
    assert [again.count(name) for name in again.categories] == [3, 2]
    for name in bank.categories:
        for part in ("x", "v", "q", "memory"):
            # Stored in single precision; the largest values are velocities of a few m/s.
            torch.testing.assert_close(getattr(again.states[name], part), getattr(bank.states[name], part), rtol=1e-6, atol=1e-6)


def test_a_state_is_picked_or_drawn():
    bank = some_bank()
    assert torch.equal(bank.state("walk", 2).x, bank.states["walk"].x[2])
    one, again = (bank.draw("walk", 5) for _ in range(2))
    assert torch.equal(one.x, again.x)
    assert one.x.shape == (22, 3)
    crowd = bank.draw("walk", [5, 6, 7, 8])
    assert crowd.memory.shape[0] == 4
    assert torch.equal(crowd.x[0], one.x)
    drawn = {float(bank.draw("walk", seed).memory.sum()) for seed in range(30)}
    assert len(drawn) == 3


def test_an_unknown_category_names_those_that_exist():
    with pytest.raises(ValueError, match=r"no start 'fly': use one of walk, get up"):
        some_bank().draw("fly", 0)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_the_bank_is_refused(index):
    with pytest.raises(ValueError, match="index from 0 to 2"):
        some_bank().state("walk", index)


def test_a_damaged_bank_is_a_sentence(tmp_path):
    from dropsim.files.weights import write_weights

    path = tmp_path / "starts.safetensors"
    write_weights(path, "starts", {"walk.x": torch.zeros(2, 22, 3)}, {"categories": ["walk"]})
    with pytest.raises(ValueError, match="damaged"):
        StartBank.load(path)
    tiny().save(path)
    with pytest.raises(ValueError, match="holds cvae, not starts"):
        StartBank.load(path)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package whose assets are what the test puts into a folder."""
    (tmp_path / "assets").mkdir()
    monkeypatch.setattr(dropsim.priors.starts.importlib.resources, "files", lambda _: tmp_path)
    return tmp_path / "assets"


def test_a_prior_starts_from_the_shipped_bank(shipped):
    some_bank().save(shipped / "starts.safetensors")
    prior = tiny()
    state = prior.start("walk", seed=3)
    assert torch.equal(state.x, StartBank.shipped().draw("walk", 3).x)
    assert prior.start("walk", seed=[1, 2]).x.shape == (2, 22, 3)
    with pytest.raises(ValueError, match="use one of walk, get up"):
        prior.start("swim")


def test_a_prior_of_another_kind_cannot_use_it(shipped):
    some_bank().save(shipped / "starts.safetensors")
    with pytest.raises(ValueError, match="use start_from"):
        tiny(replace(SHAPE, kinematic=False)).start("walk")


def test_a_package_without_assets_says_so(shipped):
    with pytest.raises(ValueError, match="dropsim train starts"):
        tiny().start("walk")
    with pytest.raises(ValueError, match="dropsim train prior"):
        CVAEPrior.shipped()


def test_the_shipped_prior_is_the_file_in_the_assets(shipped):
    prior = tiny()
    prior.save(shipped / "prior.safetensors")
    again = CVAEPrior.shipped()
    state = prior.start_from(CLIP, 10)
    noise = torch.zeros(1, SHAPE.latent)
    assert torch.equal(again.decode(state, noise).x, prior.decode(state, noise).x)


def test_placing_moves_the_world_and_nothing_else():
    prior = tiny()
    motion = gliding(1.2, angle=2.1, sink=0.02)
    state = prior.start_from(motion, 30)
    there = placed(state, motion.skeleton.radii)
    identity = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(heading(there.q[0]), identity)
    torch.testing.assert_close(there.x[0, :2], torch.zeros(2, dtype=torch.float64))
    # 2 cm in the floor before, on it after.
    torch.testing.assert_close((there.x[:, 2] - motion.skeleton.radii).min(), torch.tensor(0.0, dtype=torch.float64))
    # It glides to where it faces, +y, at 1.2 m/s.
    torch.testing.assert_close(there.v, torch.tensor([0.0, 1.2, 0.0], dtype=torch.float64).expand(22, 3))
    torch.testing.assert_close(there.memory[6:72].unflatten(0, (22, 3)), there.v)
    torch.testing.assert_close(torch.cdist(there.x, there.x), torch.cdist(state.x, state.x))


def test_frames_are_drawn_in_turn_from_each_category():
    clips = [clip("walk", CLIP), clip("run", CLIP.slice(0, 20)), clip("walk", CLIP.slice(0, 40))]
    places = draw_frames(clips, 40, seed=2)
    assert places == draw_frames(clips, 40, seed=2)
    assert places != draw_frames(clips, 40, seed=3)
    assert [clips[i][0].category for i, _ in places] == ["run", "walk"] * 20
    assert {i for i, _ in places} == {0, 1, 2}
    assert all(1 <= frame < len(clips[i][1]) for i, frame in places)
    prior = tiny()
    starts = held_out_starts(clips, prior, 4, seed=2)
    assert torch.equal(starts.x[1], clips[places[1][0]][1].joints[places[1][1]])


def coasting() -> CVAEPrior:
    return Coasting(CVAENetwork(SHAPE), Skeleton.adult())


@pytest.mark.parametrize(
    ("category", "speed", "fits"),
    [("stand", 0.0, True), ("stand", 0.5, False), ("walk", 1.2, True), ("walk", 3.0, False), ("run", 3.0, True), ("run", 1.2, False)],
)
def test_states_fit_their_name_by_speed(category, speed, fits):
    other = clip("stand" if category != "stand" else "walk", gliding(0.0 if category != "stand" else 1.0))
    bank = make_starts(coasting(), [clip(category, gliding(speed)), other], StartOptions(count=3, batch=4, rounds=2))
    assert (category in bank.categories) == fits
    if fits:
        assert bank.count(category) == 3
        assert bank.states[category].v[:, 0, :2].norm(dim=-1).tolist() == pytest.approx([speed] * 3, abs=1e-6)


def test_states_are_made_by_rolling_out():
    calls = []

    class Watched(Coasting):
        def sample(self, state, num_samples, rng):
            calls.append(state)
            return super().sample(state, num_samples, rng)

    prior = Watched(CVAENetwork(SHAPE), Skeleton.adult())
    bank = make_starts(prior, [clip("walk", gliding(1.2))], StartOptions(count=2, batch=2, rounds=1))
    assert bank.count("walk") == 2
    assert len(calls) > 4 * 30


def test_a_bank_is_the_same_for_the_same_seed():
    clips = [clip("walk", gliding(1.2)), clip("walk", gliding(0.9, angle=1.0))]
    one, again, other = (make_starts(coasting(), clips, StartOptions(count=6, batch=6, rounds=1, seed=s)) for s in (0, 0, 1))
    assert torch.equal(one.states["walk"].x, again.states["walk"].x)
    assert not torch.equal(one.states["walk"].v, other.states["walk"].v)


def test_people_in_the_floor_are_not_kept():
    deep, shallow = (clip("walk", gliding(1.2, sink=sink)) for sink in (0.05, 0.01))
    with pytest.raises(ValueError, match="no roll-out"):
        make_starts(coasting(), [deep], StartOptions(count=2, batch=2, rounds=1))
    bank = make_starts(coasting(), [shallow], StartOptions(count=2, batch=2, rounds=1))
    assert (bank.states["walk"].x[..., 2] - Skeleton.adult().radii).amin() > -1e-9


def test_poses_out_of_range_are_not_kept():
    network = PoseNetwork(PoseShape(radius=()))
    options = StartOptions(count=2, batch=2, rounds=1)
    for bias, kept in ((0.0, True), (100.0, False)):  # a code of 32 times this
        torch.nn.init.zeros_(network.encoder[-1].weight)
        torch.nn.init.constant_(network.encoder[-1].bias, bias)
        if kept:
            assert make_starts(coasting(), [clip("walk", gliding(1.2))], options, pose=PosePrior(network)).count("walk") == 2
        else:
            with pytest.raises(ValueError, match="no roll-out"):
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


def test_state_is_a_batch_of_states():
    states = [tiny().start_from(CLIP, f) for f in (3, 4)]
    together = stacked(states)
    assert isinstance(together, State)
    assert torch.equal(together[1].q, states[1].q)
