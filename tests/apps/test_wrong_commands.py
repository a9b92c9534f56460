"""Forty and more wrong commands: each gets one sentence that says what to do, exit code 2, and leaves no file behind.

`python tests/apps/test_wrong_commands.py` prints them as a table with what the command answers.
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

import pytest

from dropsim.apps.cli import main

COMMANDS = {
    "frobnicate": "there is no command",
    "psuh": "use one of",
    "run": "missing",
    "run psuh": "did you mean push?",
    "run missing.toml": "No such file",
    "run mistyped.toml": "left_elbow",
    "run unknown.toml": "no field 'newton'",
    "run broken.toml": "broken.toml",
    "run push --seconds 0": "above 0",
    "run push --seconds nan": "seconds",
    "run push --seconds 1e9": "at most",
    "run push --out notes.txt": "give a folder",
    "run push --out push.bvh": "give a folder",
    "run push --seed -1": "whole number",
    "run push --seed x": "'x' is not a whole number",
    "run push --part elbwo": "elbow",
    "run push --newtons strong": "'strong' is not a number",
    "run push --newtns 300": "did you mean --newtons?",
    "run push --direction upward": "use front, left, back, right",
    "run push --start swim": "use one of stand",
    "run push --set push.newton=3": "did you mean 'newtons'?",
    "run push --set seconds": "write a path, = and a value",
    "run push --save scene.txt": "ends in .toml",
    "run push --prior nowhere.bank": "is not there",
    "run push --prior fild": "did you mean",
    "run push --samples 0": "between 1 and",
    "run push --set clip=none.bvh": "none.bvh",
    "view --port 99999": "0 to 65535",
    "view --people 0": "1 to 6 people",
    "view --start swim": "use one of",
    "view --seconds -1": "above 0",
    "view --host no.such.host.invalid": "no host",
    "view --vmc here:there": "HOST:PORT",
    "live --vmc 127.0.0.1:0": "HOST:PORT",
    "live --rate 50": "rate",
    "live --listen 70000": "HOST:PORT",
    "render only.mp4": "at least one motion",
    "render notes.npz film.mp4": "not an npz archive",
    "render notes.bvh film.mp4": "notes.bvh",
    "render none.npz film.gif": "No such file",
    "render notes.npz film.avi": ".mp4, .gif or .png",
    "render notes.npz a.png --size big": "1280x720",
    "render notes.npz a.png --at 3 --contact-sheet": "--at is for a single picture",
    "convert empty.bvh a.glb": "empty or cut off",
    "convert notes.npz a.xyz": "cannot write",
    "perturb empty.bvh": "empty or cut off",
    "clean none.bvh a.bvh": "none.bvh",
    "bank": "missing",
    "bank burn x": "dropsim bank build",
    "bank info none.bank": "is not there",
    "bank build folder": "folder",
    "bank build folder --minutes -1": "minutes",
    "evaluate psuh": "use one of",
    "bench --seconds 0": "above 0",
    "bench --json none/x.json": "no such folder",
    "synthesize --count -1 --out data": "clips, not -1",
    "demo --seed two": "'two' is not a whole number",
    "demo --out notes.txt": "give a folder",
    "train nothing": "use one of prior, pose, starts",
    "info --verbose": "unrecognized",
}
"""What is typed, and a part of what is answered."""


def fill(folder: Path) -> None:
    """Write the files that some commands name."""
    (folder / "notes.txt").write_text("shopping list")
    (folder / "notes.npz").write_bytes(b"shopping list")
    (folder / "notes.bvh").write_text("shopping list")
    (folder / "empty.bvh").write_text("")
    (folder / "folder").mkdir()
    (folder / "mistyped.toml").write_text('[[person]]\n[[push]]\npart = "left_elbo"\nnewtons = 3\ndirection = "left"\n')
    (folder / "unknown.toml").write_text("[[person]]\n[[push]]\nnewton = 3\n")
    (folder / "broken.toml").write_text("[[person\n")


def answer(command: str) -> tuple[int, str, str]:
    """Return the exit code, what is printed and what is said on the error stream."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command.split())
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_gets_a_sentence(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DROPSIM_DEBUG", raising=False)
    monkeypatch.setattr("dropsim.compute.jit.compiled", lambda: True)
    fill(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = answer(command)
    assert code == 2
    assert COMMANDS[command] in err
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("dropsim: ")
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


if __name__ == "__main__":
    os.environ.setdefault("DROPSIM_CACHE", str(Path.home() / ".cache" / "dropsim"))
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        fill(Path(name))
        rows = [(command, *answer(command)) for command in COMMANDS]
    sys.stdout.write("| command | code | answer |\n|---|---|---|\n")
    for command, code, _, err in rows:
        sys.stdout.write(f"| `dropsim {command}` | {code} | {err.strip().removeprefix('dropsim: ')} |\n")
