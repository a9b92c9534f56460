"""Pictures: what is drawn is where the camera says, whoever paints it."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence
from scipy.ndimage import maximum_filter

from dropsim.apps.cli import main
from dropsim.body.mesh import Body
from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton, joint_index
from dropsim.export import write
from dropsim.export.people import BALL_COLOR
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.render import Camera, Stage, Style, contact_sheet, draw_frame, follow, video
from dropsim.render.camera import View
from dropsim.render.meshes import RED, arrows_of
from dropsim.scene import Solid

BEHIND = Camera(azimuth=-90.0)
SIZE = (96, 96)
SMALL = Style(size=SIZE)


def walk(frames: int = 4, *, speed: float = 1.2) -> Motion:
    """Someone who faces +y and swings straight legs while moving along +y."""
    skeleton = Skeleton.adult()
    time = np.arange(frames) / 10
    q = np.tile(np.eye(3), (frames, 22, 1, 1))
    q[:, 0] = [[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    swing = 0.4 * np.sin(2 * math.pi * time)[:, None] * np.array([1.0, 0.0, 0.0])
    q[:, joint_index("left_hip")], q[:, joint_index("right_hip")] = exp(-swing), exp(swing)
    root = np.column_stack((np.zeros(frames), speed * time, np.full(frames, skeleton.standing_height)))
    return Motion.from_rotations(skeleton, 10.0, root, q)


def places_of(camera: Camera, points: np.ndarray, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Column and row of points in front of the camera."""
    return View.of(camera, *size).projected(points, np.zeros(len(points)))[:, :2]


def pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture, dtype=float) / 255


def columns_of(picture: Image.Image, color: tuple[float, float, float]) -> np.ndarray:
    """The columns of the pixels that have a colour's hue: shading scales the three channels nearly alike."""
    values = pixels(picture)
    cosine = values @ np.array(color) / np.linalg.norm(values, axis=-1).clip(min=1e-9) / np.linalg.norm(color)
    return np.nonzero(cosine > 0.985)[1]


def rows_of(picture: Image.Image, color: tuple[float, float, float]) -> np.ndarray:
    return columns_of(picture.transpose(Image.Transpose.TRANSPOSE), color)


def shown(motion: Motion | Stage, index: int, camera: Camera, size: tuple[int, int] = SIZE) -> Image.Image:
    return draw_frame(motion, index, camera=camera, style=replace(SMALL, size=size))


def difference(one: Image.Image, other: Image.Image) -> np.ndarray:
    return np.abs(pixels(one) - pixels(other)).max(-1)


def moved(motion: Motion, x: float, y: float) -> Motion:
    way = np.array([x, y, 0.0])
    return replace(motion, root=motion.root + way, joints=motion.joints + way)


def tilted(*degrees: float) -> Plane:
    """The ground, down towards +x by some degrees, about the origin: at every frame, or one for all."""
    angle, zero = np.radians(degrees), np.zeros((len(degrees), 3))
    plane = Plane(np.column_stack((np.sin(angle), 0 * angle, np.cos(angle))), 0 * angle, zero, zero, zero)
    return plane if len(degrees) > 1 else plane.map(lambda v: v[0], lambda s: np.asarray(s[0]))


def ball(x: float, y: float, z: float, frames: int = 4) -> Solid:
    return Solid.sphere(0.2, np.tile((x, y, z), (frames, 1)))


def columns_of_person(motion: Motion, index: int, camera: Camera) -> np.ndarray:
    """The columns in which somebody is seen."""
    empty = shown(moved(motion, 0.0, -60.0), index, camera)
    return np.nonzero(difference(shown(motion, index, camera), empty) > 0.1)[1]


def with_force(motion: Motion, kind: str, joint: str, force: tuple[float, float, float]) -> Motion:
    forces = np.zeros((len(motion), 22, 3))
    forces[:, joint_index(joint)] = force
    return replace(motion, **{kind: forces})


