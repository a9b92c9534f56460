"""Say what is installed: the first thing to paste into a bug report."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path

LIBRARIES = ("numpy", "numba", "scipy", "safetensors", "jaxtyping", "threadpoolctl", "tyro", "pillow")
EXTRAS = ("av", "viser", "usd-core", "matplotlib", "python-osc", "pyarrow", "gymnasium", "ray", "torch")
"""Libraries that come with one extra or another, and may be missing."""
SETTINGS = ("OMP_NUM_THREADS", "DROPSIM_CACHE", "DROPSIM_THREADS", "DROPSIM_DEBUG")


@dataclass(frozen=True)
class Info:
    """Print versions, threads, weights, recordings and settings, for bug reports.

    Example: dropsim info
    """

    def run(self) -> None:
        """Print one line per fact."""
        from dropsim.compute import jit
        from dropsim.compute.threads import limit

        package = Path(__file__).parents[2]
        files = sorted((package / "assets").rglob("*.safetensors"))
        weights = [f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in files]
        compiled = "compiled" if jit.compiled() else "not compiled yet"
        settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
        facts = {
            "dropsim": version("dropsim"),
            "from": package,
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "packages": _versions(LIBRARIES),
            "extras": _versions(EXTRAS),
            "threads": f"{limit()} of {os.cpu_count()} cores",
            "kernels": f"{compiled}, in {jit.kernel_folder() or 'memory only'}",
            "platform": platform.platform(),
            "machine": platform.machine(),
            "weights": ", ".join(weights) or "none in this package",
            "bank": "; ".join(map(_bank, sorted((package / "assets").glob("*.bank")))) or "none in this package",
            "settings": " ".join(settings) or "none",
        }
        for name, fact in facts.items():
            print(f"{name:<10}{fact}")


def _bank(path: Path) -> str:
    """Say what recordings a bank holds, and under which licences."""
    from dropsim.priors.bank import Bank

    bank = Bank.open(path)
    info = bank.info()
    tags = ", ".join(f"{tag} {minutes:.0f}" for tag, minutes in info["minutes by tag"].items() if minutes >= 0.5)
    sources = ", ".join(sorted({f"{clip.source}: {clip.licence}" for clip in bank.clips}))
    size = f"{path.stat().st_size / 1e6:.1f} MB, {info['clips']} clips, {info['minutes']:.0f} minutes"
    return f"{path.name} {size} ({tags}; {sources})"


def _versions(names: tuple[str, ...]) -> str:
    """Return each library with its version, or with a dash if it is not installed."""
    installed = {library.metadata["Name"].lower(): library.version for library in distributions()}
    return ", ".join(f"{name} {installed.get(name, '-')}" for name in names)
