"""Small files that ask for much: each is read or refused in a sentence within 10 s and 1 GB, as docs/command-line.md says."""

import contextlib
import io
import json
import multiprocessing
import pickle
import resource
import signal
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import pytest

from dropsim.body.skeleton import Skeleton
from dropsim.body.smpl import read_rest_joints
from dropsim.files.checkpoints import read_checkpoint
from dropsim.motion.reading import read_motion
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.reliability import fuzz
from dropsim.scene.mesh_files import read_mesh

SECONDS, MEMORY = 10, 1_000_000_000


def attempt(read: Callable[[Path], object], paths: list[Path], queue: Any) -> None:
    """Read files with a bounded address space and processor time, and tell how it went."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    for path in paths:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            read(path)
            queue.put("read")
        except ValueError as error:
            queue.put(f"refused: {error}")
        except BaseException as error:
            queue.put(f"{type(error).__name__}: {error}")


def outcomes(read: Callable[[Path], object], paths: list[Path]) -> list[str]:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=attempt, args=(read, paths, queue))
    process.start()
    told = list[str]()
    while len(told) < len(paths) and (process.is_alive() or not queue.empty()):
        with contextlib.suppress(Empty):
            told.append(queue.get(timeout=0.1))
    process.join()
    return told + ["took too long, or died"] * (len(paths) - len(told))


def glb(document: Any, blob: bytes = b"") -> bytes:
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(blob), b"BIN\0") + blob
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


TRIANGLE = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0)], dtype="<f4").tobytes()


def scene(nodes: list[Any] | None = None, *, blob: bytes = TRIANGLE, uses: int = 1, **changes: Any) -> bytes:
    """A mesh of one triangle, with changes to its accessor and view."""
    view = {"buffer": 0, "byteLength": len(blob)} | changes.pop("view", {})
    accessor = {"bufferView": 0, "componentType": 5126, "count": len(blob) // 12, "type": "VEC3"} | changes
    document = {"asset": {"version": "2.0"}, "buffers": [{"byteLength": len(blob)}], "bufferViews": [view]}
    document |= {"accessors": [accessor], "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}] * uses}]}
    return glb(document | {"nodes": nodes or [{"mesh": 0}]}, blob)


HUGE = 10**40
MESHES = {
    "shared": scene([*({"children": [i + 1, i + 1]} for i in range(60)), {"mesh": 0}]),
    "two parents": scene([*({"children": [i + 1, i + 2]} for i in range(60)), {}, {"mesh": 0}]),
    "a ring": scene([{"mesh": 0}, {"children": [2]}, {"children": [1]}]),
    "deep": scene([*({"children": [i + 1]} for i in range(50_000)), {"mesh": 0}]),
    "many nodes": scene([{"children": list(range(1, 20_000))}, *[{"mesh": 0}] * 19_999]),
    "empty nodes": glb({"nodes": [{}] * 3_000_000}),
    "points again and again": scene(blob=TRIANGLE * 100_000, uses=2000),
    "matrix of text": scene([{"mesh": 0, "matrix": "x" * 16}]),
    "scale of lists": scene([{"mesh": 0, "scale": [[1], [2], 3]}]),
    "rotation of nothing": scene([{"mesh": 0, "rotation": [None] * 4}]),
    "far": scene([{"mesh": 0, "translation": [HUGE, 0, 0]}]),
}
ODD: tuple[Any, ...] = (None, True, -1, 1.5, HUGE, "x", [], {}, [[]], [{}])
ODD_MESHES = {f"children {i}": scene([{"children": odd}, {"mesh": 0}]) for i, odd in enumerate(ODD)}
ODD_MESHES |= {f"child {i}": scene([{"children": [odd]}, {"mesh": 0}]) for i, odd in enumerate(ODD)}
ODD_MESHES |= {f"mesh {i}": scene([{"mesh": odd}]) for i, odd in enumerate(ODD)}
for _key in ("bufferView", "componentType", "count", "type", "byteOffset"):
    ODD_MESHES |= {f"{_key} {i}": scene(**{_key: odd}) for i, odd in enumerate(ODD)}
for _key in ("buffer", "byteOffset", "byteStride"):
    ODD_MESHES |= {f"view {_key} {i}": scene(view={_key: odd}) for i, odd in enumerate(ODD)}
for _key in ("nodes", "meshes", "accessors", "bufferViews"):
    ODD_MESHES |= {f"{_key} {i}": glb({"nodes": [{"mesh": 0}], "meshes": [], _key: odd}) for i, odd in enumerate(ODD)}


def obj(*lines: str) -> bytes:
    return "\n".join(("v 0 0 0", "v 1 0 0", "v 0 1 0", *lines)).encode()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def still(frames: int, dtype: str = "f8") -> bytes:
    """A recording in which nobody moves, which is small as a file."""
    zeros = np.zeros((frames, 156), dtype=dtype)
    return npz(poses=zeros, trans=zeros[:, :3], betas=np.zeros(16), mocap_framerate=np.array(120.0))


def checkpoint(content: bytes, storage: bytes = bytes(64)) -> bytes:
    """A PyTorch archive around a pickle, with one storage."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (("data.pkl", content), ("version", b"3\n"), ("data/0", storage)):
            archive.writestr(f"archive/{name}", data)
    return file.getvalue()


