"""The command's manners: one line and exit code 2 on an error, no traceback, quick help."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import pytest

import dropsim.apps.cli
from dropsim.apps.cli import COMMANDS, main
from dropsim.apps.cli.run import Demo
from dropsim.compute import jit
from dropsim.compute.threads import limit
from dropsim.scene import World
from dropsim.scene.scenarios import scenario


@dataclass(frozen=True)
class Failing:
    """Raise what the test asks for."""

    def run(self) -> None:
        raise self.error

    error = ValueError("the clip has\nno frames: record some")


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """A machine on which the kernels have been compiled: nothing is said about it."""
    monkeypatch.setattr("dropsim.apps.cli.progress.tell_of_compiling", lambda: None)


@pytest.fixture
def failing(monkeypatch):
    """Put a command that raises in the table, next to a real one."""

    def register(error: BaseException) -> None:
        monkeypatch.setattr(Failing, "error", error)
        monkeypatch.setattr(dropsim.apps.cli, "COMMANDS", {"fail": Failing, "demo": Demo})

    return register


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("the clip has\n  no frames: record some"), "dropsim: the clip has no frames: record some\n"),
        (
            FileNotFoundError(2, "No such file or directory", "walk.bvh"),
            "dropsim: walk.bvh: No such file or directory\n",
        ),
        (OSError("disk on fire"), "dropsim: disk on fire\n"),
        (ValueError(), "dropsim: ValueError\n"),
        (MemoryError(), "dropsim: there is not enough memory for this: ask for fewer people, samples or seconds\n"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(failing, capsys, error, line):
    failing(error)
    assert main(["fail"]) == 2
    output = capsys.readouterr()
    assert output.err == line
    assert output.out == ""


def test_a_bug_or_a_wish_to_debug_shows_the_traceback_and_ctrl_c_is_quiet(failing, monkeypatch, capsys):
    failing(KeyboardInterrupt())
    assert main(["fail"]) == 130
    assert capsys.readouterr() == ("", "")
    failing(KeyError("q"))
    with pytest.raises(KeyError):
        main(["fail"])
    failing(ValueError("deep inside"))
    monkeypatch.setenv("DROPSIM_DEBUG", "1")
    with pytest.raises(ValueError, match="deep inside"):
        main(["fail"])


@pytest.mark.parametrize("args", [[], ["-h"]])
def test_the_list_of_commands_has_a_sentence_for_each(capsys, args):
    with pytest.raises(SystemExit) as exit_:
        main(args)
    assert exit_.value.code == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, command in COMMANDS.items():
        summary = command.__doc__.partition("\n")[0]
        assert f"• {name} {summary}" in said
        assert summary.endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option_with_an_example_and_its_default(capsys, name):
    command = COMMANDS[name]
    assert re.search(rf"Examples?: dropsim {name}\b", command.__doc__), "show how the command is called"
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    said = capsys.readouterr().out
    # An option whose box has a default and no sentence before it: the option, its value, and at once the default.
    assert not re.search(r"^│ --[\w-]+(?: [^ ]+)? +\(default", said, re.MULTILINE), "every option needs a docstring"


def test_a_reader_that_has_seen_enough_is_no_error():
    # Many lines into a pipe that is closed at once.
    program = "import sys; from dropsim.apps.cli import main; sys.exit(main())"
    command = f"{sys.executable} -c '{program}' scenarios | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert result.stdout in ("0\n", "141\n")


def test_demo_writes_what_it_says(capsys, tmp_path, monkeypatch):
    # Long enough for the push, which is from 2 to 2.5 s.
    monkeypatch.setattr("dropsim.scene.files.Setup.num_frames", lambda *_: 80)
    assert main(["demo", "--out", str(tmp_path / "new")]) == 0
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["push.bvh", "push.md", "push.npz", "push.png", "recordings"]
    said = capsys.readouterr().out
    assert all(name in said for name in written)
    # It ends with what to open.
    assert f"open {tmp_path / 'new' / 'push.png'}" in said.splitlines()[-1]
    with np.load(tmp_path / "new" / "push.npz", allow_pickle=False) as archive:
        frames = len(archive["poses"])
        shapes = {"trans": (3,), "contacts": (22,), "root_wrench": (2,)}
        shapes |= dict.fromkeys(("joints", "contact_forces", "external_forces"), (22, 3))
        assert {name: archive[name].shape[1:] for name in shapes} == shapes
        assert {len(archive[name]) for name in shapes} == {frames}
        energies = ("kinematic", "contact", "rigidity", "range_of_motion", "momentum")
        assert {f"energy_{name}" for name in energies} <= set(archive)
        assert int(archive["seed"]) == scenario("push").seed
        # 250 N for half a second from 2 s on, at 30 Hz: 15 frames.
        pushed = np.abs(archive["external_forces"]).sum((1, 2)) > 0
        assert pushed.sum() == 15
        assert np.argmax(pushed) == 61


def test_run_writes_everybody_of_a_scene(capsys, tmp_path):
    options = "--seconds 0.1 --samples 2 --seed 5 --set planner.num_rollouts=2 --out"
    assert main(["run", "two-people", *options.split(), str(tmp_path)]) == 0
    # Another seed than the scene's own is in the names.
    people = [f"two-people-5_{i}.{ending}" for i in (0, 1) for ending in ("bvh", "npz")]
    written = sorted([*people, "two-people-5.md", "two-people-5.png"])
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    said = capsys.readouterr().out
    assert all(name in said for name in (*written, "Person 0 did not fall", "Person 1 did not fall"))
    with np.load(tmp_path / "two-people-5_1.npz", allow_pickle=False) as archive:
        assert (archive["poses"].shape, int(archive["seed"])) == ((3, 156), 5)


def test_a_saved_scene_runs_as_the_scenario_does(capsys, tmp_path):
    few = ["--samples", "2", "--seconds", "0.2", "--set", "push.start=0.1", "--no-picture"]
    file = tmp_path / "mine.toml"
    assert main(["run", "push", *few, "--save", str(file)]) == 0
    assert list(tmp_path.iterdir()) == [file]
    assert main(["run", "push", *few, "--out", str(tmp_path / "a")]) == 0
    assert main(["run", str(file), "--no-picture", "--out", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    with np.load(tmp_path / "a" / "push.npz") as one, np.load(tmp_path / "b" / "push.npz") as other:
        assert set(one) == set(other)
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_files_of_another_run_are_not_replaced(capsys, tmp_path):
    few = ["--samples", "2", "--seconds", "0.1", "--no-picture", "--out", str(tmp_path)]
    assert main(["run", "stand-still", *few]) == 0
    (tmp_path / "stand-still.png").touch()
    first = (tmp_path / "stand-still.npz").read_bytes()
    capsys.readouterr()
    assert main(["run", "stand-still", *few, "--set", "person.facing=90"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "stand-still.npz").read_bytes() == first
    # The same again may be written again, and leaves no picture of before.
    assert main(["run", "stand-still", *few]) == 0
    assert not (tmp_path / "stand-still.png").exists()
    assert main(["run", "stand-still", *few, "--set", "person.facing=90", "--force"]) == 0
    assert (tmp_path / "stand-still.npz").read_bytes() != first


def test_what_comes_after_the_end_is_said(capsys, tmp_path):
    options = "--samples 2 --at 100 --seconds 0.1 --no-picture --out"
    assert main(["run", "push", *options.split(), str(tmp_path)]) == 0
    assert "push torso at 100 s never happens: the run ends at 0.1 s" in capsys.readouterr().err


def test_ctrl_c_keeps_the_frames_so_far(capsys, tmp_path, monkeypatch):
    step, frames = World.step, []

    def interrupted(*args, **options):
        frames.append(0)
        # The first step only compiles.
        if len(frames) == 8:
            raise KeyboardInterrupt
        return step(*args, **options)

    monkeypatch.setattr(World, "step", interrupted)
    assert main(["run", "stand-still", "--samples", "2", "--no-picture", "--out", str(tmp_path)]) == 130
    assert "7 frames so far" in capsys.readouterr().err
    with np.load(tmp_path / "stand-still.npz") as archive:
        assert len(archive["poses"]) == 7


def test_what_diverges_is_kept_up_to_there(capsys, tmp_path):
    options = ["--newtons", "1e11", "--at", "0.1", "--seconds", "0.5", "--samples", "2", "--no-picture"]
    assert main(["run", "push", "--out", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    # The push leads from frame 3 to frame 4, so frames 0 to 3 are there; which part of the step gives up first does not
    # matter.
    assert "dropsim: frame 4: " in error
    assert error.endswith(f"; the frames up to there are in {tmp_path}\n")
    with np.load(tmp_path / "push.npz", allow_pickle=False) as archive:
        assert len(archive["poses"]) == 4


def test_scenarios_are_listed_with_a_sentence_each(capsys):
    assert main(["scenarios"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("push-small ") and line.endswith(".") for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_info_tells_versions_threads_and_settings(monkeypatch, capsys):
    monkeypatch.setenv("DROPSIM_THREADS", "2")
    limit.cache_clear()
    assert main(["info"]) == 0
    monkeypatch.undo()
    limit.cache_clear()
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"from", "python", "extras", "kernels", "platform"} <= set(facts)
    parts = {"dropsim": version("dropsim"), "packages": "numba", "weights": "prior.safetensors", "bank": "CC BY 3.0"}
    parts |= {"threads": "2 of ", "settings": "DROPSIM_THREADS=2"}
    assert {name: part for name, part in parts.items() if part not in facts[name]} == {}
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dropsim {version('dropsim')}\n"


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["run", "push", "--newtns", "3"]])
def test_parsing_loads_nothing_heavy(args):
    # Heavy imports belong in run(): the first line must not wait for numpy, numba or the drawing libraries.
    code = (
        "import sys\nfrom dropsim.apps.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "sys.exit(str({'numpy', 'numba', 'scipy', 'torch', 'PIL', 'av'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1] == "set()"


def test_the_first_run_says_at_once_that_it_compiles(tmp_path):
    # Before numba is loaded, which takes long by itself; asked twice, because the answer comes from the folder and not
    # from memory.
    code = (
        "import sys\nfrom dropsim.apps.cli.progress import tell_of_compiling\ntell_of_compiling()\n"
        "from dropsim.compute import jit\n(jit.kernel_folder() / 'compiled').touch()\ntell_of_compiling()\n"
        "sys.exit('numba' in sys.modules)"
    )
    environment = {**os.environ, "DROPSIM_CACHE": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stderr == "dropsim: compiling the simulator's kernels, once, about 30 s\n"


def test_compiling_shows_how_far_it_is(monkeypatch, capsys, tmp_path):
    from dropsim.apps.cli import progress

    monkeypatch.setattr(jit, "kernel_folder", lambda: tmp_path)
    (tmp_path / "a.nbi").touch()
    said = ""
    for period in (60.0, 0.01):
        assert said == ""
        monkeypatch.setattr(progress, "PERIOD", period)
        with progress.compiling():
            time.sleep(0.1)
        said = capsys.readouterr().err
    assert said.startswith("dropsim: 1 kernels compiled\n")


def test_ctrl_c_while_the_command_is_loaded_is_quiet(monkeypatch, capsys):
    from dropsim.__main__ import main as first

    def interrupted(name, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.__import__", interrupted)
    assert first() == 130
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")
