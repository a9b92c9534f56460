"""Writing files so that a reader never sees half of one, and reading those that may be damaged."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def refuse_read_only(path: Path) -> None:
    """Raise where a file, or files in a folder, cannot be written: better before long work than after it."""
    folder = next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{path}: cannot be written, because the folder {folder} is read-only")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of path that takes its place on success and is removed on error.

    The sibling keeps the extension, because many writers choose the format by it. The parent folder is made when it is
    missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    start = path.with_name(f".{path.stem}-")
    try:
        # A folder of its own: no clash of names, and the writer creates the file itself, with the usual permissions.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=start.name) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            os.replace(temporary, path)
    except OSError as error:
        if error.strerror is None or not str(error.filename or start).startswith(str(start)):
            raise
        # The user has never heard of the temporary name; a full disk has none.
        raise type(error)(error.errno, f"cannot be written: {error.strerror}", str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file, with line ends as they are."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")


@contextmanager
def errors_of(path: str | Path) -> Iterator[None]:
    """Put a file's name before its fault; whatever else goes wrong while a file is read is damage to it."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, TimeoutError):
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except Exception as error:
        raise ValueError(f"{path}: the file is damaged: export it or download it again") from error
