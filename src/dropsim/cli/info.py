"""Say what is installed: the first thing to paste into a bug report."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Info:
    """Print the versions, the threads, the platform and the weights that came with the package."""

    def run(self) -> None:
        """Print one line per fact."""
        import torch

        assets = Path(__file__).parents[1] / "assets"
        weights = sorted(path.name for path in assets.rglob("*.safetensors"))
        packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "roma"))
        print(f"dropsim   {version('dropsim')}")
        print(f"python    {platform.python_version()}")
        print(f"packages  {packages}")
        print(f"threads   {torch.get_num_threads()} of {os.cpu_count()} cores")
        print(f"platform  {platform.platform()}")
        print(f"weights   {', '.join(weights) or 'none in this package'}")