def test_a_person_is_where_the_projected_joints_are() -> None:
    motion, style = walk(), Style(size=(160, 200))
    there, empty = (draw_frame(m, 1, camera=BEHIND, style=style) for m in (motion, moved(motion, 0.0, -60.0)))
    assert there.size == (160, 200)
    changed = difference(there, empty)
    columns, rows = places_of(BEHIND, motion.joints[1], style.size).astype(int).T
    # Every joint is inside the body, except that the outline may run through one at the rim.
    assert (changed[rows, columns] > 0.03).sum() >= 21
    # Half a metre above the head and beside the hip there is nobody.
    away = motion.joints[1][[15, 1]] + np.array([(0.0, 0.0, 0.5), (-0.6, 0.0, 0.0)])
    columns, rows = places_of(BEHIND, away, style.size).astype(int).T
    assert changed[rows, columns].max() < 0.03


def test_the_skin_is_where_the_body_has_it() -> None:
    # The silhouette from far away is bounded by the vertices that Body.skinned returns, to a pixel on either side for
    # antialiasing.
    # The left arm hangs, so that a picture that mirrors people is found.
    camera = Camera(target=(0.0, 0.1, 0.9), azimuth=-90.0, elevation=0.0, distance=100.0, field_of_view=1.3)
    motion, style = walk(), Style(size=(200, 200))
    q = motion.q.copy()
    q[:, joint_index("left_shoulder")] = exp(np.array([0.0, 0.0, -1.3]))
    motion = Motion.from_rotations(motion.skeleton, motion.fps, motion.root, q)
    there, empty = (draw_frame(m, 1, camera=camera, style=style) for m in (motion, moved(motion, 30.0, 0.0)))
    rows, columns = np.nonzero(difference(there, empty) > 0.1)
    vertices = Body.shipped().fitted(motion.skeleton).skinned(motion.q[1], motion.joints[1])
    corners = places_of(camera, vertices, style.size)
    assert columns.min() == pytest.approx(corners[:, 0].min(), abs=2)
    assert columns.max() == pytest.approx(corners[:, 0].max(), abs=2)
    assert rows.min() == pytest.approx(corners[:, 1].min(), abs=2)
    # Every vertex is on a changed pixel or next to one; those at the sole may be lost against the floor seen edge-on.
    column, row = corners[corners[:, 1] < corners[:, 1].max() - 5].astype(int).T
    assert maximum_filter(difference(there, empty), 3)[row, column].min() > 0.02


def test_the_person_moves_in_a_camera_that_stands_and_stays_in_one_that_follows() -> None:
    motion = walk(31)
    from_the_right = Camera(target=(0.0, 1.8, 0.9), azimuth=0.0, distance=10.0)
    still = [columns_of_person(motion, i, from_the_right).mean() for i in (0, 30)]
    # 3.6 m along +y, which is to the right from +x: 96 / (2 * 10 * tan 13.5) = 20 pixels a metre.
    assert still[1] - still[0] == pytest.approx(72, abs=5)
    cameras = follow(motion, camera=from_the_right)
    tracked = [columns_of_person(motion, i, cameras[i]).mean() for i in (10, 20)]
    assert abs(tracked[1] - tracked[0]) < 2
    # The floor goes by.
    corners = [pixels(shown(motion, i, cameras[i]))[-20:, :20] for i in (10, 12)]
    assert np.abs(corners[0] - corners[1]).max() > 0.05


def test_a_following_camera_is_smooth() -> None:
    motion = walk(21, speed=0.0)
    jump = motion.root + np.array([1.0, 0.0, 0.0]) * (np.arange(21) >= 10)[:, None]
    x = np.array([camera.target[0] for camera in follow(replace(motion, root=jump))])
    assert x[0] == pytest.approx(0.0, abs=1e-9)
    assert x[-1] == pytest.approx(1.0, abs=1e-9)
    assert np.diff(x).min() >= -1e-9
    assert np.diff(x).max() < 0.4


