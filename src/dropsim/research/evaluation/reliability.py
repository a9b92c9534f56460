"""Does it hold? Random pushes, random scenes, and damaged files for every reader.

A simulation must go on with finite numbers, whole bones and nobody through the floor, whatever happens in it. A damaged
file must be read or refused with a ValueError of one line, within bounds of time and memory; anything else counts as a
failure.
"""

import importlib.resources
import importlib.util
import pickle
import resource
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.body.smpl import read_rest_joints
from dropsim.export.files import write
from dropsim.files.checkpoints import read_checkpoint
from dropsim.motion.reading import read_motion
from dropsim.motion.retarget import read_rig_map
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.bank import unpacked
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PoseNetwork, PosePrior, PoseShape
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, chunks_of
from dropsim.research.evaluation.random_scenes import faults_of, measure_scenes
from dropsim.research.evaluation.report import Protocol, Statistic, share
from dropsim.research.synthesis.distribution import distribution
from dropsim.scene.files import read_scene, scene_text
from dropsim.scene.mesh_files import read_mesh
from dropsim.scene.scenarios import scenario

WORDS = (
    *(b"", b"0", b"-1", b"1e400", b"nan", b"9" * 30, b"\0", b"\xff" * 4, b"\n", b'"', b"{", b"}", b"[", b"]", b"#"),
    *(b",", b"=", b"null", b"../../x", b"\x80\x04", struct.pack("<I", 0xFFFFFFFF), struct.pack("<I", 0x7FFFFFFF)),
    *(struct.pack("<f", float("nan")), struct.pack("<d", float("inf")), struct.pack("<Q", 1 << 40)),
)
"""Bytes that damage leaves in a file."""

BOX = """# a box
v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 0 0 1\nv 1 0 1\nv 1 1 1\nv 0 1 1
f 1 4 3 2\nf 5 6 7 8\nf 1 2 6 5\nf 2 3 7 6\nf 3 4 8 7\nf 4 1 5 8
"""
"""Mesh of a box as an OBJ file."""


