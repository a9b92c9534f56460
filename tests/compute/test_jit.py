"""Machine code is never stale, is made once, and is kept where it should be."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dropsim.compute import jit

SOURCE = Path(jit.__file__).parents[1]
INNER = "from dropsim.compute.jit import kernel\n\n\n@kernel\ndef inner(x):\n    return x + 1.0\n"
OUTER = "from dropsim.compute.jit import kernel\nfrom dropsim.inner import inner\n\n\n@kernel\ndef outer(x):\n    return 10.0 * inner(x)\n"
RUN = """
import sys, time
from pathlib import Path
from dropsim.compute.jit import compile_once, compiled
print(Path(sys.argv[1]).write_text(str("numba" in sys.modules)) and compiled(), flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
from dropsim.outer import outer
with compile_once():
    found = outer(1.0)
print(found, sum(outer.stats.cache_hits.values()), sum(outer.stats.cache_misses.values()), compiled())
"""


@pytest.fixture
def package(tmp_path):
    """A package of this name with two kernels, one of which calls the other in another file."""
    (tmp_path / "dropsim").mkdir()
    shutil.copytree(SOURCE / "compute", tmp_path / "dropsim" / "compute", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (("__init__", ""), ("inner", INNER), ("outer", OUTER), ("other", "")):
        (tmp_path / "dropsim" / f"{name}.py").write_text(text)
    (tmp_path / "go").touch()
    return tmp_path


def begin(package: Path, number: int = 0) -> subprocess.Popen[str]:
    """Start a process that runs the outer kernel."""
    env = {
        **os.environ,
        "PYTHONPATH": str(package),
        jit.VARIABLE: str(package / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", RUN, str(package / f"ready{number}"), str(package / "go")]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(process: subprocess.Popen[str]) -> list[str]:
    """Return whether kernels were compiled before, the result, the hits and misses, and whether they are now."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.split()


@pytest.mark.slow
def test_a_change_in_a_called_kernel_of_another_file_is_seen(package):
    # numba's own cache would go on with the old one: outer.py has not changed.
    assert ran(begin(package)) == ["False", "20.0", "0", "1", "True"]
    assert ran(begin(package)) == ["True", "20.0", "1", "0", "True"]
    (package / "dropsim" / "inner.py").write_text(INNER.replace("x + 1.0", "x + 2.0"))
    assert ran(begin(package)) == ["False", "30.0", "0", "1", "True"]
    # Back to the first, whose machine code is still there.
    (package / "dropsim" / "inner.py").write_text(INNER)
    assert ran(begin(package))[0] == "True"
    # Asking whether there is machine code does not load numba.
    assert (package / "ready0").read_text() == "False"


@pytest.mark.slow
def test_of_two_processes_that_start_at_once_one_compiles(package):
    (package / "go").unlink()
    processes = [begin(package, i) for i in range(2)]
    while not all((package / f"ready{i}").exists() for i in range(2)):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)
    (package / "go").touch()
    found = [ran(process) for process in processes]
    assert [part[0] for part in found] == ["False"] * 2
    assert [part[1] for part in found] == ["20.0"] * 2
    assert sorted(int(part[3]) for part in found) == [0, 1]


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_compiles_holds_up_nobody(package):
    env = {**os.environ, "PYTHONPATH": str(package), jit.VARIABLE: str(package / "cache")}
    code = "import time\nfrom dropsim.compute.jit import compile_once\nwith compile_once():\n print('in', flush=True)\n time.sleep(600)\n"
    holder = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    waiting = begin(package)
    time.sleep(1.0)
    assert waiting.poll() is None
    holder.kill()
    holder.communicate()
    assert ran(waiting) == ["False", "20.0", "0", "1", "True"]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(jit.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def test_the_hash_is_of_kernel_files_and_of_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)
    for name, text in (("inner", INNER), ("outer", OUTER), ("other", "x = 1\n")):
        (tmp_path / f"{name}.py").write_text(text)
    hashed = jit.kernel_hash.__wrapped__
    first = hashed()
    (tmp_path / "other.py").write_text("x = 2\n")
    assert hashed() == first
    seen = {first}
    for change in (
        lambda: (tmp_path / "inner.py").write_text(INNER + "\n"),
        lambda: (tmp_path / "outer.py").rename(tmp_path / "another.py"),
        lambda: (tmp_path / "inner.py").unlink(),
        lambda: monkeypatch.setattr(jit, "version", lambda name: f"{name} of tomorrow"),
    ):
        change()
        assert hashed() not in seen
        seen.add(hashed())


def test_every_kernel_of_the_package_is_in_the_hash():
    # A kernel is marked by `kernel` or `fast_kernel`, which come from compute.jit: that import is what the hash looks
    # for.
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "\n@kernel\n" in text or "\n@fast_kernel\n" in text or "njit(" in text:
            assert "compute.jit import" in text or path == Path(jit.__file__), path


def test_old_folders_are_deleted_and_the_last_used_are_kept(own_cache):
    for age in range(6):
        (own_cache / f"old{age}").mkdir(parents=True)
        (own_cache / f"old{age}" / "code").touch()
        os.utime(own_cache / f"old{age}", (time.time() - 1000 * (age + 1),) * 2)
    folder = jit.kernel_folder.__wrapped__()
    assert folder == own_cache / jit.kernel_hash()
    # All of them were used today: a process that started then may still write into its folder.
    assert len(list(own_cache.iterdir())) == 7
    for age in range(6):
        os.utime(own_cache / f"old{age}", (time.time() - 2 * 86400 - age,) * 2)
    jit.kernel_folder.__wrapped__()
    assert {path.name for path in own_cache.iterdir()} == {
        folder.name,
        *(f"old{age}" for age in range(jit.NUM_FOLDERS - 1)),
    }


def test_where_nothing_can_be_kept_kernels_work_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(jit.VARIABLE, str(tmp_path / "file" / "cache"))
    assert jit.kernel_folder.__wrapped__() is None
    monkeypatch.setattr(jit, "kernel_folder", lambda: None)
    assert jit.kernel(lambda x: x + 1.0)(1.0) == 2.0
    assert not jit.compiled()
    with jit.compile_once():
        assert not jit.compiled()


@pytest.mark.parametrize(
    ("variables", "expected"), [({"XDG_CACHE_HOME": "/c"}, "/c/dropsim"), ({"DROPSIM_CACHE": "/d"}, "/d")]
)
@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_the_cache_is_where_the_user_wants_it(variables, expected, monkeypatch):
    for name in ("DROPSIM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert jit.cache_folder() == Path.home() / ".cache" / "dropsim"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert jit.cache_folder() == Path(expected)


def test_an_error_while_compiling_leaves_the_kernels_uncompiled(own_cache):
    jit.kernel_folder.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="stopped"), jit.compile_once():
            raise RuntimeError("stopped")
        assert not jit.compiled()
        with jit.compile_once():
            pass
        assert jit.compiled()
    finally:
        jit.kernel_folder.cache_clear()
