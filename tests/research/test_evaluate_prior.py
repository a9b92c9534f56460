"""Evaluation of a prior, on cases whose numbers are known by hand, and the command."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.motion.amass import write_amass
from dropsim.motion.clips import Clip
from dropsim.motion.contacts import label_contacts
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.options import SimulatorOptions
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Candidates
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.prior import (
    PriorEvaluation,
    evaluate_prior,
    quality_of,
    refuse_same_people,
)

SHAPE = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
CLIP = stepping_clip(4.0)
UP = np.array([0.0, 0.0, 1.0])
SMALL = PriorEvaluation(rollouts=2, seconds=2.0, num_samples=3, one_step_frames=12)
KEYS = {"one_step_ratio_mode", "one_step_ratio_best", "human_share", "skate_ratio_alone", "penetration_mm"}
POSE = PosePrior.shipped()


def tiny() -> CVAEPrior:
    network = CVAENetwork.random(SHAPE)
    network.output_scale[:] = 0.003
    return CVAEPrior(network, Skeleton.adult(), name="tiny")


class Coasting(CVAEPrior):
    """Proposes constant velocity, K times; the k-th is lifted by k times a step."""

    step = 0.0

    def propose(self, state, num, rng, intent=None):
        lift = self.step * np.arange(num)[:, None, None] * UP
        x = (state.x + state.v / self.fps)[..., None, :, :] + lift
        return Candidates(x, np.stack([state.q] * num, axis=-4), np.stack([state.memory] * num, axis=-2))


class Staying(Coasting):
    """Proposes the present frame."""

    def propose(self, state, num, rng, intent=None):
        return super().propose(replace(state, v=np.zeros_like(state.v)), num, rng)


def made(kind: type[CVAEPrior]) -> CVAEPrior:
    return kind(CVAENetwork.random(SHAPE), Skeleton.adult(), name=kind.__name__)


def moving(velocity: tuple[float, float, float], seconds: float = 3.0, spin: float = 0.0) -> Motion:
    """A person in a fixed pose on the floor, moved and turned about the pelvis at a constant rate."""
    time = np.arange(round(30 * seconds)) / 30
    q = np.tile(CLIP.q[:1], (len(time), 1, 1, 1))
    q[:, 0] = exp(time[:, None] * spin * UP) @ q[:, 0]
    lowest = (CLIP.joints[0, :, 2] - CLIP.skeleton.radii).min()
    root = CLIP.root[0] - lowest * UP + time[:, None] * np.array(velocity)
    return Motion.from_rotations(CLIP.skeleton, 30.0, root, q)


def clips() -> list[tuple[Clip, Motion]]:
    motions = [
        ("walk", CLIP),
        ("stand", CLIP.mirrored()),
        ("walk", stepping_clip(3.0).mirrored()),
        ("stand", moving((0.0, 0.0, 0.0))),
    ]
    return [(Clip(f"0{i}_01", f"0{i}", name, len(m), held_out=True), m) for i, (name, m) in enumerate(motions)]


def test_the_best_of_several_is_nearest_and_the_mode_first():
    # A person who rises by 3 mm a frame, and candidates 0, 2 and 4 mm above where they stay: errors 3, 1 and 1 mm.
    prior = made(Staying)
    prior.step = 0.002
    data = [(clips()[0][0], moving((0.0, 0.0, 0.09)))]
    step = evaluate_prior(prior, data, replace(SMALL, num_samples=3)).numbers["one_step"]
    assert step == pytest.approx({"mode_mm": 3.0, "best_mm": 1.0, "coasting_mm": 0.0}, abs=1e-9)


@pytest.mark.parametrize(
    ("velocity", "spin", "expected"),
    [
        ((0.0, 0.1, 0.0), 0.0, {"standing": 1.0, "walking": 0.0, "running": 0.0, "turning": 0.0}),
        ((0.0, 1.0, 0.0), 0.8, {"standing": 0.0, "walking": 1.0, "running": 0.0, "turning": 0.0}),
        ((0.0, 3.0, 0.0), -1.5, {"standing": 0.0, "walking": 0.0, "running": 1.0, "turning": 1.0}),
        # Rising at 0.05 m/s for 3 s: the middles of the first and the last second are 2 s apart.
        ((0.0, 0.0, 0.05), 0.0, {"height_drift": pytest.approx(0.1, abs=1e-9)}),
        # A gliding foot on the floor skates at the speed of the glide.
        ((0.0, 1.0, 0.0), 0.0, {"skate": pytest.approx(1.0, rel=0.2)}),
    ],
)
def test_motions_are_what_they_are(velocity, spin, expected):
    quality = quality_of([moving(velocity, spin=spin)], POSE)
    assert {name: quality[name] for name in expected} == expected


def test_motions_weigh_alike_and_poses_out_of_range_are_counted():
    quality = quality_of([moving((0.0, 0.0, 0.0), 2.0), moving((0.0, 1.0, 0.0), 6.0)], POSE)
    assert quality["standing"] == quality["walking"] == 0.5
    for limit, in_range in ((1e-9, 0.0), (1e9, 1.0)):
        quality = quality_of([moving((0.0, 0.0, 0.0))], replace(POSE, limit=limit))
        shares = [quality[name] for name in ("human_share", "human_in_range_share", "out_of_range_percent")]
        assert shares == [1.0, in_range, 100 * (1 - in_range)]


def test_the_same_seed_gives_the_same_numbers():
    done = []
    first = evaluate_prior(tiny(), clips(), replace(SMALL, seed=3), lambda *counts: done.append(counts)).numbers
    assert evaluate_prior(tiny(), clips(), replace(SMALL, seed=3)).numbers == first
    assert first["recordings"]["human_share"] == 1.0
    assert done == [(i + 1, len(done)) for i in range(len(done))]


def test_weights_that_diverge_are_a_sentence():
    prior = tiny()
    prior.network.output_scale[:] = math.inf
    with pytest.raises(ValueError, match="diverged"):
        evaluate_prior(prior, clips(), SMALL)


# --- The command. ---


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "clips").mkdir()
    for clip, motion in clips():
        write_amass(replace(motion, touching=label_contacts(motion)), folder / "clips" / f"{clip.name}.npz")
    rows = [asdict(replace(clip, held_out=i < 3)) for i, (clip, _) in enumerate(clips())]
    (folder / "index.json").write_text(json.dumps(rows))
    tiny().save(folder / "prior.safetensors")
    return folder


def command(data: Path, *more: str) -> list[str]:
    options = f"--data {data} --prior {data / 'prior.safetensors'} --rollouts 3 --seconds 2 --simulated 0"
    return ["evaluate", "prior", *options.split(), *more]


def test_the_command_prints_and_writes(data, tmp_path, capsys):
    out, numbers, card = tmp_path / "figures", tmp_path / "quality.json", tmp_path / "card.md"
    card.write_text("# Card\n<!-- table: prior -->\nnot measured yet\n<!-- end -->\nthe rest\n")
    assert main(command(data, "--json", str(numbers), "--out", str(out), "--card", str(card))) == 0
    printed = capsys.readouterr().out
    assert "| foot skate, median [m/s] |" in printed
    written = json.loads(numbers.read_text())
    assert written.keys() >= KEYS
    assert written["people"] == ["00", "01", "02"]
    assert f"wrote {out / 'prior.md'}" in printed
    assert "| foot skate, median [m/s] |" in card.read_text()
    assert "not measured yet" not in card.read_text()
    card.write_text("# Card without a block\n")
    assert main(command(data, "--card", str(card), "--people", "all", "--json", str(numbers))) == 2
    assert "no block" in capsys.readouterr().err


def test_a_bank_is_not_judged_by_its_own_people():
    banked = MotionField.shipped()
    known = banked.bank.clips[0].name.partition("_")[0]
    own = [(replace(clip, person=known), motion) for clip, motion in clips()]
    with pytest.raises(ValueError, match=f"{known}.*--same-people"):
        refuse_same_people(banked, own)
    refuse_same_people(banked, [(replace(clip, person="nobody"), motion) for clip, motion in clips()])
    refuse_same_people(tiny(), own)


def test_a_brake_shows_as_a_speed_bias():
    # Recorded at 1.2 m/s; the prior coasts at 1.2 m/s less 0.5 m/s^2 for a frame, or stays where it is: a brake of 1.2
    # m/s in 1/30 s.
    data = [(clips()[0][0], moving((0.0, 1.2, 0.0)))]
    bias = {b["speeds"]: b for b in evaluate_prior(made(Staying), data, SMALL).numbers["speed_bias"]}
    assert bias["0.8-1.5"]["bias"] == pytest.approx(-1.2 * 30, rel=1e-6)
    assert bias["0.8-1.5"]["frames"] == SMALL.one_step_frames
    # What cannot be measured is null in JSON.
    assert bias["2.2-3.2"]["bias"] is None
    coasting = evaluate_prior(made(Coasting), data, SMALL).numbers
    assert coasting["one_step_ratio_mode"] == coasting["one_step_ratio_best"] == 1.0
    bias = {b["speeds"]: b for b in coasting["speed_bias"]}
    assert bias["0.8-1.5"]["bias"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_people_in_the_simulator_are_measured_too():
    simulator = Body(SimulatorOptions(num_samples=2), prior="field").simulator()
    report = evaluate_prior(tiny(), clips(), replace(SMALL, simulated=2), simulator=simulator)
    for shares in report.numbers["activity"].values():
        assert sum(shares[name] for name in ("standing", "walking", "running")) == pytest.approx(1.0)
    assert "in the simulator, walking" in report.text()


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--data", "{tmp}/empty", "holds no clips"),
        ("--prior", "{data}/index.json", "there is no prior"),
        ("--rollouts", "1", "take at least 2"),
        ("--seconds", "nan", "take at least 2"),
    ],
)
def test_a_mistake_is_one_sentence(data, tmp_path, capsys, option, value, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "index.json").write_text("[]")
    assert main([*command(data), option, value.format(tmp=tmp_path, data=data)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