def test_a_following_camera_keeps_everybody_in_the_picture_and_goes_up_with_the_ground() -> None:
    stage = Stage((moved(walk(), -2.0, 0.0), moved(walk(2), 2.0, 0.0)), ghost=moved(walk(), 1.0, 0.0))
    for i, camera in enumerate(follow(stage)):
        joints = np.concatenate([m.joints[min(i, len(m) - 1)] for m in stage.people])
        columns = places_of(camera, joints, (640, 480))[:, 0]
        assert columns.min() > 0
        assert columns.max() < 640
    raised = replace(Plane.ground(), offset=np.array(0.5))
    assert follow(Stage((walk(),), ground=raised))[0].target[2] - follow(walk())[0].target[2] == pytest.approx(0.5)


def test_forces_are_drawn_over_the_body_and_clipped() -> None:
    def arrow(newtons: float) -> np.ndarray:
        motion = with_force(walk(), "external_forces", "spine3", (0.0, 0.0, newtons))
        return rows_of(shown(motion, 0, Camera(azimuth=90.0, distance=8.0), (200, 200)), RED)

    # 200 / (2 * 8 * tan 13.5) = 52 pixels a metre; from 200 N to 1000 N the tip rises 0.8 m.
    assert arrow(200.0).min() - arrow(1000.0).min() == pytest.approx(0.8 * 52, abs=5)
    assert arrow(1500.0).min() == arrow(9000.0).min()
    assert len(arrow(0.0)) == 0


@pytest.mark.parametrize("kind", ["contact_forces", "external_forces"])
def test_forces_change_the_picture_unless_the_style_says_no(kind: str) -> None:
    plain, pushed = walk(), with_force(walk(), kind, "left_foot", (0.0, 0.0, 700.0))
    assert difference(shown(plain, 0, BEHIND), shown(pushed, 0, BEHIND)).max() > 0.2
    without = [draw_frame(m, 0, camera=BEHIND, style=replace(SMALL, forces=False)) for m in (plain, pushed)]
    assert without[0].tobytes() == without[1].tobytes()


def test_one_push_on_neighbouring_joints_is_one_arrow() -> None:
    forces = np.zeros((4, 22, 3))
    torso = [joint_index(name) for name in ("spine1", "spine2", "spine3", "left_collar", "right_collar")]
    forces[:, [*torso, joint_index("left_wrist")]] = [0.0, 50.0, 0.0]
    arrows = arrows_of(replace(walk(), external_forces=forces))
    # One for the torso, 250 N and so 0.25 m long, and one for the hand.
    assert sorted(float(np.linalg.norm(way)) for _, way, _ in arrows) == pytest.approx([0.05, 0.25])


def test_a_ghost_changes_the_picture_less_than_a_person_and_hides_in_the_one_that_it_is() -> None:
    motion, aside = walk(), moved(walk(), 0.8, 0.0)
    alone, haunted, two = (shown(s, 0, BEHIND) for s in (motion, Stage((motion,), ghost=aside), Stage((motion, aside))))
    ghost, person = difference(alone, haunted), difference(alone, two)
    assert ghost.max() > 0.1
    # Both people have the same outline, but something of the background is seen through a ghost.
    assert ghost.mean() < 0.7 * person.mean()
    same = shown(Stage((motion,), ghost=motion), 0, BEHIND)
    assert difference(alone, same).mean() < 1e-3
    # People have shirts of their own.
    chests = np.stack([m.joints[0, 9] for m in (motion, aside)])
    columns, rows = places_of(BEHIND, chests).astype(int).T
    assert np.ptp(pixels(two)[rows, columns], axis=0).max() > 0.1


