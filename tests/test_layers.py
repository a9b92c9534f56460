"""The layering of docs/architecture.md: an import points only downward, and heavy libraries load when they are used."""

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dropsim"

# Top first. Modules on one line may import each other; a new module is added here or the test below fails.
LAYERS = """
    __main__ cli
    gym_env
    viewer render export synthesis evaluation training
    scenarios cleaning
    scene scene_file
    following getting_up
    simulator
    priors
    planner stiffness
    prior
    energies
    metrics
    energy projective wrench hands collider nnls pose_prior
    data synthetic body
    motion
    skeleton rotations kernels
    smpl_file
    files names npz weights threads
"""
RANK = {name: rank for rank, line in enumerate(reversed(LAYERS.split("\n"))) for name in line.split()}
CORE_TOP = RANK["simulator"]
CORE_LIBRARIES = {"torch", "numpy", "numba", "scipy", "roma", "jaxtyping", "safetensors"}
HEAVY_LIBRARIES = {"av", "gymnasium", "matplotlib", "moderngl", "pxr", "pyarrow", "pygltflib", "ray", "viser"}
ADAPTERS = {"gym_env": {"gymnasium"}}
"""Modules that are nothing without their library, and that nobody else imports."""

FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


CORE_FILES = [path for path in FILES if RANK.get(layer_of(path), CORE_TOP) <= CORE_TOP]


def imported(tree: ast.AST) -> set[str]:
    """Dotted names that a piece of code imports; `from a import b` gives a.b, since b may be a module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here, so that their layer can be read off"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def at_module_import(tree: ast.Module) -> set[str]:
    """Libraries that are loaded with the module: not those inside functions, nor those for the type checker only."""
    names = set()
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= imported(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [child for child in ast.walk(node) if isinstance(child, ast.Import | ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@EVERY_FILE
def test_every_module_has_a_layer(path):
    assert layer_of(path) in RANK, f"give {layer_of(path)} a place in LAYERS and in docs/architecture.md"


@EVERY_FILE
def test_imports_point_downward(path):
    own = layer_of(path)
    for name in imported(ast.parse(path.read_text())):
        package, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if package == "dropsim" and other in RANK:
            assert RANK[other] <= RANK[own], f"{own} imports {other}, which stands above it"


@pytest.mark.parametrize("path", CORE_FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_needs_only_its_own_libraries(path):
    others = at_module_import(ast.parse(path.read_text())) - set(sys.stdlib_module_names) - {"dropsim"}
    assert others <= CORE_LIBRARIES


@EVERY_FILE
def test_heavy_libraries_load_when_used(path):
    loaded = at_module_import(ast.parse(path.read_text())) & HEAVY_LIBRARIES
    assert loaded <= ADAPTERS.get(layer_of(path), set())


def test_nobody_imports_an_adapter():
    for path in FILES:
        modules = {name.split(".")[1] for name in imported(ast.parse(path.read_text())) if name.startswith("dropsim.")}
        assert not modules & ADAPTERS.keys(), path


def test_the_reader_of_imports_sees_what_it_should():
    # The two functions above carry the laws, so they are held to a case with every kind of import in it.
    tree = ast.parse(
        "import torch.nn\nfrom dropsim import motion\nif TYPE_CHECKING:\n    import ray\n"
        "try:\n    import av\nexcept ImportError:\n    pass\ndef f():\n    import viser\n"
    )
    assert imported(tree) == {"torch.nn", "dropsim.motion.motion", "ray", "av", "viser"}
    assert at_module_import(tree) == {"torch", "dropsim", "av"}
