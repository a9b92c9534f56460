import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import roma
import torch
from PIL import Image
from torch import Tensor

from dropsim.motion import Motion
from dropsim.render import ORANGE, RED, TEAL, Camera, Plane, Sphere, contact_sheet, draw_frame, follow, video
from dropsim.skeleton import Skeleton, joint_index

BEHIND = Camera(azimuth=-90.0)
SIZE = (96, 96)


def walk(frames: int = 4, *, speed: float = 1.2, dtype: torch.dtype = torch.float64) -> Motion:
    """Someone who faces +y and swings straight legs while moving along +y."""
    skeleton = Skeleton.adult()
    time = torch.arange(frames, dtype=torch.float64) / 10
    q = torch.eye(3, dtype=torch.float64).expand(frames, 22, 3, 3).clone()
    q[:, 0] = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    swing = 0.4 * torch.sin(2 * math.pi * time)[:, None] * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    q[:, joint_index("left_hip")], q[:, joint_index("right_hip")] = roma.rotvec_to_rotmat(-swing), roma.rotvec_to_rotmat(swing)
    root = torch.stack((torch.zeros_like(time), speed * time, torch.full_like(time, skeleton.standing_height)), dim=-1)
    return Motion.from_rotations(skeleton.to(dtype), 10.0, root.to(dtype), q.to(dtype))


def pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, dtype=float) / 255


def columns_of(picture: Image.Image, color: tuple[float, float, float]) -> np.ndarray:
    """The columns of the pixels that have a colour's hue: shading scales the three channels alike, so directions are compared."""
    values = pixels(picture)
    cosine = values @ np.array(color) / np.linalg.norm(values, axis=-1) / np.linalg.norm(color)
    return np.nonzero(cosine > 0.995)[1]


def rows_of(picture: Image.Image, color: tuple[float, float, float]) -> np.ndarray:
    return columns_of(picture.transpose(Image.Transpose.TRANSPOSE), color)


def test_the_left_colour_is_on_the_left_from_behind_and_on_the_right_from_the_front() -> None:
    motion = walk()
    for azimuth, sign in ((-90.0, 1), (90.0, -1)):
        picture = draw_frame(motion, 0, camera=Camera(azimuth=azimuth), size=SIZE)
        left, right = columns_of(picture, TEAL), columns_of(picture, ORANGE)
        assert len(left) > 100
        assert len(right) > 100
        assert sign * (right.mean() - left.mean()) > 10


def test_a_frame_has_the_size_asked_for_and_shows_a_person_of_the_right_height() -> None:
    camera = Camera(target=(0.0, 0.0, 0.85), azimuth=-90.0, elevation=0.0, distance=100.0, field_of_view=1.0)
    picture = draw_frame(walk(), 0, camera=camera, size=(121, 160))
    assert picture.size == (121, 160)
    # A pinhole far away: a metre is width / (2 d tan(fov / 2)) pixels. Limbs reach from the shoulder's top, 0.818 of 1.70 m and a radius of
    # 0.058 m, down to the ankle, at 0.066 m where the shoe begins.
    metre = 121 / (2 * 100 * math.tan(math.radians(0.5)))
    rows = rows_of(picture, TEAL)
    assert rows.min() == pytest.approx(80 - (0.818 * 1.70 + 0.058 - 0.85) * metre, abs=3)
    assert rows.max() == pytest.approx(80 + (0.85 - 0.066) * metre, abs=4)


def test_the_person_moves_in_a_camera_that_stands_and_stays_in_one_that_follows() -> None:
    motion = walk(31)
    from_the_right = Camera(target=(0.0, 1.8, 0.9), azimuth=0.0, distance=10.0)
    still = [columns_of(draw_frame(motion, i, camera=from_the_right, size=SIZE), ORANGE).mean() for i in (0, 30)]
    # 3.6 m along +y, which is to the right from +x: 96 / (2 * 10 * tan 13.5) = 20 pixels a metre.
    assert still[1] - still[0] == pytest.approx(72, abs=5)
    cameras = follow(motion, camera=from_the_right)
    tracked = [columns_of(draw_frame(motion, i, camera=cameras[i], size=SIZE), ORANGE).mean() for i in (10, 20)]
    assert abs(tracked[1] - tracked[0]) < 2


def test_the_floor_moves_under_a_camera_that_follows() -> None:
    motion = walk(31)
    cameras = follow(motion, camera=BEHIND)
    corners = [pixels(draw_frame(motion, i, camera=cameras[i], size=SIZE))[-20:, :20] for i in (10, 12)]
    assert np.abs(corners[0] - corners[1]).max() > 0.05


