"""Write docs/constants.md: every constant that decides how people move, with its reason, from the sources' own docstrings."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = (
    *("priors/motion_field", "priors/field_queries", "priors/field_kernels", "priors/prior", "body/joints"),
    *("physics/options", "physics/wrench", "physics/contact", "physics/settle", "physics/energies", "physics/step"),
    *("control/floor", "control/getting_up", "control/leaning", "control/following", "control/planner", "scene/world"),
)
LAYOUT = ("Column", "Sets of frames", "Hip, knee")
"""Beginnings of the docstrings of numbers that only lay out arrays."""
HEAD = """# Constants that decide how people move

Written by `python tools/list_constants.py` from the sources. Options of `SimulatorOptions` and of priors can be set;
the others are constants.

| module | name | value | meaning and reason |
|---|---|---|---|
"""


def constants_of(module: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and docstring of a module's numeric constants and options."""
    source = (ROOT / "src" / "dropsim" / f"{module}.py").read_text(encoding="utf-8")
    for body in [node.body for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Module, ast.ClassDef))]:
        for statement, following in zip(body, [*body[1:], None], strict=True):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            value = getattr(statement, "value", None)
            if target is None or value is None or not any(isinstance(n, ast.Constant) for n in ast.walk(value)):
                continue
            numbers = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
            if not all(isinstance(n, float) or (isinstance(n, int) and not isinstance(n, bool)) for n in numbers):
                continue
            text = following.value if isinstance(following, ast.Expr) else None
            if (isinstance(text, ast.Constant) and ast.unparse(target).isidentifier()) or "," in ast.unparse(target):
                reason = text.value if isinstance(text, ast.Constant) else ""
                yield ast.unparse(target).strip("()"), ast.unparse(value), " ".join(str(reason).split())


def page() -> str:
    """Return the page."""
    rows = [(module, *row) for module in MODULES for row in constants_of(module)]
    rows = [
        row for row in rows if row[3] and row[1][0] != "_" and "lambda" not in row[2] and not row[3].startswith(LAYOUT)
    ]
    lines = (f"| `{module}` | {name} | {value} | {reason} |\n" for module, name, value, reason in rows)
    return HEAD + "".join(line.replace("|r|", "r") for line in lines)


if __name__ == "__main__":
    (ROOT / "docs" / "constants.md").write_text(page(), encoding="utf-8")
