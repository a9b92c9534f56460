"""The option --prior, in every command that has it: names, files, and HuMoR's checkpoint (its layout, random weights) with an SMPL body."""

import re
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.skeleton import Skeleton
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors import named
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.humor import humor_layout
from dropsim.priors.named import open_pose, open_prior
from dropsim.priors.pose import PosePrior
from dropsim.scene.files import Setup, read_scene, write_scene

torch = pytest.importorskip("torch")
HEIGHT = 1.6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with best_model.pth, body.npz, ours.safetensors, poses.safetensors and walk.npz."""
    folder = tmp_path_factory.mktemp("priors")
    body = Skeleton.adult(height=HEIGHT)
    np.savez(folder / "body.npz", v_template=body.rest, J_regressor=np.eye(22))
    shape = CVAEShape()
    tensors = CVAENetwork.random(shape).tensors
    for name in ("decoder.linears.3.weight", "decoder.linears.3.bias"):
        tensors[name] *= 0.001  # next to no deltas: whoever stands keeps standing
    model = {
        theirs: torch.from_numpy(tensors[ours]) if ours in tensors else torch.zeros(size)
        for theirs, (ours, size) in humor_layout(shape).items()
    }
    torch.save({"model": model, "epoch": 3}, folder / "best_model.pth")
    small = CVAEShape(latent=4, decoder=(32,), prior=(32,), groups=4, kinematic=True)
    CVAEPrior(CVAENetwork.random(small), Skeleton.adult()).save(folder / "ours.safetensors")
    PosePrior.shipped().save(folder / "poses.safetensors")
    write_amass(stepping_clip(2.0), folder / "walk.npz")
    return folder


@pytest.fixture
def humor(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options for HuMoR, with a folder of its own for what is converted."""
    monkeypatch.setattr(named, "cache_folder", lambda: tmp_path / "cache")
    return ["--prior", str(folder / "best_model.pth"), "--body", str(folder / "body.npz")]


def test_humors_checkpoint_is_opened_with_its_body_and_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(named, "cache_folder", lambda: tmp_path)
    prior = open_prior(folder / "best_model.pth", body=folder / "body.npz")
    assert prior.name == "humor"
    np.testing.assert_allclose(prior.skeleton.rest, Skeleton.adult(height=HEIGHT).rest, rtol=0, atol=1e-9)
    (kept,) = tmp_path.rglob("humor.safetensors")
    before = kept.stat().st_mtime_ns
    open_prior(folder / "best_model.pth", body=folder / "body.npz")
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("run push --start stand --seconds 1 --no-picture --out OUT", "push-*.npz"),
        ("perturb walk.npz --at 0.5 --seconds 1 --no-picture --out OUT", "walk_pushed.npz"),
        ("view --port 0 --seconds 0.2", None),
    ],
)
def test_humor_moves_people(
    humor: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, written: str | None
):
    monkeypatch.chdir(folder)
    assert main([*command.replace("OUT", str(tmp_path)).split(), *humor, "--samples", "4"]) == 0
    if written is not None:
        (path,) = tmp_path.glob(written)
        assert len(read_amass(path, Skeleton.adult(height=HEIGHT))) == 30


def test_humor_makes_data(humor: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("pyarrow")
    words = "--count 2 --scene calm --seconds 0.5 --samples 2 --workers 1 --out"
    options = [*words.split(), str(tmp_path / "data")]
    assert main(["synthesize", *humor, *options]) == 0
    said = capsys.readouterr().out
    kept, out = (sum(map(int, re.findall(pattern, said))) for pattern in (r"(\d+) clips in", r"(\d+) left out"))
    assert kept + out == 2
    # The same folder with another prior is another data set.
    assert main(["synthesize", "--prior", "cvae", *options]) == 2
    assert "--prior" in capsys.readouterr().err


def test_a_scene_file_names_its_prior(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scene = folder / "scene.toml"
    scene.write_text('prior = "ours.safetensors"\npose = "poses.safetensors"\nseconds = 0.2\n')
    setup = read_scene(scene)
    assert Path(setup.prior or "") == folder / "ours.safetensors"
    simulator = setup.world().simulator
    assert simulator.prior.name == "ours"
    # Written elsewhere, it names the same files.
    monkeypatch.chdir(folder)
    write_scene(setup, tmp_path / "other.toml")
    assert Path(read_scene(tmp_path / "other.toml").prior or "").samefile(folder / "ours.safetensors")
    write_scene(Setup(prior="cvae"), tmp_path / "named.toml")
    assert read_scene(tmp_path / "named.toml").prior == "cvae"


def test_the_option_goes_before_the_scenes_own(folder: Path, tmp_path: Path):
    (tmp_path / "scene.toml").write_text('prior = "nowhere.bank"\nseconds = 0.1\n')
    command = ["run", str(tmp_path / "scene.toml"), "--no-picture", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert main([*command, "--prior", str(folder / "ours.safetensors"), "--samples", "2"]) == 0
    assert open_pose(folder / "poses.safetensors").limit == open_pose(None).limit
