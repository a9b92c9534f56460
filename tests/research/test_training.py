"""Training of the motion prior: recorded frames, displaced states and their way back, and whole runs."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from dropsim.body import rotations
from dropsim.body.skeleton import NUM_JOINTS, joint_index
from dropsim.motion.amass import write_amass
from dropsim.motion.clips import Clip, build, load
from dropsim.motion.contacts import label_contacts
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import VELOCITY_SIZE, CVAENetwork, CVAEPrior, CVAEShape
from dropsim.research.training import frames as frames_module
from dropsim.research.training import loop, prior
from dropsim.research.training.displaced import RETURN_RATE, displaced, way_back
from dropsim.research.training.frames import BALANCE, Frames, Window, window_at
from dropsim.research.training.loop import Budget, Progress
from dropsim.research.training.network import Local, exp, heading, log_small
from dropsim.research.training.prior import PriorOptions, PriorTrainer, Stand, train_prior

FPS = 30.0
H = 1 / FPS
LOCAL = ("root", "q", "joints", "velocity")


def lively(seconds: float, seed: int) -> Motion:
    """A person who steps, travels, turns, and moves every joint but the feet's in its own way; asymmetric, so that mirroring shows."""
    clip, rng = stepping_clip(seconds), np.random.default_rng(seed)
    time = np.arange(len(clip)) * H
    axes, phase = rng.normal(size=(NUM_JOINTS, 3)), 6 * rng.random(NUM_JOINTS)
    bend = 0.15 * axes * np.sin(3 * time[:, None] + phase)[..., None]
    bend[:, [7, 8, 10, 11]] = 0
    q = rotations.exp(bend) @ clip.q
    q[:, 0] = rotations.exp(time[:, None] * [0.0, 0.0, 0.8]) @ q[:, 0]
    motion = Motion.from_rotations(clip.skeleton, FPS, clip.root + time[:, None] * [0.5, -0.2, 0.0], q)
    return replace(motion, touching=label_contacts(motion))


def clip_of(motion: Motion, category: str = "walk", name: str = "ann_1") -> tuple[Clip, Motion]:
    return Clip(name, name.partition("_")[0], category, len(motion), False), motion


