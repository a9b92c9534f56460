"""What `import dropsim` offers: a promise, so a change of this list is a decision."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dropsim

PUBLIC = [
    "Ball",
    "CVAEPrior",
    "Candidates",
    "ClipPrior",
    "Dodge",
    "Drag",
    "Element",
    "Energy",
    "Follow",
    "Frame",
    "Ground",
    "Intent",
    "Motion",
    "Obstacle",
    "Person",
    "Pin",
    "Prior",
    "Push",
    "Rollout",
    "Scene",
    "SceneContext",
    "Simulator",
    "SimulatorOptions",
    "Skeleton",
    "State",
    "StepInputs",
    "StiffJoint",
    "Streams",
    "Target",
    "Throw",
    "Trip",
    "World",
    "metrics",
    "read_motion",
    "read_scene",
    "run",
    "scenario",
    "write",
    "write_scene",
]


def test_the_public_names_are_these():
    assert sorted(dropsim.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(dropsim))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(dropsim, name)
    assert inspect.getdoc(thing)
    if inspect.ismodule(thing):
        assert thing.__name__.endswith(f".{name}")
        return
    # A class or function of ours under its own name, not something that a module happens to import.
    assert thing.__module__.startswith("dropsim.")
    assert thing.__name__ == name


def test_the_type_checker_sees_the_same_names_from_the_same_places():
    tree = ast.parse(Path(inspect.getfile(dropsim)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(seen) == sorted(PUBLIC)
    for name, module in seen.items():
        assert getattr(sys.modules[module], name) is getattr(dropsim, name)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'External'"):
        _ = dropsim.External


def loaded_by(code: str, *names: str) -> str:
    """Run code in a fresh interpreter and return which of some libraries it has loaded."""
    lines = f"import sys\n{code}\nprint(sorted(set({names!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_by("import dropsim", "torch", "numpy", "numba", "scipy", "tyro") == "[]"


@pytest.mark.slow
def test_a_pushed_person_needs_no_torch():
    code = """
from dropsim import Person, Push, Scene, Simulator, World, metrics, run
scene = Scene((Person("walk"),), (Push.toward("left", newtons=250.0, start=0.2),))
motion = run(World(scene, Simulator.shipped(num_samples=8)), num_frames=15, seeds=7).motions[0]
metrics.fallen(motion)
"""
    assert loaded_by(code, "torch", "roma", "matplotlib", "viser", "ray", "numba") == "['numba']"
