"""Say what is installed: the first thing to paste into a bug report."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("torch", "numpy", "numba", "scipy", "roma", "safetensors", "jaxtyping", "tyro", "pillow")
EXTRAS = ("av", "moderngl", "viser", "pygltflib", "usd-core", "matplotlib", "pyarrow", "gymnasium", "ray")
"""Libraries that come with one extra or another, and may be missing."""
SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_CACHE_DIR", "DROPSIM_KERNELS", "DROPSIM_THREADS", "DROPSIM_DEBUG")


@dataclass(frozen=True)
class Info:
    """Print versions, threads, drawing, weights and settings, for bug reports.

    Example: dropsim info
    """

    def run(self) -> None:
        """Print one line per fact."""
        import torch

        from dropsim.compute import arrays as kernels
        from dropsim.render import missing_gl

        package = Path(__file__).parents[1]
        weights = [f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in sorted((package / "assets").rglob("*.safetensors"))]
        settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
        facts = {
            "dropsim": version("dropsim"),
            "from": package,
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "packages": _versions(LIBRARIES),
            "extras": _versions(EXTRAS),
            "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
            "kernels": "compiled" if kernels.serve(torch.zeros(1, dtype=torch.float64)) else "torch",
            "drawing": missing_gl() or "OpenGL",
            "platform": platform.platform(),
            "machine": platform.machine(),
            "weights": ", ".join(weights) or "none in this package",
            "settings": " ".join(settings) or "none",
        }
        for name, fact in facts.items():
            print(f"{name:<10}{fact}")


@dataclass(frozen=True)
class Version:
    """Print the version; `dropsim --version` asks for it."""

    def run(self) -> None:
        """Print one line."""
        print(f"dropsim {version('dropsim')}")


def _versions(names: tuple[str, ...]) -> str:
    """Return each library with its version, or with a dash where it is not installed."""

    def one(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} -"

    return ", ".join(map(one, names))
