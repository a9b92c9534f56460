"""The documentation builds with no broken link, needs nothing from the internet, and names what there is."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dropsim
from dropsim.apps.cli import COMMANDS
from dropsim.scene.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"


def test_the_site_builds_and_loads_nothing_from_the_internet(tmp_path):
    command = f"-m mkdocs build --strict --config-file {ROOT / 'mkdocs.yml'} --site-dir {tmp_path}".split()
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 10
    names = (tmp_path / "notation.html").read_text()
    assert [name for name in dropsim.__all__ if f">{name}</h3>" not in names] == []
    assert (dropsim.Scene.__doc__ or "").splitlines()[0] in names
    for page in pages:
        text = page.read_text()
        assert not re.search(r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//", text), page
        assert not re.search(
            r"<link[^>]+rel=\"stylesheet\"[^>]+href=\"(?:https?:)?//|<link[^>]+href=\"(?:https?:)?//[^>]+stylesheet",
            text,
        ), page
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_to_files_lead_somewhere(name):
    text = (ROOT / name).read_text()
    links = re.findall(r"(?:\]\(|src=\")([^)\"#\s]+)", text)
    local = [link for link in links if not link.startswith(("http:", "https:", "mailto:"))]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], ids=lambda path: path.stem
)
def test_pages_name_what_is_there(path):
    for name in set(re.findall(r"`(dropsim(?:\.\w+)+)", path.read_text())):
        pkgutil.resolve_name(name)


def test_the_equations_name_functions():
    assert len(set(re.findall(r"`(dropsim\.[\w.]+)`", (ROOT / "docs" / "algorithm.md").read_text()))) > 30


def test_every_equation_of_the_paper_is_named_once_and_in_full():
    text = (ROOT / "docs" / "algorithm.md").read_text()
    assert sorted(map(int, re.findall(r"^    \((\d+)\)", text, re.MULTILINE))) == list(range(1, 17))


def test_every_scenario_is_shown_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in SCENARIOS:
        assert f"docs/images/{name}.webp" in text
        assert f"`{name}`" in text


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert sizes.pop("stumble.webp") < 3_000_000
    assert sum(sizes.values()) < 2_000_000


def test_every_command_is_in_the_documentation():
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in text] == []


def test_the_page_of_constants_is_that_of_the_sources():
    page = subprocess.run(
        [sys.executable, "-c", "import list_constants as c; print(c.page(), end='')"],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (ROOT / "docs" / "constants.md").read_text() == page, "run `python tools/list_constants.py`"