def test_a_following_camera_is_smooth() -> None:
    motion = walk(21, speed=0.0)
    jump = motion.root + torch.tensor([1.0, 0.0, 0.0]) * (torch.arange(21) >= 10)[:, None]
    x = np.array([camera.target[0] for camera in follow(replace(motion, root=jump))])
    assert x[0] == pytest.approx(0.0, abs=1e-9)
    assert x[-1] == pytest.approx(1.0, abs=1e-9)
    assert np.diff(x).min() >= -1e-9
    assert np.diff(x).max() < 0.4


def test_forces_are_drawn_over_the_body_and_clipped() -> None:
    motion = walk()

    def arrow(newtons: float) -> np.ndarray:
        forces = torch.zeros(4, 22, 3, dtype=torch.float64)
        forces[:, joint_index("spine3")] = torch.tensor([0.0, 0.0, newtons])
        return rows_of(
            draw_frame(replace(motion, external_forces=forces), 0, camera=Camera(azimuth=90.0, distance=8.0), size=(200, 200)), RED
        )

    # 200 / (2 * 8 * tan 13.5) = 52 pixels a metre; from 200 N to 1000 N the tip rises 0.8 m.
    assert arrow(200.0).min() - arrow(1000.0).min() == pytest.approx(0.8 * 52, abs=5)
    assert arrow(1500.0).min() == arrow(9000.0).min()
    assert len(arrow(0.0)) == 0


def test_contact_forces_are_drawn() -> None:
    motion = walk()
    forces = torch.zeros(4, 22, 3, dtype=torch.float64)
    forces[:, joint_index("left_foot"), 2] = 700.0
    plain, drawn = (draw_frame(m, 0, camera=BEHIND, size=SIZE) for m in (motion, replace(motion, contact_forces=forces)))
    assert np.abs(pixels(plain) - pixels(drawn)).max() > 0.2


def ball(x: float, y: float, z: float) -> Sphere:
    return Sphere(torch.tensor([[x, y, z]]).expand(4, 3), 0.2, color=RED)


def test_a_sphere_is_a_disc_of_its_size_that_hides_what_is_behind_it() -> None:
    camera = Camera(target=(0.0, 0.0, 1.0), azimuth=-90.0, elevation=0.0, distance=100.0, field_of_view=1.0)
    # Area of a disc of 0.2 m at 96 / (2 * 100 * tan 0.5) = 55 pixels a metre, less the rim's antialiased pixels: a circumference.
    radius = 0.2 * 96 / (2 * 100 * math.tan(math.radians(0.5)))
    before = len(columns_of(draw_frame(walk(), 0, camera=camera, size=SIZE, spheres=[ball(0.0, -2.0, 1.0)]), RED))
    behind = len(columns_of(draw_frame(walk(), 0, camera=camera, size=SIZE, spheres=[ball(0.0, 2.0, 1.0)]), RED))
    assert before == pytest.approx(math.pi * radius**2, abs=2 * math.pi * radius)
    assert behind < 0.6 * before


def test_the_floor_hides_what_is_below_it_and_may_be_tilted() -> None:
    above, below = (draw_frame(walk(), 0, camera=BEHIND, size=SIZE, spheres=[ball(0.0, -1.0, z)]) for z in (0.3, -0.3))
    assert len(columns_of(above, RED)) > 100
    assert len(columns_of(below, RED)) == 0
    tilted = draw_frame(walk(), 0, camera=BEHIND, size=SIZE, floor=Plane((math.sin(0.2), 0.0, math.cos(0.2)), 0.0))
    assert np.abs(pixels(tilted) - pixels(draw_frame(walk(), 0, camera=BEHIND, size=SIZE))).max() > 0.1


def test_a_sphere_that_is_not_there_yet_is_not_drawn() -> None:
    motion = walk()
    absent = Sphere(torch.full((4, 3), math.nan), 0.2)
    pictures = [draw_frame(motion, 0, camera=BEHIND, size=SIZE, spheres=s) for s in ([absent], [])]
    assert pictures[0].tobytes() == pictures[1].tobytes()


def test_the_same_motion_gives_the_same_bytes_and_single_precision_the_same_picture() -> None:
    first, second, single = (draw_frame(m, 2, camera=BEHIND, size=SIZE) for m in (walk(), walk(), walk(dtype=torch.float32)))
    assert first.tobytes() == second.tobytes()
    # Single precision moves the joints by 1e-7 m; a pixel on an outline may flip one of its four samples.
    assert np.abs(pixels(first) - pixels(single)).mean() < 1e-3