MOTION = lively(3.0, 0)
FRAMES = Frames.of([clip_of(MOTION), clip_of(lively(2.0, 1), name="ann_2")])
SKELETON, BODY = FRAMES.skeleton, FRAMES.body
EVERY = FRAMES.starts[: len(FRAMES.starts) // 2]
"""Starts in the clips themselves; as many in their mirror images follow."""
COUNT = 5
ROOMY = EVERY[FRAMES.last[EVERY] > EVERY + COUNT]
"""Starts with room for a window of that many frames."""


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def single(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def bone_error(joints: Tensor) -> float:
    return float(SKELETON.bone_error(joints.double().numpy()).max())


# --- frames


def test_frames_are_the_clips_and_their_mirror_images_end_to_end():
    second = lively(2.0, 1)
    assert len(FRAMES.root) == 2 * (len(MOTION) + len(second)) == 300
    torch.testing.assert_close(FRAMES.root[90:150], single(second.root))
    torch.testing.assert_close(FRAMES.q[240:], single(second.mirrored().q))
    assert FRAMES.first[:150].tolist() == [0] * 90 + [90] * 60
    assert FRAMES.last[:150].tolist() == [89] * 90 + [149] * 60
    # A start has two frames before it and one after it in its own clip.
    assert EVERY.tolist() == [*range(2, 89), *range(92, 149)]


def test_the_memory_of_a_window_is_what_a_prior_has_at_that_frame():
    shape = CVAEShape(4, (32,), (32,), groups=4, kinematic=True)
    prior_ = CVAEPrior(CVAENetwork.random(shape), SKELETON)
    for frame in (2, 30, 58):
        now = window_at(FRAMES, torch.tensor([frame]), 1).now
        state = prior_.start_from(MOTION, frame)
        memory = prior_.turn_memory(state.memory, rotations.heading(state.q[0]))
        # Differences over 1/30 s of numbers in single precision, and differences of these.
        np.testing.assert_allclose(now.velocity[0].numpy(), memory, rtol=0, atol=2e-3)


def moved(motion: Motion) -> Motion:
    """The same motion elsewhere, in another direction."""
    turn = rotations.exp(np.array([0.0, 0.0, 2.0]))
    q = np.concatenate((turn @ motion.q[:, :1], motion.q[:, 1:]), axis=1)
    there = Motion.from_rotations(motion.skeleton, FPS, motion.root @ turn.T + [3.0, -2.0, 0.0], q)
    return replace(there, touching=motion.touching)


def assert_same(a: Window, b: Window, *, tolerance: float) -> None:
    for name in LOCAL:
        # The memory is differences over 1/30 s, and differences of these: thirty times the rounding of places.
        close = tolerance * (100 if name == "velocity" else 1)
        torch.testing.assert_close(getattr(a.now, name), getattr(b.now, name), rtol=0, atol=close)
    for name in ("root", "q", "joints", "intent"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=0, atol=2 * tolerance, equal_nan=True)
    assert torch.equal(a.touching, b.touching)
    assert torch.equal(a.standing, b.standing)


def test_a_window_knows_neither_place_nor_heading():
    here, there = (Frames.of([clip_of(motion)]) for motion in (MOTION, moved(MOTION)))
    # Single precision some metres away from the origin.
    assert_same(*(window_at(frames, frames.starts[:40], COUNT) for frames in (here, there)), tolerance=5e-6)


def test_a_mirrored_window_is_the_window_of_the_mirrored_motion():
    left, right = (Frames.of([clip_of(motion)]) for motion in (MOTION, MOTION.mirrored()))
    plain, mirrored = (half[:40] for half in left.starts.chunk(2))
    assert_same(window_at(left, mirrored, COUNT), window_at(right, plain, COUNT), tolerance=2e-6)
    # And it is another one than the plain window.
    assert (window_at(left, plain, 1).joints - window_at(left, mirrored, 1).joints).abs().max() > 0.05


def test_an_intent_is_where_the_person_is_later():
    intent = window_at(FRAMES, EVERY, 1).intent[:, 0]
    known = FRAMES.last[EVERY] - EVERY >= 20
    assert torch.equal(known, ~intent.isnan().any(-1))
    # The person turns by 0.8 rad/s to the left: facing, in the heading frame, is (-sin, cos) of the change of heading
    # in 20 frames.
    at = EVERY[known]
    now, later = (heading(FRAMES.q[i, 0]) for i in (at, at + 20))
    facing = (now @ later.transpose(-1, -2))[:, :2, 1]
    torch.testing.assert_close(intent[known, 2:4], facing, rtol=0, atol=1e-5)
    gone = (now @ (FRAMES.root[at + 20] - FRAMES.root[at]).unsqueeze(-1)).squeeze(-1)[:, :2] * 1.5
    torch.testing.assert_close(intent[known, :2], gone, rtol=0, atol=1e-5)
    torch.testing.assert_close(intent[known, 4], FRAMES.root[at + 20, 2])


# --- drawing


def test_categories_are_drawn_by_the_power_law(generator: torch.Generator):
    clips = [clip_of(MOTION.slice(0, 80), "walk", f"a_{i}") for i in range(9)] + [
        clip_of(MOTION.slice(0, 80), "jump", "a_9")
    ]
    frames = Frames.of([*clips, clip_of(MOTION.slice(0, 20), "run", "a_10")])
    # A category weighs as its minutes to the power of BALANCE, spread over its frames; of every clip the first two and
    # the last are no starts.
    minutes = {"walk": 720, "jump": 80, "run": 20}
    starts = {"walk": 9 * 77, "jump": 77, "run": 17}
    shares = {name: starts[name] * minutes[name] ** (BALANCE - 1) for name in minutes}
    count = 40_000
    at = frames.draw(count, generator) % (len(frames.root) // 2)  # mirror images are drawn as often
    groups = {"walk": at < 720, "jump": (at >= 720) & (at < 800), "run": at >= 800}
    for name, group in groups.items():
        p = shares[name] / sum(shares.values())
        # Four standard deviations of a binomial share.
        assert abs(float(group.double().mean()) - p) < 4 * math.sqrt(p * (1 - p) / count), name
    assert torch.isin(at, frames.starts).all()


# --- what is refused


def test_data_without_contacts_is_refused():
    bare = replace(MOTION, touching=None)
    with pytest.raises(ValueError, match="no contact labels"):
        Frames.of([clip_of(MOTION), clip_of(bare)])


# --- the way back


def target_of(recorded: Window, state: Local, *, rolled: bool = False) -> Local:
    return way_back(recorded, state, torch.full((len(state.root),), rolled), BODY, FPS)


def slow(recorded: Window) -> Window:
    """The same frames of somebody without any velocity."""
    return replace(recorded, now=replace(recorded.now, velocity=0 * recorded.now.velocity))


def bent(frame: Local, joint: int, rotvec: Tensor) -> Local:
    """Turn a joint, in its parent's frame, with the root where it is."""
    q = frame.q.clone()
    q[:, joint] = exp(rotvec.expand(len(q), 3)) @ q[:, joint]
    return replace(frame, q=q, joints=BODY.forward(q, frame.root))


def left(k: int) -> float:
    """What is left of an offset k frames later."""
    return (1 + RETURN_RATE * k * H) * math.exp(-RETURN_RATE * k * H)


def test_on_the_recording_the_way_back_is_the_recording():
    recorded = window_at(FRAMES, ROOMY, COUNT)
    target = target_of(recorded, recorded.now)
    # The logarithm of R R^T in single precision is 1e-7 instead of 0; nine joints in a chain.
    for name in ("root", "q", "joints"):
        torch.testing.assert_close(getattr(target, name), getattr(recorded, name), rtol=0, atol=2e-6)


@pytest.mark.parametrize("joint", [0, 18])
def test_a_bent_joint_comes_back(joint: int):
    recorded = window_at(FRAMES, ROOMY, COUNT)
    rotvec = torch.tensor([0.1, -0.2, 0.15])
    target = target_of(recorded, bent(recorded.now, joint, rotvec))
    for k in range(COUNT):
        expected = exp((left(k + 1) * rotvec).expand(len(ROOMY), 3)) @ recorded.q[:, k, joint]
        torch.testing.assert_close(target.q[:, k, joint], expected, rtol=0, atol=5e-6)
    others = [j for j in range(NUM_JOINTS) if j != joint]
    torch.testing.assert_close(target.q[:, :, others], recorded.q[:, :, others], rtol=0, atol=5e-6)
    torch.testing.assert_close(target.joints, BODY.forward(target.q, target.root), rtol=0, atol=1e-6)
    assert 0.45 < left(6) < 0.55  # after 0.2 s


def test_the_way_back_begins_with_the_state_s_velocity_and_ends_with_the_recording_s():
    recorded = window_at(FRAMES, ROOMY[:1], 60)
    velocity = recorded.now.velocity.clone()
    shove, spin = torch.tensor([0.5, -0.3, 0.2]), torch.tensor([0.4, 0.0, -0.6])
    velocity[:, :3] += shove
    elbow = VELOCITY_SIZE + 3 * (joint_index("left_elbow") - 1)
    velocity[:, elbow : elbow + 3] += spin
    target = target_of(recorded, replace(recorded.now, velocity=velocity))
    gone = (target.root - recorded.root)[0]
    # A third of the shove is lost within the first frame at the most, and nearly all of it two seconds later.
    assert 0.67 * H * shove[0] < gone[0, 0] < H * shove[0]
    assert (gone[-1] - gone[-2]).norm() < 1e-3 * H
    # What somebody lost or gained who rolled on by themselves is made up for sooner.
    error = target_of(recorded, replace(recorded.now, velocity=velocity), rolled=True)
    assert 0 < (error.root - recorded.root)[0, -1, 0] < 0.4 * gone[-1, 0]
    turned = log_small(target.q[0, :, joint_index("left_elbow")] @ recorded.q[0, :, joint_index("left_elbow")].mT)
    torch.testing.assert_close(turned[0], H * math.exp(-RETURN_RATE * H) * spin, rtol=0, atol=1e-5)
    assert turned[-1].norm() < 1e-4


def test_standing_feet_are_not_asked_to_slide_when_the_person_stands_elsewhere():
    # 10 cm aside of the recording as a whole: nothing tells it apart from a person who was recorded there, so it goes
    # on from there.
    recorded = slow(window_at(FRAMES, ROOMY, COUNT))
    aside = torch.tensor([0.08, -0.06, 0.0])
    state = replace(recorded.now, root=recorded.now.root + aside, joints=recorded.now.joints + aside)
    target = target_of(recorded, state)
    stands = recorded.standing[:, 0, [3, 4, 5, 6]].any(-1)
    assert float(stands.double().mean()) > 0.3
    torch.testing.assert_close(target.root[stands], (recorded.root + aside)[stands], rtol=0, atol=2e-6)
    # In the air there is nothing to hold on to: the offset fades.
    air = replace(recorded, standing=torch.zeros_like(recorded.standing))
    off = (target_of(air, state).root - recorded.root)[:, 0]
    torch.testing.assert_close(off, (left(1) * aside).expand(len(ROOMY), 3), rtol=0, atol=2e-6)


# --- states that no recording has


def test_displaced_states_are_bodies_above_the_floor(generator: torch.Generator):
    at = FRAMES.draw(4000, generator)
    frame = window_at(FRAMES, at, 1).now
    moved = displaced(frame, BODY, torch.ones(NUM_JOINTS, 3), generator)
    # Joints come from rotations, so bones are whole to single precision at 1 m from the origin over bones of 5 cm.
    assert bone_error(moved.joints) < 2e-5
    torch.testing.assert_close(BODY.forward(moved.q, moved.root), moved.joints, rtol=0, atol=5e-6)
    eye = moved.q.transpose(-1, -2) @ moved.q
    torch.testing.assert_close(eye, torch.eye(3).expand_as(eye), rtol=0, atol=1e-5)
    # Four of five that would be in the floor are lifted out of it, and those that are not are there by centimetres.
    lowest = (moved.joints[..., 2] - BODY.radii).amin(-1)
    assert float((lowest > -1e-5).double().mean()) > 0.8 - 3 * math.sqrt(0.8 * 0.2 / len(at))
    assert lowest.min() < -0.02
    # In the heading frame of their own root again.
    torch.testing.assert_close(moved.root[:, :2], BODY.rest[0, :2].expand(len(at), 2), rtol=0, atol=1e-5)
    torch.testing.assert_close(heading(moved.q[:, 0]), torch.eye(3).expand(len(at), 3, 3), rtol=0, atol=1e-5)


# --- the trainer

TINY = PriorOptions(width=32, latent=4, batch=16)


def weights(trainer: PriorTrainer) -> dict[str, Tensor]:
    average = {f"ema.{name}": values for name, values in trainer.average.state_dict().items()}
    return {name: values.clone() for name, values in (trainer.network.state_dict() | average).items()}


@pytest.mark.slow
def test_the_loss_falls():
    def losses(rate: float) -> list[float]:
        # Before the ramp: windows stay one frame long, and the task the same.
        same = {"batch": 32, "displaced": 0.0, "shoved": 0.0, "roaming": 0.0, "clean": 1.0, "ended": 1.0}
        trainer = PriorTrainer(FRAMES, replace(TINY, **same, learning_rate=rate))
        return [trainer.step()["loss"] for _ in range(40)]

    # Both see the same frames and the same noise, one learning and one not.
    learning, idle = losses(0.03), losses(1e-9)
    assert learning[0] == pytest.approx(idle[0])
    assert sum(learning[-10:]) < 0.95 * sum(idle[-10:])


def test_the_same_seed_gives_the_same_weights():
    def trained(seed: int) -> dict[str, Tensor]:
        trainer = PriorTrainer(FRAMES, replace(TINY, seed=seed))
        for _ in range(5):
            torch.rand(3)  # what others draw from torch's own generator does not matter
            trainer.step()
        return weights(trainer)

    first, second, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_the_average_trails_the_weights():
    trainer, name = PriorTrainer(FRAMES, TINY), "decoder.linears.0.weight"
    old = weights(trainer)[f"ema.{name}"]
    trainer.step()
    # Early on it forgets fast: (1 + n) / (10 + n) of it lasts over step n.
    mean, new = (weights(trainer)[f"{part}.{name}"] for part in ("ema", "cvae"))
    torch.testing.assert_close(mean, 0.1 * old + 0.9 * new, rtol=0, atol=1e-6)


def test_particles_roll_on_and_start_again():
    trainer = PriorTrainer(FRAMES, replace(TINY, max_age=12, max_roam=4))
    trainer.progress = 1.0  # after the ramp
    ages = set()
    for _ in range(12):
        trainer.step()
        particles = trainer.particles
        ages |= set(particles.age.tolist())
        # A particle always has a window of recorded frames after its own, and its state is a body.
        assert (particles.at + TINY.window <= FRAMES.last[particles.at]).all()
        assert bone_error(particles.state.joints) < 2e-5
    assert 0 in ages
    assert 0 < max(ages) < 12


def test_windows_and_roaming_grow_over_the_ramp():
    trainer = PriorTrainer(FRAMES, TINY)
    lengths = []
    for trainer.progress in (0.0, 0.5 * TINY.ramp, TINY.ramp, 1.0):
        lengths.append((trainer._ramped(TINY.window), trainer._ramped(TINY.max_roam)))  # pyright: ignore[reportPrivateUsage]
    assert lengths == [(1, 1), (2, 4), (4, 8), (4, 8)]


def test_a_particle_finds_its_place_in_its_recording_again():
    trainer = PriorTrainer(FRAMES, TINY)
    at = torch.tensor([40, 50, 110])
    # The state of a frame a little earlier or later than where it is thought to be.
    off = torch.tensor([-3, 2, 1])
    places, gap = trainer._place(window_at(FRAMES, at + off, 1).now, at)  # pyright: ignore[reportPrivateUsage]
    assert torch.equal(places, at + off)
    assert gap.max() < 0.01
    _, gap = trainer._place(window_at(FRAMES, torch.tensor([80]), 1).now, torch.tensor([20]))  # pyright: ignore[reportPrivateUsage]
    assert gap > 0.03


def test_a_particle_at_the_end_of_its_clip_goes_on_where_people_are_like_it():
    trainer = PriorTrainer(FRAMES, TINY)
    index = torch.arange(4)
    for at, restarts in ((trainer.pool[:4], False), (trainer.pool[4:8], True)):
        state = window_at(FRAMES, at, 1).now
        if restarts:  # nobody is two metres up
            state = replace(state, joints=state.joints + 2)
        before = replace(trainer.particles[index], at=torch.full((4,), 80), age=torch.full((4,), 7), state=state)
        trainer.particles = trainer.particles.put(index, before)
        trainer._go_on(index)  # pyright: ignore[reportPrivateUsage]
        after = trainer.particles[index]
        if restarts:
            assert (after.age == 0).all()
        else:
            assert torch.equal(after.at, at)
            assert torch.equal(after.age, before.age)
            torch.testing.assert_close(after.state.q, state.q, rtol=0, atol=0)


def test_rolling_on_moves_the_frame_that_people_are_seen_from():
    # A recorded window, frame by frame in the heading frame of the frame before, and back where it began.
    recorded, stand = window_at(FRAMES, ROOMY, COUNT), Stand.first(len(ROOMY), BODY)
    memory = recorded.now.velocity.unsqueeze(1).expand(-1, COUNT, -1)
    path = Local(recorded.root, recorded.q, recorded.joints, memory)
    for k in range(COUNT):
        local = stand.local(path, k, BODY)
        step = window_at(FRAMES, ROOMY + k, 1)
        torch.testing.assert_close(local.joints, step.joints[:, 0], rtol=0, atol=2e-5)
        torch.testing.assert_close(local.q, step.q[:, 0], rtol=0, atol=2e-5)
        torch.testing.assert_close(
            stand.intent(recorded.intent[:, k]), step.intent[:, 0], rtol=0, atol=2e-5, equal_nan=True
        )
        stand = stand.after(local, BODY)


# --- whole runs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    for name, seed in (("ann_walk", 0), ("ann_run", 1), ("bob_walk", 2)):
        write_amass(lively(1.5, seed), folder / "source" / f"{name}.npz")
    clips = build(folder / "source", folder / "data", held_out=["bob"], workers=1)
    assert [c.left_out for c in clips] == ["", "", ""]
    return folder / "data"


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"LOG_EVERY": 2, "SAVE_EVERY": 4}.items():
        monkeypatch.setattr(loop, name, value)
    for name, value in {"QUALITY_PEOPLE": 2, "QUALITY_SECONDS": 0.3}.items():
        monkeypatch.setattr(prior, name, value)
    monkeypatch.setattr(frames_module, "NUM_MEASURED", 500)


def run(data: Path, out: Path, *, watch: Callable[[Progress], None] | None = None, **budget) -> Path:
    return train_prior(data, out, TINY, Budget(5.0, steps=10, **budget), watch)


def test_a_run_by_the_clock_fits_its_schedule_to_a_machine_that_slows_down(tmp_path: Path, monkeypatch):
    # Steps of 3 s, and of 12 s from the sixth on, in a minute: 5 x 3 + 4 x 12 = 63. The learning rate falls with time.
    clock, rates, network = [0.0], [], torch.nn.Linear(1, 1)

    class Slowing(loop.Trainer):
        warm_up, max_gradient = 1, 1.0

        def step(self) -> dict[str, float]:
            clock[0] += 3.0 if self.step_count < 5 else 12.0
            rates.append(self.progress)
            self.descend(network.weight.sum())
            return {}

    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    model = SimpleNamespace(save=Path.touch)
    loop.train(lambda o: Slowing(network, network, o), TINY, lambda _: (model, {}), tmp_path / "weights", Budget(1.0))
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.45, 0.65, 0.85])


