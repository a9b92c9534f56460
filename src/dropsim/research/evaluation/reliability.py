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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
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
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, Watch, check_seed, run_chunks
from dropsim.research.evaluation.random_scenes import faults_of, measure_scenes
from dropsim.research.evaluation.report import Report, Table
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


SCENE_SECONDS, MOST_PEOPLE = 3.0, 4
"""Length of a random scene [s], and the largest number of people in one."""
BATCH = 25
"""Pushes or scenes of a chunk."""
MUTANT_SECONDS, MUTANT_MEMORY = 10.0, 1_000_000_000
"""Processor time [s] and memory [bytes] within which a damaged file is read or refused."""


@dataclass(frozen=True)
class ReliabilityOptions:
    """Numbers of trials."""

    pushes: int = 10_000
    scenes: int = 3_000
    mutants: int = 5_000
    """Damaged files of each kind."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.pushes, self.scenes, self.mutants) < 0:
            raise ValueError("the numbers of pushes, scenes and mutants are 0 or more")
        check_seed(self.seed)


@dataclass(frozen=True)
class Counted:
    """Outcomes of one kind of trial."""

    name: str
    tried: int
    failures: int
    """Outcomes that should not be."""
    details: Mapping[str, int | float] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    """Some of the failures."""


def failures_of(laws: Arrays) -> list[str]:
    """Name the random scenes that fail, so that `random_scenes.possible_scene` makes each of them again."""
    faults, failures = faults_of(laws), list[str]()
    for i, (seed, people) in enumerate(zip(laws["seed"], laws["people"], strict=True)):
        names = [name for name, flags in faults.items() if flags[i]]
        failures += [f"scene {seed} of {people}: {', '.join(names)}"] if names else []
    return failures


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


def fuzz(name: str, reader: Reader, count: int, seed: int = 0) -> Counted:
    """Read damaged files of a kind; count those that are neither read nor refused in a line."""
    examples, read, longest = list[str](), 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{reader.ending}"
        whole = reader.whole(Path(folder))
        reader.read(_written(path, whole))  # warm, and the file is right
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for i in range(count):
            _written(path, mutant(whole, np.random.default_rng((seed, i))))
            began = time.process_time()
            try:
                with _bounded(MUTANT_SECONDS):
                    reader.read(path)
                read += 1
            except ValueError as error:
                if "\n" in str(error).strip() or str(path) not in str(error):
                    examples.append(f"{name} {i}: the sentence is {str(error)!r}")
            except Exception as error:
                examples.append(f"{name} {i}: {type(error).__name__}: {error}")
            longest = max(longest, time.process_time() - began)
            used = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
            if used > MUTANT_MEMORY:
                examples.append(f"{name} {i}: took {used / 1e9:.1f} GB")
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    details = {"read": read, "longest [s]": round(longest, 3)}
    return Counted(f"files: {name}", count, len(examples), details, tuple(examples[:5]))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def evaluate_reliability(
    body: Body, options: ReliabilityOptions, folder: Path, *, workers: int = 1, watch: Watch = None
) -> list[Counted]:
    """Try everything."""
    chunks = list[Chunk]()
    for name, count in (("pushes", options.pushes), ("scenes", options.scenes)):
        seeds = [1_000_000 * options.seed + i for i in range(count)]
        for i in range(0, count, BATCH):
            people = 0 if name == "pushes" else 1 + i // BATCH % MOST_PEOPLE
            kind = {"num_people": people, "seconds": SCENE_SECONDS}
            chunks.append(Chunk(name, measure_scenes, body, tuple(seeds[i : i + BATCH]), kind))
    counted = list[Counted]()
    for name, laws in run_chunks(chunks, folder, workers=workers, watch=watch).items():
        counts = {fault: int(flags.sum()) for fault, flags in faults_of(laws).items()}
        counted.append(Counted(name, len(laws["seed"]), sum(counts.values()), counts, tuple(failures_of(laws))))
    readers = usable_readers() if options.mutants else {}
    return counted + [fuzz(name, reader, options.mutants, options.seed) for name, reader in readers.items()]


def report_of(counted: Sequence[Counted]) -> Report:
    """Lay the counts out."""
    rows = [["what", "tried", "failures", "of these and others"]]
    for one in counted:
        details = ", ".join(f"{value:g} {key}" for key, value in one.details.items())
        rows.append([one.name, str(one.tried), str(one.failures), details])
    tables = {"reliability": Table("Random pushes, random scenes and damaged files", rows)}
    examples = [[example] for one in counted for example in one.examples]
    if examples:
        tables["failures"] = Table("Failures", [["failure"], *examples])
    numbers = {"counted": [asdict(one) for one in counted]}
    return Report("reliability", "Does it hold?", tables, numbers, caption="All failures should be zero")