def tensor(
    size: bytes, stride: bytes, *, offset: bytes = b"K\0", kind: bytes = b"FloatStorage", count: int = 16
) -> bytes:
    """Opcodes that make a tensor of the first storage."""
    storage = b"((X\x07\0\0\0storagectorch\n" + kind + b"\nX\x01\0\0\0" + b"0X\x03\0\0\0cpuK" + bytes([count]) + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + offset + size + stride + b"\x89}tR"


def weights(*tensors: bytes) -> bytes:
    pairs = b"".join(b"X\x04\0\0\0" + f"{i:04d}".encode() + made for i, made in enumerate(tensors))
    return checkpoint(b"\x80\x02}(" + pairs + b"u.")


def ints(*numbers: int) -> bytes:
    return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in numbers) + b"t"


BILLION = 1_000_000_000
DOUBLED = b"]q\0" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))
CHECKPOINTS = {
    "sizes of a billion": weights(tensor(ints(BILLION), ints(0))),
    "overlapping": weights(tensor(ints(16, BILLION), ints(1, 0), kind=b"HalfStorage", count=32)),
    "beyond the storage": weights(tensor(ints(10**6), ints(1))),
    "negative sizes": weights(tensor(ints(-4, -4), ints(1, 1))),
    "negative strides": weights(tensor(ints(4), ints(-1))),
    "negative offset": weights(tensor(ints(4), ints(1), offset=b"\x8a\x08" + struct.pack("<q", -8))),
    "huge": weights(tensor(ints(2**62, 2**62, 2**62), ints(0, 0, 0))),
    "sizes of text": weights(tensor(b"X\x01\0\0\0x", ints(1))),
    "odd storage": weights(tensor(ints(4), ints(1), kind=b"QUInt8Storage")),
    "doubled lists": checkpoint(b"\x80\x02" + DOUBLED + b"0h<."),
    "many small ones": checkpoint(b"\x80\x02(" + b"}" * 10_000_000 + b"l."),
    "deep": checkpoint(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "bomb": checkpoint(b"\x80\x02}X\x01\0\0\0aC" + bytes(16) + b"s.", b""),
}
BODY = {"v_template": np.zeros((4, 3)), "J_regressor": np.zeros((22, 4))}


def bvh(frames: int, joints: int) -> bytes:
    """A rig of which only one joint turns about one axis."""
    rig = "JOINT a {\nOFFSET 0 1 0\nCHANNELS 0\n" * joints + "}\n" * joints
    head = f"HIERARCHY\nROOT r\n{{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\n{rig}}}\nMOTION\n"
    return f"{head}Frames: {frames}\nFrame Time: 0.01\n".encode() + b"0\n" * frames


def character(nodes: list[Any], seconds: float = 1.0) -> bytes:
    """A skin of all nodes, of which one turns, with three keys at no even rate."""
    blob = np.array([0, 0.1, seconds, *(0, 0, 0, 1) * 3], dtype="<f4").tobytes()
    views = [{"buffer": 0, "byteLength": 12}, {"buffer": 0, "byteOffset": 12, "byteLength": 48}]
    accessors = [
        {"bufferView": i, "componentType": 5126, "count": 3, "type": kind} for i, kind in ((0, "SCALAR"), (1, "VEC4"))
    ]
    channel = {"sampler": 0, "target": {"node": 0, "path": "rotation"}}
    animation = {"channels": [channel], "samplers": [{"input": 0, "output": 1}]}
    document = {"nodes": nodes, "skins": [{"joints": list(range(len(nodes)))}], "animations": [animation]}
    return glb(document | {"accessors": accessors, "bufferViews": views, "buffers": [{"byteLength": len(blob)}]}, blob)


CHARACTERS = {
    "shared": character([*({"children": [i + 1, i + 1]} for i in range(60)), {}]),
    "ring": character([{"children": [1]}, {"children": [0]}]),
    "deep": character([*({"children": [i + 1]} for i in range(19_000)), {}]),
    "long": character([*({"children": [i + 1]} for i in range(1900)), {}], 3500.0),
    "names": character([{"name": "a", "children": list(range(1, 1900))}, *[{"name": "a"}] * 1899]),
}
FILES: dict[str, tuple[Callable[[Path], object], str, dict[str, bytes]]] = {
    "mesh": (read_mesh, ".glb", MESHES),
    "obj": (
        read_mesh,
        ".obj",
        {"corners": obj("f" + " 1" * 5_000_000), "vertices": obj(*["v 1 1 1"] * 1_600_000), "text": obj("f 1/ 2 x")},
    ),
    "amass": (
        lambda path: read_motion(path, Skeleton.adult()),
        ".npz",
        {"still": still(60_000), "bytes": still(200_000, "i1"), "flags": still(200_000, "?")},
    ),
    "smpl": (
        read_rest_joints,
        ".npz",
        {"wide": npz(v_template=np.zeros((10**7, 3), "i1"), J_regressor=np.zeros((22, 10**7), "i1"))},
    ),
    "smpl pickle": (
        read_rest_joints,
        ".pkl",
        {
            "many small ones": b"\x80\x02(" + b"}" * 10_000_000 + b"l.",
            "many keys": b"\x80\x02}(" + b"K\1]" * 3_000_000 + b"u.",
            "memo": b"\x80\x02(" + b"]\x94" * 5_000_000 + b"l.",
            "text": b"(" + b"I1\n" * 3_000_000 + b"l.",
            "names": b"(" + b"cnumpy\nndarray\n" * 600_000 + b"l.",
            "deep": pickle.dumps(BODY, 2)[:-1] + b"]" * 10**5 + b"a" * 99_999 + b".",
        },
    ),
    "bvh": (lambda path: read_motion(path, None), ".bvh", {"few channels": bvh(10_000, 1900), "deep": bvh(1, 1900)}),
    "character": (lambda path: read_motion(path, None), ".glb", CHARACTERS),
    "checkpoint": (read_checkpoint, ".pth", CHECKPOINTS),
}
CASES = [(kind, [name]) for kind, (_, _, files) in FILES.items() for name in files]
FILES["mesh"][2].update(ODD_MESHES)
CASES.append(("mesh", list(ODD_MESHES)))


@pytest.mark.parametrize(("kind", "names"), CASES, ids=[f"{kind} {names[0]}" for kind, names in CASES])
def test_files_that_ask_for_much_are_read_or_refused_soon(kind: str, names: list[str], tmp_path: Path):
    read, ending, files = FILES[kind]
    paths = [tmp_path / f"{name}{ending}" for name in names]
    for path, name in zip(paths, names, strict=True):
        path.write_bytes(files[name])
    told = outcomes(read, paths)
    assert not [
        (name, result[:200])
        for name, path, result in zip(names, paths, told, strict=True)
        if "\n" in result or not (result == "read" or result.startswith(f"refused: {path}"))
    ]


@pytest.mark.parametrize("name", ["bvh", "amass", "glb", "rig map", "smpl", "smpl pickle"])
def test_mutants_of_recordings_and_bodies_are_read_or_refused(name: str):
    assert not fuzz(Body(), range(100), reader=name)["error"].tolist()
