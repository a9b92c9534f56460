"""The examples run and leave what they say; the code in the documentation is theirs."""

import re
import runpy
import sys
from pathlib import Path

import pytest

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
def test_the_python_of_a_front_page_runs_as_written(page, tmp_path, monkeypatch):
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": "__main__"})
    text = (tmp_path / "pushed.bvh").read_text()
    assert text.startswith("HIERARCHY")
    assert "Frames: 180" in text


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
