"""Fill the list of public names (docs/notation.md) with the public names and what their docstrings say; mkdocs runs it as a hook."""

import dataclasses
import inspect
import re
import textwrap
from typing import Any

MARK = "<!-- the reference goes here -->"
FIELD = re.compile(r'^    (\w+): [^\n]*(?:\n {8}[^\n]*|\n    [)\]}][^\n]*)*\n    """(.*?)"""', re.MULTILINE | re.DOTALL)
"""A field of a class with the docstring below it."""


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - as mkdocs calls it
    """Replace the mark in a page."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown


def reference() -> str:
    """Return every public name, in the order of the package's own overview, as Markdown."""
    import dropsim

    groups = dict[str, list[str]]()
    for name in sorted(dropsim.__all__, key=str.lower):
        found = getattr(dropsim, name)
        module = found.__name__ if inspect.ismodule(found) else found.__module__
        groups.setdefault(module.split(".")[1], []).append(_entry(name, found))
    return "\n\n".join(f"## {group}\n\n" + "\n\n".join(entries) for group, entries in groups.items())


def _entry(name: str, found: Any) -> str:  # noqa: ANN401
    if inspect.ismodule(found):
        functions = [
            f
            for f in vars(found).values()
            if inspect.isfunction(f) and f.__module__ == found.__name__ and f.__name__[0] != "_"
        ]
        rows = [f"| `{f.__name__}` | {_first_line(f)} |" for f in functions]
        return "\n".join([f"### {name}", "", _doc(found), "", "| function | what |", "|---|---|", *rows])
    lines = [f"### {name}", "", f"    {_signature(name, found)}", "", _doc(found)]
    if inspect.isclass(found):
        lines += _members(found)
    return "\n".join(lines)


def _members(cls: type) -> list[str]:
    rows = [f"| `{field.name}` | {said} |" for field in _fields(cls) if (said := _field_docs(cls).get(field.name, ""))]
    for name, member in sorted(vars(cls).items()):
        kind = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name[0] != "_" and (inspect.isfunction(kind) and kind.__doc__):
            rows.append(f"| `{name}{'' if isinstance(member, property) else '()'}` | {_first_line(kind)} |")
    return ["", "| | |", "|---|---|", *rows] if rows else []


def _fields(cls: type) -> list[Any]:
    return [field for field in dataclasses.fields(cls) if field.name[0] != "_"] if dataclasses.is_dataclass(cls) else []


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and of those that it is made of."""
    found = dict[str, str]()
    for one in reversed(cls.__mro__):
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):
            continue
        for name, said in FIELD.findall(source):
            found[name] = _in_a_row(said)
    return found


def _signature(name: str, found: Any) -> str:  # noqa: ANN401
    if inspect.isclass(found) and inspect.isabstract(found):
        return f"class {name}  # abstract: {', '.join(sorted(found.__abstractmethods__))}"
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return name
    return f"{name}({', '.join(_parameter(p) for p in parameters if p.name != 'self')})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = parameter.default
    if default is inspect.Parameter.empty:
        return stars + parameter.name
    shown = repr(default)
    return f"{parameter.name}={shown if len(shown) < 30 and '<' not in shown else '...'}"


def _doc(found: Any) -> str:  # noqa: ANN401
    return textwrap.dedent(inspect.getdoc(found) or "").strip().replace("|", "\\|")


def _first_line(found: Any) -> str:  # noqa: ANN401
    return _in_a_row((inspect.getdoc(found) or "").partition("\n\n")[0])


def _in_a_row(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
