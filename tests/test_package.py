"""What is built for others: the wheel and the source archive hold all that they need, and are small."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dropsim.compute import jit

ROOT = Path(__file__).parents[1]
MAX_BYTES = 30_000_000
BUILD = "import setuptools.build_meta as backend; backend.build_wheel('dist'); backend.build_sdist('dist')"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Both archives, built in a copy of the tree: setuptools leaves its own files where it builds."""
    tree = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "out", "build", "runs", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, ignore=ignored, dirs_exist_ok=True)
    (tree / "dist").mkdir()
    subprocess.run([sys.executable, "-W", "ignore", "-c", BUILD], cwd=tree, check=True, capture_output=True)
    return tree / "dist"


def package_files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in (root / "dropsim").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_file_of_the_package_and_is_small(dist):
    (wheel,) = dist.glob("*.whl")
    assert wheel.stat().st_size < MAX_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert package_files(ROOT / "src") <= names
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_string(archive.read(about).decode())
        scripts = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
    assert {f"dropsim/assets/{name}.safetensors" for name in ("prior", "pose", "body")} <= names
    assert "dropsim/assets/rigs/cmu.toml" in names
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in names}
    assert metadata["License-Expression"] == "MIT"
    assert {"app", "video", "export", "train", "dev"} <= set(metadata.get_all("Provides-Extra"))
    # Nobody who only runs it downloads torch.
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in needed if line.startswith(("torch", "roma", "ray", "viser", "matplotlib"))]
    assert "dropsim = dropsim.__main__:main" in scripts
    # Nothing of the tests, and no stray files beside the package.
    assert {name.partition("/")[0] for name in names} == {"dropsim", about.partition("/")[0]}


def test_the_source_archive_can_be_tested(dist):
    (sdist,) = dist.glob("*.tar.gz")
    assert sdist.stat().st_size < MAX_BYTES
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in package_files(ROOT / "src")} <= names
    for needed in (
        "Makefile",
        "requirements.txt",
        "mkdocs.yml",
        "docs/index.md",
        "tests/conftest.py",
        "examples/01_push_someone.py",
        "NOTICE",
    ):
        assert needed in names


ASSETS = """
import dropsim, sys
from dropsim.apps.cli import main
from dropsim.body.mesh import Body
print(dropsim.__file__)
simulator = dropsim.Simulator.shipped()
print(simulator.prior.name, simulator.prior.start("walk").x.shape, simulator.pose.limit > 0, len(Body.shipped().vertices) > 1000)
sys.argv = ["dropsim", "scenarios"]
sys.exit(main())
"""


@pytest.mark.slow
def test_the_wheel_works_where_no_repository_is_near(dist, tmp_path):
    # Unpacked, which is all that installing does to files, and run from an empty folder with nothing else of ours on
    # the path. Nothing is simulated: kernels of another folder would all be compiled again.
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1))\n" + ASSETS
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "site")]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={jit.VARIABLE: str(tmp_path / "cache")}
    )
    assert result.returncode == 0, result.stderr
    where, loaded, *scenarios = result.stdout.splitlines()
    assert where == str(tmp_path / "site" / "dropsim" / "__init__.py")
    assert loaded.endswith("(22, 3) True True")
    assert any("push-small" in line for line in scenarios)
