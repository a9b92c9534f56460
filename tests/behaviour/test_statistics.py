"""How people move: every statistic is in its band of bands.toml, which has the law and the target of each."""

import fcntl
import os

import bands
import pytest

TABLE = bands.read()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def statistics(tmp_path_factory):
    """Measure once: another worker of this session waits, and reads what the first one simulated in two processes."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "behaviour"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return bands.measure(folder)


def test_the_table_has_a_row_for_every_statistic(statistics):
    assert list(statistics) == list(TABLE), "run `python tests/behaviour/bands.py`"


@pytest.mark.parametrize("name", TABLE)
def test_people_move_as_before(statistics, name):
    low, high = TABLE[name]["band"]
    one = statistics[name]
    assert low <= one.value <= high, f"{one.value:.4g} {one.unit}, not {low:g} to {high:g}: {one.law}"
