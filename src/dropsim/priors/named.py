"""Priors by name, as commands and scene files give them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.compute.jit import cache_folder
from dropsim.files.names import suggestion
from dropsim.motion.reading import ENDINGS
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.humor import humor_prior
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior
from dropsim.priors.recordings import build_bank

SHIPPED = ("field", "cvae")
"""Priors that come with the package."""


def is_checkpoint(name: str | Path) -> bool:
    """Tell whether a file's name ends as PyTorch's checkpoints do."""
    return Path(name).suffix.lower() in (".pth", ".pt", ".ckpt")


def open_prior(
    name: str | Path, *, body: str | Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Prior:
    """Return a prior: field, cvae, a .bank file, a .safetensors file, a folder of recordings, HuMoR's checkpoint.

    HuMoR's checkpoint needs the file of the SMPL body that it was trained on. It is converted once and kept.
    """
    name = prior_name(name, body)
    if name == "field":
        return MotionField.shipped()
    if name == "cvae":
        return CVAEPrior.shipped()
    path = Path(name)
    if path.is_dir():
        return MotionField.open(_bank_of(path, progress))
    kinds = {".bank": MotionField.open, ".safetensors": CVAEPrior.load}
    if path.suffix not in kinds:
        wanted = "field, cvae, a .bank or .safetensors file, HuMoR's best_model.pth or a folder of recordings"
        hint = "" if path.suffix else f"; {suggestion(name, SHIPPED)}"
        raise ValueError(f"there is no prior {name!r}: give {wanted}{hint}")
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    return kinds[path.suffix](path)


def prior_name(name: str | Path, body: str | Path | None = None) -> str:
    """Return a name that says all: HuMoR's checkpoint and its body become one file of weights; other names stay."""
    path = Path(name)
    if not is_checkpoint(path):
        if body is not None:
            remedy = f"{str(name)!r} has a body of its own, so leave it out"
            raise ValueError(f"a body is for HuMoR's checkpoint, which ends in .pth: {remedy}")
        return str(name)
    if not path.is_file():
        raise ValueError(f"{path} is not there: give HuMoR's checkpoint, best_model.pth")
    if body is None:
        remedy = "give its file with --body, e.g. SMPLH_NEUTRAL.npz"
        raise ValueError(f"{path} needs the SMPL body that HuMoR was trained on: {remedy}")
    if not Path(body).is_file():
        raise ValueError(f"{body} is not there: give the file of an SMPL, SMPL+H or SMPL-X body")
    weights = cache_folder() / "priors" / _digest([path, Path(body)]) / "humor.safetensors"
    if not weights.exists():
        prior = humor_prior(path, Skeleton.from_smpl(body))
        weights.parent.mkdir(parents=True, exist_ok=True)
        prior.save(weights)
    return str(weights)


def open_pose(name: str | Path | None) -> PosePrior:
    """Return a model of natural poses: the shipped one for None, a .safetensors file, or VPoser's file or folder."""
    if name is None:
        return PosePrior.shipped()
    path = Path(name)
    if not path.exists():
        raise ValueError(f"{path} is not there: give VPoser's checkpoint or folder, or a .safetensors file of poses")
    return PosePrior.load(path) if path.suffix == ".safetensors" else PosePrior.from_vposer(path)


def for_body(prior: Prior, skeleton: Skeleton) -> Prior:
    """Return the same prior for another body; a motion field scales its recordings."""
    if isinstance(prior, MotionField):
        return replace(prior, skeleton=skeleton)
    if isinstance(prior, CVAEPrior):
        return CVAEPrior(prior.network, skeleton, fps=prior.fps, name=prior.name, temperature=prior.temperature)
    raise ValueError(f"the prior {prior.name} is bound to its own body")


def _bank_of(folder: Path, progress: Callable[[int, int], None] | None) -> Path:
    """Return the bank of a folder, built once and kept until a file changes."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS)
    if not files:
        raise ValueError(f"{folder} holds no .bvh or .npz files")
    bank = cache_folder() / "banks" / f"{_digest(files)}.bank"
    if not bank.exists():
        bank.parent.mkdir(parents=True, exist_ok=True)
        build_bank([folder], bank, progress=progress)
    return bank


def _digest(files: Sequence[Path]) -> str:
    """Return a digest that changes with the files."""
    facts = "\n".join(f"{p.resolve()} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
