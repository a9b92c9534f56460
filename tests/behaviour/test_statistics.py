"""How people move: every statistic is in its band of bands.toml, which has the law and the target of each."""

import bands
import pytest

TABLE = bands.read()
# One worker measures, in two processes of its own.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("behaviour")]


@pytest.fixture(scope="module")
def statistics(tmp_path_factory):
    return bands.measure(tmp_path_factory.mktemp("behaviour"))


def test_the_table_has_a_row_for_every_statistic(statistics):
    assert list(statistics) == list(TABLE), "run `python tests/behaviour/bands.py`"


@pytest.mark.parametrize("name", TABLE)
def test_people_move_as_before(statistics, name):
    low, high = TABLE[name]["band"]
    one = statistics[name]
    assert low <= one.value <= high, f"{one.value:.4g} {one.unit}, not {low:g} to {high:g}: {one.law}"
