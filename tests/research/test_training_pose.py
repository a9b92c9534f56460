"""Training of the pose model: what it is fed with, runs that can be repeated and resumed, and what the command says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dropsim.apps.cli import main
from dropsim.body.rotations import exp
from dropsim.body.skeleton import joint_index
from dropsim.motion.amass import write_amass
from dropsim.motion.clips import build, load
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.pose import PosePrior
from dropsim.research.training import pose
from dropsim.research.training.pose import PoseOptions, Poses, PoseTrainer, disturbed

CLIP = stepping_clip(4.0)
SMALL = PoseOptions(width=32, radius_width=16, batch=32, representatives=32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people who step in place, one of them held out."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "data"))
    for name, seconds in (("anna_1", 3.0), ("bert_1", 2.0)):
        write_amass(stepping_clip(seconds), source / f"{name}.npz")
    build(source, out, held_out=["bert"], workers=1)
    return out


@pytest.mark.slow
def test_training_learns(data: Path):
    trainer = PoseTrainer(Poses.of(load(data, held_out=False)), SMALL)
    losses = [trainer.step()["rebuilt"] for _ in range(100)]
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])


def test_the_exported_model_has_the_wanted_share_in_range(data: Path):
    trainer = PoseTrainer(Poses.of(load(data, held_out=False)), SMALL)
    trainer.step()
    prior = trainer.prior()
    q = trainer.poses.draw(5000, torch.Generator().manual_seed(3)).double().numpy()
    # 99.9 % of the poses, within four standard deviations of a binomial share over the 90 frames and their mirror
    # images.
    assert (prior.norm(q) <= prior.limit).mean() > 0.999 - 4 * (0.001 * 0.999 / 180) ** 0.5


def test_a_small_source_is_in_range_too(data: Path):
    """A source of one person and 60 poses next to one of 90: its own arms, which nobody else has, are drawn and are in range."""
    clips = load(data, held_out=False)
    clip, motion = clips[0]
    q = motion.q[:60].copy()
    q[:, joint_index("left_shoulder")] = q[:, joint_index("left_shoulder")] @ exp(np.array([0.0, 0.0, 1.0]))
    other = Motion.from_rotations(motion.skeleton, motion.fps, motion.root[:60], q)
    poses = Poses.of([*clips, (replace(clip, person="carl", read_as="rig other, z up"), other)])
    assert len(poses.sources) == 2
    trainer = PoseTrainer(poses, SMALL)
    trainer.step()
    prior = trainer.prior()
    for name, upright in poses.upright_samples(60).items():
        assert (prior.norm(upright) <= prior.limit).mean() > 0.98, name
    shoulder = torch.tensor([joint_index("left_shoulder") - 1])
    gap, _ = trainer.range.nearest(poses.q[poses.source == poses.sources.index("other")][:, 1:][:, shoulder], shoulder)
    # Half of the way to the arms of the others, which are 1 rad away.
    assert gap.max() < 0.5


@pytest.mark.slow
def test_the_command_trains(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(pose, "PoseOptions", lambda seed: replace(SMALL, seed=seed))
    assert main(["train", "pose", "--data", str(data), "--out", str(tmp_path), "--steps", "2", "--minutes", "5"]) == 0
    assert PosePrior.load(tmp_path / "pose.safetensors").limit == 6.0
    assert "pose.safetensors" in capsys.readouterr().out


def test_disturbed_joints_go_back_into_the_recorded_range(data: Path):
    poses, generator = Poses.of(load(data, held_out=False)), torch.Generator().manual_seed(0)
    within = PoseTrainer(poses, SMALL).range
    wrong = disturbed(poses.draw(64, generator), within, generator)
    every = torch.arange(21)
    gap, _ = within.nearest(wrong.target[:, 1:], every)
    # A joint that was out of range is back to half of the tolerance; the others are recorded, less than three degrees
    # from the sample of the recordings that the range is made of.
    assert (gap <= within.cover + torch.clamp(within.tolerance / 2, min=0.05) + 1e-3).all()
    far, _ = within.nearest(wrong.q[:, 1:], every)
    beyond = (far - within.cover - within.tolerance).amax(-1)
    tame = (wrong.beyond > 0) & (wrong.beyond != torch.pi / 2)
    assert tame.any()
    torch.testing.assert_close(beyond[tame], wrong.beyond[tame], rtol=0, atol=1e-3)
