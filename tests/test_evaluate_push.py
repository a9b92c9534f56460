"""The push protocol in small: its counting on hand-made cases, and its direction on real runs."""

import json
import math

import pytest
import torch

from dropsim import metrics
from dropsim.cli import main
from dropsim.evaluation.push import PushProtocol, _got_up, _settled, evaluate_push, table
from dropsim.priors.cvae import CVAEPrior
from dropsim.simulator import Simulator
from dropsim.synthetic import stepping_clip


def flags(*rows: str) -> torch.Tensor:
    return torch.tensor([[c == "x" for c in row] for row in rows])


def test_who_lay_and_stood_again_got_up():
    upright = flags("xxxxx", "xx..x", "xx...", "x.xxx")
    lying = flags(".....", "..x..", "..xxx", ".....")
    # The last one only crouched: it never lay, so it did not get up either.
    assert _got_up(upright, lying).tolist() == [False, True, False, False]


def test_recovery_takes_until_one_stays_upright():
    assert _settled(flags("xxxxx", "..xxx", ".x.xx")).tolist() == [0.0, 2.0, 3.0]


def test_the_pelvis_spins_as_it_is_turned():
    clip = stepping_clip(1.0)
    # A constant turn of 0.1 rad a frame about the vertical is 3 rad/s at 30 Hz.
    angle = 0.1 * torch.arange(len(clip), dtype=torch.float64)
    turn = torch.zeros(len(clip), 3, 3, dtype=torch.float64)
    turn[:, 0, 0] = turn[:, 1, 1] = angle.cos()
    turn[:, 1, 0], turn[:, 0, 1], turn[:, 2, 2] = angle.sin(), -angle.sin(), 1.0
    q = clip.q.clone()
    q[:, 0] = turn @ clip.q[:1, 0]
    spin = metrics.pelvis_spin(type(clip)(clip.skeleton, clip.fps, clip.root, q, clip.joints))
    torch.testing.assert_close(spin, torch.full((len(clip) - 1,), 3.0, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def cells():
    protocol = PushProtocol(newtons=(40.0, 900.0), directions=("left",), starts=("stand",), seeds=3, push_at=0.2, get_up_seconds=3.0)
    return evaluate_push(Simulator(CVAEPrior.shipped(), num_samples=8), protocol)


def test_a_hard_push_moves_more_than_a_soft_one(cells):
    soft, hard = cells
    assert soft.people == hard.people == 3
    assert soft.diverged == hard.diverged == 0
    assert hard.gave_way == 1.0
    assert hard.travel_m > 0.2 > soft.travel_m
    assert soft.fell <= hard.fell
    # Never through the floor, and bones keep their length.
    assert max(soft.deepest_mm, hard.deepest_mm) < 20
    assert max(soft.bone_error_percent, hard.bone_error_percent) < 1


def test_the_table_has_a_row_for_every_cell(cells):
    rows = table(cells).strip().split("\n")
    assert len(rows) == 4
    assert all(row.count("|") == rows[0].count("|") for row in rows)
    assert "nan" not in table(cells)


def test_the_command_writes_numbers(tmp_path, capsys):
    out = tmp_path / "push.json"
    args = ["evaluate", "push", "--seeds", "1", "--newtons", "100", "--samples", "2", "--json", str(out)]
    assert main(args) == 0
    numbers = json.loads(out.read_text())
    assert len(numbers) == 4
    assert all(0 <= cell["recovered"] <= 1 and math.isfinite(cell["travel_m"]) for cell in numbers)
    assert "gave way" in capsys.readouterr().out


def test_bad_input_is_a_sentence(capsys):
    assert main(["evaluate", "push", "--seeds", "0"]) == 2
    assert main(["evaluate", "push", "--newtons", "-5"]) == 2
    assert main(["evaluate", "push", "--part", "tail"]) == 2
    assert main(["evaluate", "prior"]) == 2
    assert "--data" in capsys.readouterr().err