def test_who_ends_first_stands_still_without_forces() -> None:
    short = with_force(walk(2), "external_forces", "head", (500.0, 0.0, 0.0))
    stage = Stage((walk(4), short))
    assert len(stage) == 4
    before, after = (stage.at(i).people[1] for i in (1, 3))
    assert np.array_equal(before.joints, after.joints)
    assert len(arrows_of(before)) == 1
    assert len(arrows_of(after)) == 0


def test_a_sphere_is_a_disc_of_its_size_that_hides_what_is_behind_it() -> None:
    camera = Camera(target=(0.0, 0.0, 1.0), azimuth=-90.0, elevation=0.0, distance=100.0, field_of_view=1.0)
    # Area of a disc of 0.2 m at 96 / (2 * 100 * tan 0.5) = 55 pixels a metre, less the rim's antialiased pixels: a
    # circumference.
    radius = 0.2 * 96 / (2 * 100 * math.tan(math.radians(0.5)))
    before, behind = (
        len(columns_of(shown(Stage((walk(),), objects=[ball(0.0, y, 1.0)]), 0, camera), BALL_COLOR))
        for y in (-2.0, 2.0)
    )
    assert before == pytest.approx(math.pi * radius**2, abs=2 * math.pi * radius)
    assert behind < 0.6 * before


def test_the_ground_hides_what_is_below_it_and_tilts_over_time() -> None:
    # At x = 1 m a ground that has tilted by 25 degrees is 0.47 m lower, below the ball's middle at -0.15 m.
    stage = Stage((walk(),), objects=[ball(1.0, -1.0, -0.25)], ground=tilted(0.0, 5.0, 15.0, 25.0))
    camera = Camera(target=(0.5, 0.0, 0.5), azimuth=-90.0)
    seen = [len(columns_of(shown(stage, i, camera), BALL_COLOR)) for i in range(4)]
    assert seen[0] == 0
    assert seen[3] > 50
    level, still = (shown(Stage((walk(),), ground=g), 3, camera) for g in (Plane.ground(), tilted(25.0)))
    assert difference(level, still)[-30:].max() > 0.05


def test_the_squares_stay_with_the_pivot() -> None:
    # The place about which the ground turns keeps its square: here a white one, between whose edges it lies.
    camera = Camera(target=(3.25, 0.25, 0.0), azimuth=-90.0, elevation=60.0, distance=4.0)
    pivot = np.array([3.25, 0.25, 0.0])
    colors = []
    for degrees in (0.0, 12.0):
        plane = tilted(degrees)
        ground = replace(plane, pivot=pivot, offset=np.asarray(plane.normal @ pivot))
        colors.append(pixels(shown(Stage((walk(),), ground=ground), 0, camera))[46:50, 46:50].mean((0, 1)))
    assert np.abs(colors[0] - colors[1]).max() < 0.03


def test_the_same_gives_the_same_bytes_and_a_sphere_that_is_not_there_yet_is_not_drawn() -> None:
    pictures = [shown(Stage((walk(),), objects=s), 0, BEHIND) for s in ([ball(math.nan, 0.0, 0.0)], [])]
    assert pictures[0].tobytes() == pictures[1].tobytes()


def test_what_is_behind_the_camera_or_around_it_is_not_drawn() -> None:
    camera = Camera(target=(0.0, 0.0, 1.5), azimuth=-90.0, elevation=0.0, distance=0.05)
    stage = Stage((walk(),), objects=[ball(0.0, -3.0, 1.0), ball(0.0, 0.0, 1.5)])
    assert shown(stage, 0, camera).size == SIZE


def test_a_shadow_is_on_the_ground_below_a_ball() -> None:
    camera = Camera(target=(2.0, 0.0, 0.0), azimuth=-90.0, elevation=80.0, distance=6.0)
    bare, there = (pixels(shown(Stage((walk(),), objects=s), 0, camera)) for s in ([], [ball(2.0, 0.0, 0.6)]))
    darker = (bare - there).min(-1) > 0.05
    columns, rows = places_of(camera, np.array([[2.0, 0.0, 0.6], [2.0, 0.0, 0.0]])).T
    assert darker.sum() > 30
    # Its shadow reaches further than the ball itself, which covers a disc of 0.2 m / (6 - 0.6) m x 96 / 0.48 = 7.4
    # pixels.
    far = np.hypot(*(np.argwhere(darker).T - np.array([[rows[0]], [columns[0]]])))
    assert far.max() > 9


