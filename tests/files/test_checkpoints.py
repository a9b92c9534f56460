"""Other people's checkpoints: nothing in them is run, damage is seen, and every error is one sentence."""

import sys
import types
from collections import OrderedDict

import numpy as np
import pytest

from dropsim.files.checkpoints import read_checkpoint

torch = pytest.importorskip("torch")


def test_tensors_become_arrays(tmp_path):
    content = {
        "weights": OrderedDict(
            a=torch.arange(6.0).reshape(2, 3), half=torch.ones(2, dtype=torch.bfloat16), count=torch.tensor(7)
        ),
        "list": [torch.zeros(1, dtype=torch.float64), 3, "text", None],
        "loss": np.float64(1.5),
    }
    torch.save(content, tmp_path / "some.pt")
    found = read_checkpoint(str(tmp_path / "some.pt"))
    assert np.array_equal(found["weights"]["a"], np.arange(6, dtype=np.float32).reshape(2, 3))
    assert found["weights"]["half"].dtype == found["list"][0].dtype == np.float32
    assert found["weights"]["count"] == 7
    assert found["list"][1:] == [3, "text", None]


def test_torch_is_not_needed(tmp_path, monkeypatch):
    torch.save({"a": torch.arange(6.0).reshape(2, 3).T}, tmp_path / "some.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert np.array_equal(read_checkpoint(tmp_path / "some.pt")["a"], [[0, 3], [1, 4], [2, 5]])
    with pytest.raises(ValueError, match=r"PyTorch 1\.6 or later"):
        read_checkpoint(tmp_path / "old.pt")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_flipped_bit_is_damage(tmp_path, share):
    path = tmp_path / "some.pt"
    torch.save({"weights": torch.arange(10_000.0)}, path)
    content = bytearray(path.read_bytes())
    content[int(share * 40_000) + 1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("what", ["a piece is missing", "on another disk"])
def test_a_damaged_table_of_contents_is_a_sentence(tmp_path, what):
    # Python's zipfile fails in other ways than BadZipFile, and also where it only asks whether a file is an archive.
    path = tmp_path / "some.pt"
    torch.save({"weights": torch.ones(2)}, path)
    data = path.read_bytes()
    path.write_bytes(
        data[:64] + data[200:] if what == "a piece is missing" else data.replace(b"PK\x06\x07\0", b"PK\x06\x07\1")
    )
    with pytest.raises(ValueError, match="damaged") as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("what", ["sparse", "meta"])
def test_tensors_that_hold_no_plain_numbers_are_refused(tmp_path, what):
    made = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "meta": lambda: torch.zeros(3, device="meta"),
    }
    torch.save({"weights": made[what]()}, tmp_path / "some.pt")
    with pytest.raises(ValueError, match="which could run code"):
        read_checkpoint(tmp_path / "some.pt")


class Asks:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


@pytest.mark.parametrize(("function", "args"), [(eval, ("1 + 1",)), (getattr, ("text", "upper")), (exec, ("pass",))])
def test_what_would_run_code_is_refused_by_name(tmp_path, function, args):
    torch.save({"weights": Asks(function, *args)}, tmp_path / "some.pt")
    with pytest.raises(ValueError, match=rf"asks for '__builtin__.{function.__name__}', which could run code") as error:
        read_checkpoint(tmp_path / "some.pt")
    assert "\n" not in str(error.value)


def test_extras_of_training_tools_are_read_past(tmp_path):
    # Lightning keeps options in a dict class of its own; the class need not be installed.
    with pytest.MonkeyPatch.context() as patch:
        for name in ("pytorch_lightning", "pytorch_lightning.utilities", "pytorch_lightning.utilities.parsing"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        kind = type("AttributeDict", (dict,), {"__module__": name})
        patch.setattr(sys.modules[name], "AttributeDict", kind, raising=False)
        torch.save(
            {"weights": torch.ones(2), "hyper_parameters": kind(rate=0.1, name="V02_05")}, tmp_path / "some.ckpt"
        )
    assert np.array_equal(read_checkpoint(tmp_path / "some.ckpt")["weights"], [1, 1])