class KilledError(Exception):
    """Stands for a power cut."""


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_from_its_checkpoint(data: Path, tmp_path: Path):
    seen: list[Progress] = []

    def kill(progress: Progress) -> None:
        seen.append(progress)
        if progress.step == 6:  # two steps after the last checkpoint, which are lost
            raise KilledError

    with pytest.raises(KilledError):
        run(data, tmp_path, watch=kill)
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["average"]
    path = run(data, tmp_path, watch=seen.append, resume=True)
    assert [p.step for p in seen] == [2, 4, 6, 6, 8, 10]
    assert all(p.seconds_left >= 0 and "loss" in p.parts for p in seen)
    assert {"human", "skate", "speed"} <= set(seen[-1].quality)
    assert CVAEPrior.load(path).network.shape.latent == TINY.latent
    # Six small steps away from the checkpoint, not from random weights; and then the run is over.
    after = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["average"]
    name = "prior.linears.0.weight"
    random = weights(PriorTrainer(FRAMES, TINY))[f"ema.{name}"]
    assert (after[name] - before[name]).norm() < (after[name] - random).norm()
    assert run(data, tmp_path, watch=kill, resume=True) == path


@pytest.fixture(scope="module")
def checkpoint(data: Path) -> dict:
    """What a good checkpoint of a tiny trainer holds."""
    trainer = PriorTrainer(Frames.of(load(data, held_out=False)), TINY)
    return {**trainer.state(), "seconds": 0.0}


OTHERS: dict[str, Callable[[dict], object]] = {
    "a list": lambda state: [1, 2],
    "other widths": lambda state: {**state, "options": {**state["options"], "width": 48}},
    "cut off": lambda state: state,
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_a_checkpoint_of_something_else_is_a_sentence(
    data: Path, tmp_path: Path, checkpoint: dict, change: Callable[[dict], object]
):
    path = tmp_path / "checkpoint.pt"
    torch.save(change(checkpoint), path)
    if change(checkpoint) is checkpoint:
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"checkpoint\.pt") as error:
        run(data, tmp_path, resume=True)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
