"""The layering of docs/architecture.md: an import points only downward, and heavy libraries load when they are used."""

import ast
import functools
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dropsim"

# Bottom first. Folders on one line may import each other; a new folder is added here or the first test below fails.
LAYERS = """
    files compute
    body
    motion
    priors
    physics
    control
    scene
    export
    render
    research
    apps
"""
RANK = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split()}
CORE_TOP = RANK["scene"]
CORE_LIBRARIES = {"numpy", "numba", "scipy", "jaxtyping", "msgspec", "safetensors", "threadpoolctl", "llvmlite"}
HEAVY_LIBRARIES = {"av", "gymnasium", "matplotlib", "pxr", "pyarrow", "ray", "torch", "viser"}
ADAPTERS = {"apps/gym.py": {"gymnasium"}}
"""Modules that are nothing without their library, and that nobody else imports."""
TRAINING = "research/training/"
"""Where torch is at home."""
TORCH_WHEN_USED = {"files/checkpoints.py", "apps/cli/train.py", "research/evaluation/fuzz.py"}
"""Modules with a function that needs torch: other people's checkpoints, damaged ones of them, and the command that
trains."""

FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in FILES}
EVERY_FILE = pytest.mark.parametrize("name", TREES)


def folder_of(name: str) -> str:
    return name.partition("/")[0]


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
    """Dotted names that are loaded with the module: not those inside functions, nor those for the type checker only."""
    names = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= imported(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return names


def libraries(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_the_tree_is_that_of_the_layers():
    # Nothing but the public names and the command at the root; every folder has a place.
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*RANK, "assets"}, "give a new folder a place in LAYERS and in docs/architecture.md"
    assert {folder_of(name) for name in TREES} == set(RANK)


@EVERY_FILE
def test_imports_point_downward(name):
    own = folder_of(name)
    for other in imported(TREES[name]):
        package, _, rest = other.partition(".")
        if package == "dropsim":
            folder = rest.partition(".")[0]
            assert folder in RANK, (
                f"{name} imports {other}: import from the module itself, not from the package's public names"
            )
            assert RANK[folder] <= RANK[own], f"{name} imports {other}, which stands above it"


@pytest.mark.parametrize("name", [name for name in TREES if RANK[folder_of(name)] <= CORE_TOP])
def test_the_core_needs_only_its_own_libraries(name):
    assert libraries(at_module_import(TREES[name])) - set(sys.stdlib_module_names) - {"dropsim"} <= CORE_LIBRARIES


@EVERY_FILE
def test_heavy_libraries_load_when_used(name):
    allowed = ADAPTERS.get(name, {"torch"} if name.startswith(TRAINING) else set())
    assert libraries(at_module_import(TREES[name])) & HEAVY_LIBRARIES <= allowed


@functools.cache
def modules_that_load(library: str) -> set[str]:
    """Dotted names of our modules that load a library with themselves."""
    loading = [name for name, tree in TREES.items() if library in libraries(at_module_import(tree))]
    return {f"dropsim.{name.removesuffix('.py').replace('/', '.')}" for name in loading}


def is_of(other: str, modules: set[str]) -> bool:
    return any(other == module or other.startswith(f"{module}.") for module in modules)


@EVERY_FILE
def test_torch_stays_in_training(name):
    # Neither it nor what loads it: at run time nothing but a checkpoint's reader and the command that trains may ask
    # for it.
    if name.startswith(TRAINING):
        return
    loads = {"torch", "roma"} & libraries(imported(TREES[name]))
    assert not loads or (name in TORCH_WHEN_USED and loads == {"torch"})
    brought = [other for other in at_module_import(TREES[name]) if is_of(other, modules_that_load("torch"))]
    assert not brought, "import it inside the function that trains"


def test_nobody_imports_an_adapter():
    modules = {f"dropsim.{name.removesuffix('.py').replace('/', '.')}" for name in ADAPTERS}
    for name, tree in TREES.items():
        assert not any(is_of(other, modules) for other in imported(tree)), name


def test_the_reader_of_imports_sees_what_it_should():
    # The two functions above carry the laws, so they are held to a case with every kind of import in it.
    tree = ast.parse(
        "import torch.nn\nfrom dropsim import motion\nif TYPE_CHECKING:\n    import ray\n"
        "try:\n    import av\nexcept ImportError:\n    pass\ndef f():\n    import viser\n"
        "class A:\n    import numpy\n    def g(self):\n        import scipy\n"
    )
    assert imported(tree) == {"torch.nn", "dropsim.motion", "ray", "av", "viser", "numpy", "scipy"}
    assert libraries(at_module_import(tree)) == {"torch", "dropsim", "av", "numpy"}
