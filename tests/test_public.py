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
    "StepInputs",
    "SceneContext",
    "Motion",
    "Obstacle",
    "Person",
    "Pin",
    "Prior",
    "Push",
    "Scene",
    "Simulator",
    "Skeleton",
    "State",
    "StiffJoint",
    "Streams",
    "Take",
    "Target",
    "Throw",
    "Trip",
    "World",
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
    # A class or function of ours under its own name, not something that a module happens to import.
    assert thing.__module__.startswith("dropsim.")
    assert thing.__name__ == name


def test_the_type_checker_sees_the_same_names_from_the_same_places():
    tree = ast.parse(Path(inspect.getfile(dropsim)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen) == sorted(PUBLIC)
    for name, module in seen.items():
        assert getattr(sys.modules[module], name) is getattr(dropsim, name)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'physics'"):
        _ = dropsim.physics


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, dropsim; sys.exit(str({'torch', 'numpy', 'numba', 'tyro'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr.strip() == "set()"
