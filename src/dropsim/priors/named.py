"""Priors by name, as commands and scene files give them: field, cvae, a bank, weights, or a folder of recordings."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from dropsim.compute.jit import cache_folder
from dropsim.files.names import suggestion
from dropsim.motion.reading import ENDINGS
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.motion_field import MotionField
from dropsim.priors.prior import Prior
from dropsim.priors.recordings import build_bank

SHIPPED = ("field", "cvae")
"""Priors that come with the package."""


def open_prior(name: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Prior:
    """Return a prior: field, cvae, a .bank file, a .safetensors file, or a folder of BVH or AMASS recordings."""
    if name == "field":
        return MotionField.shipped()
    if name == "cvae":
        return CVAEPrior.shipped()
    path = Path(name)
    if path.is_dir():
        return MotionField.open(_bank_of(path, progress))
    kinds = {".bank": MotionField.open, ".safetensors": CVAEPrior.load}
    if path.suffix not in kinds:
        wanted = "field, cvae, a .bank file, a .safetensors file or a folder of recordings"
        raise ValueError(f"there is no prior {str(name)!r}: give {wanted}{'' if path.suffix else f'; {suggestion(str(name), SHIPPED)}'}")
    if not path.is_file():
        raise ValueError(f"{path} is not there")
    return kinds[path.suffix](path)


def _bank_of(folder: Path, progress: Callable[[int, int], None] | None) -> Path:
    """Return the bank of a folder, built once and kept until a file changes."""
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS)
    if not files:
        raise ValueError(f"{folder} holds no .bvh or .npz files")
    facts = "\n".join(f"{p.resolve()} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)
    bank = cache_folder() / "banks" / f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.bank"
    if not bank.exists():
        bank.parent.mkdir(parents=True, exist_ok=True)
        build_bank([folder], bank, progress=progress)
    return bank