class Reader(NamedTuple):
    """A kind of file."""

    ending: str
    read: Callable[[Path], object]
    write: Callable[[Path], object]
    """Function that writes an undamaged one."""


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file in a few places: bits, words, pieces that are cut out, doubled or moved, or its end cut off."""
    for _ in range(int(rng.integers(1, 6)) if data else 0):
        at, size, kind = int(rng.integers(len(data) or 1)), int(rng.integers(1, 64)), int(rng.integers(6))
        word, whole = WORDS[int(rng.integers(len(WORDS)))], data
        data = (
            whole[:at] + bytes(byte ^ (1 << size % 8) for byte in whole[at : at + 1]) + whole[at + 1 :],
            whole[:at] + word + whole[at + len(word) :],
            whole[:at] + word + whole[at:],
            whole[:at] + whole[at + size :],
            whole[: at + size] + whole[at:],
            whole[:at] if size < 20 else whole,
        )[kind]
    return data


def _motion(path: Path) -> None:
    write(stepping_clip(0.5), path)


def _asset(*name: str) -> Callable[[Path], object]:
    whole = importlib.resources.files("dropsim").joinpath("assets", *name)
    return lambda path: path.write_bytes(whole.read_bytes())


def _pose(path: Path) -> None:
    PosePrior(PoseNetwork.random(PoseShape(encoder=(8,), decoder=(8,), radius=(8,)))).save(path)


def _cvae(path: Path) -> None:
    network = CVAENetwork.random(CVAEShape(latent=4, decoder=(8,), prior=(8,), groups=4))
    CVAEPrior(network, Skeleton.adult()).save(path)


def _checkpoint(path: Path) -> None:
    import torch

    torch.save({"model": {"decoder.net.0.weight": torch.eye(3)}, "epoch": 3}, path)


def _body() -> dict[str, np.ndarray]:
    """Return what dropsim reads of an SMPL body, whose vertices are its joints."""
    rest = Skeleton.adult().rest
    return {"v_template": rest, "J_regressor": np.eye(len(rest))}


READERS: Mapping[str, Reader] = {
    "bvh": Reader(".bvh", lambda path: read_motion(path, None), _motion),
    "amass": Reader(".npz", lambda path: read_motion(path, Skeleton.adult()), _motion),
    "glb": Reader(".glb", lambda path: read_motion(path, None), _motion),
    "scene": Reader(".toml", read_scene, lambda path: path.write_text(scene_text(scenario("boxes"), path.parent))),
    "rig map": Reader(".toml", read_rig_map, _asset("rigs", "mixamo.toml")),
    "mesh obj": Reader(".obj", read_mesh, lambda path: path.write_text(BOX)),
    "mesh glb": Reader(".glb", read_mesh, _motion),
    # Not open(), which would keep every mutant that can be read in the cache folder.
    "bank": Reader(".bank", unpacked, lambda path: MotionField.shipped().bank.picked([0]).write(path)),
    "pose weights": Reader(".safetensors", PosePrior.load, _pose),
    "cvae weights": Reader(".safetensors", CVAEPrior.load, _cvae),
    "smpl": Reader(".npz", read_rest_joints, lambda path: np.savez(path, allow_pickle=False, **_body())),
    "smpl pickle": Reader(".pkl", read_rest_joints, lambda path: path.write_bytes(pickle.dumps(_body(), protocol=2))),
    "distribution": Reader(".toml", distribution, _asset("synthesis", "objects.toml")),
    "checkpoint": Reader(".pth", read_checkpoint, _checkpoint),
}
"""Readers by the kind of file."""


SCENES = {"pushes": "shoves", "scenes": "chaos"}
"""Distributions from which scenes are drawn, by the kind of trial."""
BATCH = 100
"""Scenes of a chunk."""
MUTANT_SECONDS, MUTANT_MEMORY = 10.0, 1_000_000_000
"""Processor time [s] and memory [bytes] within which a damaged file is read or refused."""
NAMED = 5
"""Failures that are named."""


@dataclass(frozen=True)
class ReliabilityProtocol(Protocol):
    """Numbers of trials."""

    name: ClassVar = "reliability"
    title: ClassVar = "Random pushes, random scenes and damaged files"
    few: ClassVar = {"pushes": 50, "scenes": 16, "mutants": 50}
    may_be_0: ClassVar = ("pushes", "scenes", "mutants", "seed")

    pushes: int = 10_000
    scenes: int = 3_000
    mutants: int = 5_000
    """Damaged files of each kind."""
    seed: int = 0

    @property
    def caption(self) -> str:
        return "All failures should be zero"

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work; what is drawn again by the same number is the same."""
        chunks, first = list[Chunk](), 1_000_000 * self.seed
        for kind, scenes in SCENES.items():
            numbers = range(first, first + getattr(self, kind))
            chunks += chunks_of(kind, measure_scenes, body, numbers, BATCH, source=scenes)
        for name in READERS:
            if name != "checkpoint" or importlib.util.find_spec("torch"):
                numbers = range(first, first + self.mutants)
                chunks += chunks_of(f"files: {name}", fuzz, body, numbers, max(1, self.mutants), reader=name)
        return chunks

    def statistics(self, tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
        """Yield the share of failures of each kind of trial, with the numbers of some."""
        for name, table in tables.items():
            faults = {"failed": table["failed"]} if "failed" in table else faults_of(table)
            failures = [
                f"{table['number'][i]} {fault}" for fault, flags in faults.items() for i in np.flatnonzero(flags)
            ]
            failed = np.any(list(faults.values()), axis=0)
            yield share(f"{name}: failures", failed, "0", ", ".join([*failures[:NAMED], *table.get("error", ())]))


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after some processor time."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        raise TimeoutError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def fuzz(body: Body, numbers: Sequence[int], *, reader: str) -> Arrays:
    """Read damaged files of a kind; those fail that are neither read nor refused in a line. `error` has some errors."""
    del body
    kind, failed, errors = READERS[reader], np.zeros(len(numbers), bool), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{kind.ending}"
        kind.write(path)
        whole = path.read_bytes()
        kind.read(path)  # warm, and the file is right
        memory = _peak_memory()
        for i, number in enumerate(numbers):
            path.write_bytes(mutant(whole, np.random.default_rng(number)))
            error = None
            try:
                with _bounded(MUTANT_SECONDS):
                    kind.read(path)
            except Exception as fault:
                if not isinstance(fault, ValueError) or "\n" in str(fault).strip() or str(path) not in str(fault):
                    error = repr(fault)
            before, memory = memory, _peak_memory()
            if memory - before > MUTANT_MEMORY:
                error = f"took {(memory - before) / 1e9:.1f} GB"
            failed[i] = error is not None
            errors += [error] if error else []
    return {"number": np.array(numbers), "failed": failed, "error": np.array(errors[:NAMED], dtype=np.str_)}


def _peak_memory() -> int:
    """Return the largest memory of this process so far [bytes]."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