def test_a_caption_is_written_at_the_top_and_shrinks_to_fit() -> None:
    plain, said, long = (
        draw_frame(walk(), 0, camera=BEHIND, style=replace(SMALL, size=(200, 150), caption=text))
        for text in ("", "a push", "a push that takes very many words to describe")
    )
    for picture in (said, long):
        rows, columns = np.nonzero(difference(plain, picture) > 0.1)
        assert rows.max() < 25
        assert columns.max() < 199


def test_a_contact_sheet_has_a_row_for_each_motion_and_wraps_into_columns(tmp_path: Path) -> None:
    style, path = replace(SMALL, size=(58, 70)), tmp_path / "sheet.png"
    contact_sheet([walk(), walk(2)], path, frames=3, labels=["one", "two"], style=style)
    with Image.open(path) as sheet:
        width, height = sheet.size
        assert (width, height) == (3 * 60, 2 * (22 + 70))
        cells = [sheet.crop((60 * i, 0, 60 * i + 60, height // 2)) for i in range(3)]
    # Each shows somebody: skin and clothes are darker than the floor and the sky.
    assert all((pixels(cell)[25:, 5:-5].max(-1) < 0.6).sum() > 20 for cell in cells)
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.png"]
    contact_sheet([walk()], path, frames=5, columns=2, style=SMALL)
    with Image.open(path) as sheet:
        assert sheet.size == (2 * 98, 22 + 3 * 98 - 2)


def test_an_mp4_has_the_frames_and_rate_of_its_motion(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    told: list[tuple[int, int]] = []
    style = Style(size=(64, 48))
    video(walk(), tmp_path / "walk.mp4", style=style, progress=lambda done, all_: told.append((done, all_)))
    with av.open(str(tmp_path / "walk.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (64, 48, 10)
        assert stream.codec_context.pix_fmt == "yuv420p"
        frames = [frame.to_image() for frame in container.decode(stream)]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [file.name for file in tmp_path.iterdir()] == ["walk.mp4"]
    assert len(frames) == 4
    # Read back, a frame is what was drawn, but for H.264's loss.
    drawn = draw_frame(walk(), 3, camera=follow(walk())[3], style=style)
    assert np.abs(pixels(frames[3]) - pixels(drawn)).mean() < 0.03


def test_a_gif_plays_at_the_rate_asked_for_and_everything_goes_along(tmp_path: Path) -> None:
    path = np.column_stack((np.linspace(-1, 1, 4), np.zeros(4), np.full(4, 0.5)))
    objects, ground = [Solid.sphere(0.2, path)], tilted(0.0, 3.0, 6.0, 9.0)
    stage = Stage((walk(),), ghost=walk(), objects=objects, ground=ground)
    video(stage, tmp_path / "walk.gif", style=Style(size=(48, 48)), fps=30.0)
    with Image.open(tmp_path / "walk.gif") as gif:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]
    # Ten frames at 30 frames a second last a third of a second, in whole hundredths.
    assert (len(durations), sum(durations), set(durations)) == (10, 330, {30, 40})
    fine = stage.resampled(30.0)
    assert len(fine) == 10
    np.testing.assert_allclose(fine.objects[0].centre[::3], path)
    np.testing.assert_allclose(fine.ground.normal[::3], stage.ground.normal)
    np.testing.assert_allclose(np.linalg.norm(fine.ground.normal, axis=1), 1.0)


@pytest.mark.parametrize("name", ["walk.mp4", "walk.gif"])
def test_an_error_half_way_leaves_the_old_file_as_it_was(tmp_path: Path, name: str) -> None:
    if name.endswith("mp4"):
        pytest.importorskip("av")

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    (tmp_path / name).write_text("old")
    with pytest.raises(KeyboardInterrupt):
        video(walk(), tmp_path / name, style=Style(size=(48, 48)), progress=stop)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


BATCH, NAN = walk().map(lambda values: values[None]), walk()
NAN = replace(NAN, joints=np.where(np.arange(4)[:, None, None] == 2, np.nan, NAN.joints))
REFUSED = [
    (lambda: draw_frame(BATCH, 0), "batch of shape"),
    (lambda: contact_sheet([NAN], "sheet.png"), "from frame 2 on"),
    (lambda: video(NAN, "walk.gif"), "from frame 2 on"),
    (lambda: Stage(()), "at least one motion"),
    (lambda: Stage((walk(),), objects=[Solid.sphere(0.1, np.zeros((3, 3)))]), "4 frames"),
    (lambda: Stage((walk(),), objects=[Solid.sphere(-0.1, np.zeros((4, 3)))]), "positive radius"),
    (lambda: Stage((walk(),), ground=tilted(0.0, 0.0, 0.0)), "one for each of the motion's 4 frames"),
    (lambda: Stage((walk(),), ground=tilted(math.nan)), "normal of unit length"),
    (lambda: Stage((walk(), replace(walk(), fps=30.0))), "resample them to one rate"),
    (lambda: draw_frame(walk(), 4), "there is no frame 4"),
    *(
        (lambda size=size: Style(size=size), "from 16 pixels")
        for size in ((0, 100), (15, 100), (-640, -480), (10**5, 10**5))
    ),
    (lambda: contact_sheet([], "sheet.png"), "at least one motion"),
    (lambda: contact_sheet([walk(), walk()], "sheet.png", labels=["one"]), "1 labels for 2 motions"),
    (lambda: contact_sheet([walk()], "sheet.png", frames=10_000, style=Style(size=(1000, 1000))), "too large"),
    *((lambda name=name: video(walk(), name), r"ends in \.mp4 or \.gif") for name in ("walk.avi", "walk", "walk.png")),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        make()
    assert list(tmp_path.iterdir()) == []


def test_without_pyav_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ValueError, match=r"pip install 'dropsim\[video\]'"):
        video(walk(), tmp_path / "walk.mp4")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a walk and a shorter one at another rate, and an empty folder `out`."""
    write(walk(), tmp_path / "walk.npz")
    write(replace(walk(3), fps=20.0), tmp_path / "other.bvh")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "size", "frames"),
    [
        ("walk.mp4", ["--size", "64x48", "--fps", "30", "--no-forces", "--caption", "hello"], (64, 48), 10),
        ("walk.gif", ["--size", "50x40"], (50, 40), 4),
        ("walk.png", ["--size", "50x41", "--at", "0.2"], (50, 41), 1),
        ("new/walk.png", ["--contact-sheet", "--frames", "8", "--size", "48x40"], (6 * 50, 22 + 2 * 42 - 2), 1),
    ],
)
def test_the_command_draws_people_and_a_ghost(
    files: Path, name: str, options: list[str], size: tuple[int, int], frames: int
) -> None:
    inputs = [str(files / "walk.npz"), str(files / "other.bvh")]
    assert main(["render", *inputs, str(files / "out" / name), "--ghost", inputs[0], *options]) == 0
    written = files / "out" / name
    if name.endswith("mp4"):
        av = pytest.importorskip("av")
        with av.open(str(written)) as container:
            pictures = [frame.to_image() for frame in container.decode(video=0)]
        assert (len(pictures), pictures[0].size) == (frames, size)
    else:
        with Image.open(written) as picture:
            assert (getattr(picture, "n_frames", 1), picture.size) == (frames, size)
    assert list(written.parent.iterdir()) == [written]