@pytest.mark.parametrize("direction", [(0.0, 1.0, 0.0), (0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_a_limb_seen_along_its_axis_is_drawn(direction: tuple[float, float, float]) -> None:
    motion = walk()
    joints = motion.joints.clone()
    shoulder = joints[:, joint_index("left_shoulder")]
    for reach, name in ((0.3, "left_elbow"), (0.55, "left_wrist")):
        joints[:, joint_index(name)] = shoulder + reach * torch.tensor(direction, dtype=torch.float64)
    camera = Camera(target=tuple(shoulder[0].tolist()), azimuth=-90.0, elevation=0.0, field_of_view=5.0)
    # The picture is 0.44 m across and the upper arm 0.058 m in radius: a disc of 500 pixels, of which hand or shirt hide less than half.
    assert len(columns_of(draw_frame(replace(motion, joints=joints), 0, camera=camera, size=SIZE), TEAL)) > 250


def test_a_contact_sheet_has_a_row_for_each_motion(tmp_path: Path) -> None:
    contact_sheet([walk(), walk(2)], tmp_path / "sheet.png", frames=3, labels=["one", "two"], size=(60, 70))
    with Image.open(tmp_path / "sheet.png") as sheet:
        width, height = sheet.size
        assert width == 3 * 60
        assert height > 2 * 70
        cells = [sheet.crop((60 * i, 0, 60 * i + 60, height // 2)) for i in range(3)]
    assert all(len(columns_of(cell, TEAL)) > 20 for cell in cells)
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.png"]


def test_an_mp4_has_the_frames_and_rate_of_its_motion(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    told: list[tuple[int, int]] = []
    video(walk(), tmp_path / "walk.mp4", size=(64, 48), progress=lambda done, all_: told.append((done, all_)))
    with av.open(str(tmp_path / "walk.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (64, 48, 10)
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert sum(1 for _ in container.decode(stream)) == 4
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [file.name for file in tmp_path.iterdir()] == ["walk.mp4"]


def test_a_gif_plays_at_the_rate_asked_for_and_spheres_go_along(tmp_path: Path) -> None:
    path = torch.stack((torch.linspace(-1, 1, 4), torch.zeros(4), torch.full((4,), 0.5)), dim=-1)
    video(walk(), tmp_path / "walk.gif", size=(48, 48), fps=30.0, spheres=[Sphere(path, 0.2)])
    with Image.open(tmp_path / "walk.gif") as gif:
        assert gif.n_frames == 10
        durations = []
        for i in range(10):
            gif.seek(i)
            durations.append(gif.info["duration"])
    # Ten frames at 30 frames a second last a third of a second, in whole hundredths.
    assert sum(durations) == 330
    assert set(durations) == {30, 40}


@pytest.mark.parametrize("name", ["walk.avi", "walk", "walk.png"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"ends in \.mp4 or \.gif"):
        video(walk(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_without_pyav_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ValueError, match=r"pip install dropsim\[video\]"):
        video(walk(), tmp_path / "walk.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["walk.mp4", "walk.gif"])
def test_an_error_half_way_leaves_the_old_file_as_it_was(tmp_path: Path, name: str) -> None:
    if name.endswith("mp4"):
        pytest.importorskip("av")

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    (tmp_path / name).write_text("old")
    with pytest.raises(KeyboardInterrupt):
        video(walk(), tmp_path / name, size=(48, 48), progress=stop)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


def batch(motion: Motion) -> Motion:
    return replace(motion, root=motion.root[None], q=motion.q[None], joints=motion.joints[None])


def broken(motion: Motion) -> Motion:
    joints: Tensor = motion.joints.clone()
    joints[2, 5] = math.nan
    return replace(motion, joints=joints)


@pytest.mark.parametrize(("motion", "message"), [(batch(walk()), "one person at a time"), (broken(walk()), "from frame 2 on")])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, motion: Motion, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_frame(motion, 0, camera=BEHIND)
    with pytest.raises(ValueError, match=message):
        contact_sheet([motion], tmp_path / "sheet.png")
    with pytest.raises(ValueError, match=message):
        video(motion, tmp_path / "walk.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_sphere_with_another_number_of_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="4 frames, got 3"):
        draw_frame(walk(), 0, camera=BEHIND, spheres=[Sphere(torch.zeros(3, 3), 0.1)])


def test_a_sheet_without_motions_or_with_too_few_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one motion"):
        contact_sheet([], tmp_path / "sheet.png")
    with pytest.raises(ValueError, match="1 labels for 2 motions"):
        contact_sheet([walk(), walk()], tmp_path / "sheet.png", labels=["one"])
    assert list(tmp_path.iterdir()) == []
