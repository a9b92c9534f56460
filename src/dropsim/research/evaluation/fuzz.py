"""Every reader of files, a small file that it reads, and ways to damage one."""

import importlib.resources
import importlib.util
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.body.smpl import read_rest_joints
from dropsim.export.files import write
from dropsim.files.checkpoints import read_checkpoint
from dropsim.motion.reading import read_motion
from dropsim.motion.retarget import read_rig_map
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.bank import Bank
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PoseNetwork, PosePrior, PoseShape
from dropsim.research.synthesis.distribution import distribution
from dropsim.scene.files import read_scene
from dropsim.scene.files.writing import scene_text
from dropsim.scene.mesh_files import read_mesh
from dropsim.scene.scenarios import scenario

WORDS = (
    *(b"", b"0", b"-1", b"1e400", b"nan", b"9" * 30, b"\0", b"\xff" * 4, b"\n", b'"', b"{", b"}", b"[", b"]", b"#"),
    *(b",", b"=", b"null", b"../../x", b"\x80\x04", struct.pack("<I", 0xFFFFFFFF), struct.pack("<I", 0x7FFFFFFF)),
    *(struct.pack("<f", float("nan")), struct.pack("<d", float("inf")), struct.pack("<Q", 1 << 40)),
)
"""Bytes that damage leaves in a file."""


CORNERS = "".join(f"v {x} {y} {z}\n" for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1)))
FACES = "f 1 4 3 2\nf 5 6 7 8\nf 1 2 6 5\nf 2 3 7 6\nf 3 4 8 7\nf 4 1 5 8\n"
BOX = f"# a box\n{CORNERS}{FACES}"
"""Mesh of a box as an OBJ file."""


@dataclass(frozen=True)
class Reader:
    """A kind of file."""

    ending: str
    read: Callable[[Path], object]
    whole: Callable[[Path], bytes]
    """Function that makes an undamaged one in a folder."""


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file in a few places: bits, words, pieces that are cut out, doubled or moved, or its end cut off."""
    for _ in range(int(rng.integers(1, 6))):
        if not data:
            return data
        at, size, kind = int(rng.integers(len(data))), int(rng.integers(1, 64)), int(rng.integers(6))
        if kind == 0:
            data = data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
        elif kind == 1:
            word = WORDS[int(rng.integers(len(WORDS)))]
            data = data[:at] + word + data[at + len(word) :]
        elif kind == 2:
            data = data[:at] + WORDS[int(rng.integers(len(WORDS)))] + data[at:]
        elif kind == 3:
            data = data[:at] + data[at + size :]
        elif kind == 4:
            data = data[: at + size] + data[at:]
        elif rng.random() < 0.3:
            data = data[:at]
    return data


def _exported(name: str) -> Callable[[Path], bytes]:
    def whole(folder: Path) -> bytes:
        write(stepping_clip(0.5), folder / name)
        return (folder / name).read_bytes()

    return whole


def _asset(*path: str) -> Callable[[Path], bytes]:
    return lambda folder: importlib.resources.files("dropsim").joinpath("assets", *path).read_bytes()


def _bank(folder: Path) -> bytes:
    path = folder / "small.bank"
    MotionField.shipped().bank.picked([0]).write(path)
    return path.read_bytes()


def _pose(folder: Path) -> bytes:
    path = folder / "pose.safetensors"
    PosePrior(PoseNetwork.random(PoseShape(encoder=(8,), decoder=(8,), radius=(8,)))).save(path)
    return path.read_bytes()


def _cvae(folder: Path) -> bytes:
    path, shape = folder / "cvae.safetensors", CVAEShape(latent=4, decoder=(8,), prior=(8,), groups=4)
    CVAEPrior(CVAENetwork.random(shape), Skeleton.adult()).save(path)
    return path.read_bytes()


def _checkpoint(folder: Path) -> bytes:
    import torch

    torch.save({"model": {"decoder.net.0.weight": torch.eye(3)}, "epoch": 3}, folder / "whole.pth")
    return (folder / "whole.pth").read_bytes()


def _body() -> dict[str, np.ndarray]:
    """Return what dropsim reads of an SMPL body, whose vertices are its joints."""
    rest = Skeleton.adult().rest
    return {"v_template": rest, "J_regressor": np.eye(len(rest))}


def _smpl(folder: Path) -> bytes:
    np.savez(folder / "smpl.npz", allow_pickle=False, **_body())
    return (folder / "smpl.npz").read_bytes()


READERS: Mapping[str, Reader] = {
    "bvh": Reader(".bvh", lambda path: read_motion(path, None), _exported("whole.bvh")),
    "amass": Reader(".npz", lambda path: read_motion(path, Skeleton.adult()), _exported("whole.npz")),
    "glb": Reader(".glb", lambda path: read_motion(path, None), _exported("whole.glb")),
    "scene": Reader(".toml", read_scene, lambda folder: scene_text(scenario("boxes"), folder).encode()),
    "rig map": Reader(".toml", read_rig_map, _asset("rigs", "mixamo.toml")),
    "mesh obj": Reader(".obj", read_mesh, lambda folder: BOX.encode()),
    "mesh glb": Reader(".glb", read_mesh, _exported("whole.glb")),
    # Not open(), which would keep every mutant that can be read in the cache folder.
    "bank": Reader(".bank", Bank._unpacked, _bank),
    "pose weights": Reader(".safetensors", PosePrior.load, _pose),
    "cvae weights": Reader(".safetensors", CVAEPrior.load, _cvae),
    "smpl": Reader(".npz", read_rest_joints, _smpl),
    "smpl pickle": Reader(".pkl", read_rest_joints, lambda folder: pickle.dumps(_body(), protocol=2)),
    "distribution": Reader(".toml", distribution, _asset("synthesis", "objects.toml")),
    "checkpoint": Reader(".pth", read_checkpoint, _checkpoint),
}
"""By what they read."""


def usable_readers() -> dict[str, Reader]:
    """Return the readers whose libraries are installed: PyTorch's checkpoints are read by torch."""
    usable = dict(READERS)
    if importlib.util.find_spec("torch") is None:
        del usable["checkpoint"]
    return usable
