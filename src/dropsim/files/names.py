"""Names that people mistype: what they may have meant."""

import difflib
import re
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a mistyped one is nearest to, if one is near; case, spaces, - and _ do not count."""
    by_letters = {_letters(one): one for one in known}
    near = difflib.get_close_matches(_letters(name), by_letters, 1)
    return by_letters[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say which known name was meant, or, where none is near, which there are."""
    known = list(known)
    near = nearest_name(name, known)
    return f"did you mean {near!r}?" if near is not None else f"use one of {', '.join(known)}"


def printable(text: str) -> str:
    """Return text of a file for a terminal or a comment: a replacement for line ends, escapes and half characters."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
