"""The examples run and leave what they say; the code in the documentation is theirs."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dropsim.apps.cli import main
from dropsim.apps.viewer.loop import Loop

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDES = sorted((ROOT / "docs").glob("your-own-*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_examples_are_numbered():
    assert [path.name[:3] for path in EXAMPLES] == [f"{i:02}_" for i in range(1, len(EXAMPLES) + 1)]
    assert len(EXAMPLES) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_leaves_the_files_that_it_names(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path / "new")])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    named = [Path(name) for name in re.findall(r"(\S+/new/\S+?\.\w+)", said)]
    assert named
    assert all(file.stat().st_size > 100 for file in named)
    assert [file.name for file in tmp_path.iterdir()] == ["new"], "an example writes into its folder only"


@pytest.mark.parametrize(("number", "library", "extra"), [("04", "torch", "train"), ("08", "matplotlib", "evaluate")])
def test_an_example_says_which_extra_it_needs(number, library, extra, tmp_path):
    path = next(path for path in EXAMPLES if path.name.startswith(number))
    code = f"import runpy, sys; sys.modules[{library!r}] = None; runpy.run_path({str(path)!r}, run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert f"pip install 'dropsim[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_the_code_of_a_guide_is_that_of_an_example(path):
    examples = "\n".join(example.read_text() for example in EXAMPLES)
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    for block in blocks:
        # tests/priors/test_contract.py runs these two.
        if not block.startswith(("class Wrapped(Prior)", "class Both(Prior)")):
            assert block.strip() in examples, "copy it from the example that runs"


def test_the_worked_example_of_a_prior_is_short():
    # "A model of another shape in under 40 lines": what is between the network and the simulator.
    text = (ROOT / "examples" / "04_your_own_prior.py").read_text()
    adapter = text[text.index("class StepPrior") : text.index("def trained")]
    assert 10 < len([line for line in adapter.splitlines() if line.strip()]) < 40


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md"])
def test_a_front_page_runs_as_written_in_an_empty_folder(page, tmp_path, monkeypatch):
    pytest.importorskip("av")
    pytest.importorskip("viser")
    pytest.importorskip("pythonosc")
    monkeypatch.chdir(tmp_path)
    # Live worlds end by themselves here, and at Ctrl-C elsewhere.
    monkeypatch.setattr(Loop, "wait", lambda self, seconds=None: self._stop.wait(0.2))
    steps = re.findall(r"^```python\n(.*?)^```|^    ((?:make|dropsim) [^\n]*)$", (ROOT / page).read_text(), re.M | re.S)
    for python, line in steps:
        words = shlex.split(line, comments=True)
        if python:
            assert len([row for row in python.splitlines() if row.strip()]) <= 10
            exec(compile(python, page, "exec"), {"__name__": "__main__"})
        elif words[1] not in ("test", "evaluate"):  # which tests/research does
            assert main(words[1:]) == 0, line
    assert "Frames: 180" in (tmp_path / "pushed.bvh").read_text()
    assert len(steps) > 6


@pytest.mark.slow
# python-osc's client leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "page", ["docs/viewer.md", "docs/scenes.md", "docs/synthesis.md", "docs/live.md", "docs/exporting.md"]
)
def test_the_python_of_a_page_runs_as_written(page, tmp_path, monkeypatch):
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    monkeypatch.chdir(tmp_path)
    needs = {
        "docs/live.md": ("pythonosc",),
        "docs/synthesis.md": ("gymnasium",),
        "docs/viewer.md": (),
        "docs/exporting.md": ("viser",),
    }
    for library in needs.get(page, ()):
        pytest.importorskip(library)
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": "__main__"})
