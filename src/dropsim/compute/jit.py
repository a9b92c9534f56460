"""Compilation of kernels, and the folder of their machine code.

numba's own cache notices a change in a kernel's file, but not in the files of the kernels that it calls. So the machine
code lives in a folder named after a hash of all kernel sources and of numba's version: another hash is another folder.
"""

import functools
import hashlib
import inspect
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

VARIABLE = "DROPSIM_CACHE"
"""Environment variable: folder for machine code and search indices, instead of the user's cache folder."""
NUM_FOLDERS = 3
"""Number of folders of machine code that stay, the last used ones: this version's, and those of other environments."""
_IN_USE = 24 * 3600.0
"""Time in which a folder was used that stays too [s]: a process may still run that writes into it."""
_PACKAGE = Path(__file__).parents[1]


@functools.cache
def kernel_hash() -> str:
    """Return a hash of all that decides what the kernels compute: their sources, numba, numpy and Python."""
    digest = hashlib.sha256(f"{version('numba')} {version('numpy')} {sys.version}".encode())
    sources = {path: path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}
    kernels = [source for path, source in sources.items() if b"compute.jit import" in source or path == Path(__file__)]
    # Kernels take constants from the modules that they import.
    imported = {name.decode() for source in kernels for name in re.findall(rb"from dropsim\.([\w.]+) import", source)}
    for path, source in sources.items():
        name = path.relative_to(_PACKAGE).with_suffix("").as_posix()
        if source in kernels or name.replace("/", ".") in imported:
            digest.update(name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder for what dropsim makes once and reads again later; it need not exist."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "dropsim"


@functools.cache
def kernel_folder() -> Path | None:
    """Return the folder of this version's machine code, or None if it cannot be written; delete older folders."""
    base = cache_folder() / "kernels"
    folder = base / kernel_hash()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        for old in sorted(base.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[NUM_FOLDERS:]:
            if time.time() - old.stat().st_mtime > _IN_USE:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _compiled(function: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401
    import numba.core.config  # not above: `compiled()` answers before numba, which takes half a second, is loaded

    # The tests check types by wrapping every function; numba needs the function inside.
    function = inspect.unwrap(function)
    folder = kernel_folder()
    if folder is None:
        return numba.njit(error_model="numpy", **options)(function)
    settings: Any = numba.core.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        return numba.njit(cache=True, error_model="numpy", **options)(function)
    finally:
        settings.CACHE_DIR = before


_REORDERED = {"reassoc", "contract"}
kernel = functools.partial(_compiled, fastmath=False)
"""Compiles a function for one core, with every operation in the order written."""
inlined_kernel = functools.partial(_compiled, fastmath=False, forceinline=True)
"""Compiles a function into its callers: to hand over ten arrays takes longer than a little arithmetic on them."""
contracted_kernel = functools.partial(_compiled, fastmath={"contract"})
"""Compiles a function whose products and sums may be fused, in the order written: the same numbers in any batch."""
fast_kernel = functools.partial(_compiled, fastmath=_REORDERED)
"""Compiles a function whose sums may be reordered, in an order that no batch changes."""
inlined_fast_kernel = functools.partial(_compiled, fastmath=_REORDERED, forceinline=True)
"""Compiles a function whose sums may be reordered into its callers."""


def compiled() -> bool:
    """Whether the kernels of a step have been compiled before, by this or another process."""
    folder = kernel_folder()
    return folder is not None and (folder / "compiled").exists()


@contextmanager
def compile_once() -> Iterator[None]:
    """Let one process compile while the others that start at the same time wait for its machine code.

    Wrap the first step of a process in this; later steps need nothing.
    """
    folder = kernel_folder()
    if folder is None or compiled():
        yield
        return
    with (folder / "lock").open("w") as lock:
        _lock(lock.fileno())  # released when the file is closed, also when the process is killed
        yield
    (folder / "compiled").touch()


def _lock(file: int) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):  # Windows, and file systems without locks: everybody compiles
        pass
