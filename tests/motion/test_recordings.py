"""Real recordings on our skeleton, where their archives lie next to the repository."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from dropsim.body.skeleton import Skeleton
from dropsim.motion import cmu
from dropsim.motion.bvh import read_bvh
from dropsim.motion.clips import read_clips
from dropsim.motion.contacts import on_floor, out_of_floor, sphere_heights
from dropsim.motion.motion import Motion
from dropsim.motion.reading import read_motion

DATA = Path(__file__).parents[3] / "shared" / "data"
ARCHIVE, MORE = DATA / "cmu-bvh-30hz.tar.xz", DATA / "more-bvh-30hz.tar.xz"
COUNT = 40
SKELETON = Skeleton.adult()
TOES = [10, 11]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ARCHIVE.exists(), reason=f"the recordings are not there: {ARCHIVE}"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first training clips, in the archive's order, unpacked; the rest of the archive is not touched."""
    folder, paths = tmp_path_factory.mktemp("recordings"), list[Path]()
    with tarfile.open(ARCHIVE, "r|xz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and "/train/" in member.name else None
            if content is not None:
                paths.append(folder / Path(member.name).name)
                paths[-1].write_bytes(content.read())
            if len(paths) == COUNT:
                break
    return paths


@pytest.fixture(scope="module")
def motions(files: list[Path]) -> dict[str, Motion]:
    """Every clip read and retargeted; one that does not read fails here, by its name."""
    return {path.stem: read_motion(path, SKELETON) for path in files}


def is_flat(name: str) -> bool:
    return not cmu.clip_table()[name].left_out.startswith("not flat")


def test_every_clip_reads_as_a_person(files: list[Path], motions: dict[str, Motion]):
    assert len(motions) == COUNT
    for path in files[::8]:
        take = read_bvh(path)
        motion = motions[path.stem]
        # 30 Hz as the header says, and without the artificial first frame.
        assert (motion.fps, len(motion)) == (30.0, len(take) - 1)
    flat = [motion for name, motion in motions.items() if is_flat(name)]
    assert len(flat) >= COUNT // 3
    toes_in_front = []
    for motion in flat:
        assert np.isfinite(motion.joints).all()
        # No mirror image: rotations are proper ones.
        np.testing.assert_allclose(np.linalg.det(motion.q[:, 0]), np.ones(len(motion)))
        x = motion.joints
        # People on flat ground mostly stand: head above pelvis above knees, in the median frame of every clip.
        assert np.median(x[:, 15, 2] - x[:, 0, 2]) > 0.35, motion.name
        assert np.median(x[:, 0, 2] - x[:, [4, 5], 2].mean(-1)) > 0.2, motion.name
        # And their knees are in front of the line from hip to ankle, their left on their left, their toes in front (but
        # dancers).
        front, left = motion.q[:, 0, :, 2], motion.q[:, 0, :, 0]
        for hip, knee, ankle, toe in ((1, 4, 7, 10), (2, 5, 8, 11)):
            assert ((x[:, knee] - (x[:, hip] + x[:, ankle]) / 2) * front).sum(-1).mean() > 0, motion.name
            toes_in_front.append(float(np.median(((x[:, toe] - x[:, ankle]) * front).sum(-1))) > 0.03)
        assert np.median(((x[:, 16] - x[:, 17]) * left).sum(-1)) > 0.2, motion.name
    assert sum(toes_in_front) >= 0.9 * len(toes_in_front)


def standing_height(motion: Motion) -> float | None:
    """Median height of the lower standing toe's sphere [m]; a toe stands where it moves slower than 0.15 m/s."""
    toes = motion.joints[:, TOES]
    slow = np.linalg.norm(toes[2:] - toes[:-2], axis=-1) * motion.fps / 2 < 0.15
    heights = np.where(slow, toes[1:-1, :, 2] - SKELETON.radii[TOES], np.inf).min(-1)
    return float(np.median(heights[np.isfinite(heights)])) if np.isfinite(heights).sum() >= 5 else None


def test_static_toes_are_on_the_floor(motions: dict[str, Motion]):
    heights = [standing_height(out_of_floor(on_floor(m))) for name, m in motions.items() if is_flat(name)]
    known = [h for h in heights if h is not None]
    assert len(known) > 0.8 * len(heights)
    assert sum(abs(h) < 0.01 for h in known) >= 0.9 * len(known)
    # As recorded they are anywhere between: otherwise nothing was aligned.
    raw = [standing_height(m) for name, m in motions.items() if is_flat(name)]
    assert sum(h is not None and abs(h) < 0.01 for h in raw) < 0.5 * len(raw)


# Name, rig, highest place of the pelvis [m] in the median frame and in the last one: people who lie, crouch, walk and
# run.
OTHERS = {
    "Male1_A9_LieDown": ("accad", 0.2, 0.2),
    "Male1_A8_CrouchToLie": ("accad", 0.45, 0.2),
    "Male2_A11_Crawl": ("accad", 0.4, 0.4),
    "Male2_B3_Walk": ("accad", 1.1, 1.1),
    "Angry_FW": ("100style", 1.1, 1.1),
}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not MORE.exists():
        pytest.skip(f"the recordings are not there: {MORE}")
    folder, paths = tmp_path_factory.mktemp("others"), dict[str, Path]()
    with tarfile.open(MORE, "r|xz") as archive:
        for member in archive:
            name = Path(member.name).stem
            content = archive.extractfile(member) if member.isfile() and name in OTHERS else None
            if content is not None:
                paths[name] = folder / f"{name}.bvh"
                paths[name].write_bytes(content.read())
    return paths


@pytest.mark.parametrize("name", OTHERS)
def test_other_peoples_rigs_read_as_people_on_the_floor(others: dict[str, Path], name: str):
    rig, middle, last = OTHERS[name]
    parts = [(clip, motion) for clip, motion in read_clips(others[name]) if motion is not None]
    assert sum(clip.frames for clip, _ in parts) > 0.8 * len(read_bvh(others[name]))
    for clip, motion in parts:
        assert clip.read_as == f"rig {rig}, y up (known layout)"
        assert -0.05 < sphere_heights(motion).min() < 0.03
        x = motion.joints
        assert middle - 0.3 < np.median(x[:, 0, 2]) < middle
        assert x[-1, 0, 2] < last
        # Their left is on their left, and their toes are in front of their ankles.
        front, left = motion.q[:, 0, :, 2], motion.q[:, 0, :, 0]
        assert np.median(((x[:, 16] - x[:, 17]) * left).sum(-1)) > 0.2
        if middle > 1:
            assert np.median(((x[:, 10] - x[:, 7]) * front).sum(-1)) > 0.03
            assert np.median(x[:, 15, 2] - x[:, 0, 2]) > 0.35
