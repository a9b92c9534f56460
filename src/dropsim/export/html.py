"""HTML: one page that plays the motion in any browser, without a server and without the internet."""

import contextlib
import html
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dropsim.body.clothes import Part
from dropsim.body.mesh import Body
from dropsim.export.people import named_people, quaternions_xyzw
from dropsim.export.stage import Stage
from dropsim.files.atomic import write_text

if TYPE_CHECKING:
    import viser

_POLICY = "default-src 'unsafe-inline' 'unsafe-eval' data: blob:"
"""Sources that the page may load: what is in it, and nothing else."""


def write_html(stage: Stage, path: Path, *, body: Body | None, seed: int | None) -> None:
    """Write people as a page that plays them in a loop at their rate, through viser's recorder.

    Joints are where the motion has them. The page forbids itself every request to the outside.
    """
    with _server() as server:
        page = _record(server, stage, body)
    title = stage.people[0].name or "dropsim"
    if seed is not None:
        title += f", seed {seed}"
    page = page.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>", 1)
    page = page.replace("<head>", f'<head>\n    <meta http-equiv="Content-Security-Policy" content="{_POLICY}" />', 1)
    write_text(path, page)


@contextlib.contextmanager
def _server() -> Iterator["viser.ViserServer"]:
    """Run viser's server, which is the only maker of scenes, on a free port of this machine and without a word."""
    try:
        import viser
    except ImportError as error:
        raise ValueError("writing HTML needs viser: run `pip install 'dropsim[export]'`") from error
    # It greets and says goodbye on standard output.
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
    try:
        yield server
    finally:
        stop_server(server)


def stop_server(server: "viser.ViserServer") -> None:
    """Stop viser's server silently, and wait for the end of its thread.

    viser waits only a few seconds. The thread prints a line at its end, which on a busy machine would come later, among
    other output.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
        if (thread := server._websock_server._server_thread) is not None:
            thread.join()


def _record(server: "viser.ViserServer", stage: Stage, body: Body | None) -> str:
    """Set the scene, play every frame into the recorder, and return the page."""
    _set_scene(server, stage)
    meshes, poses = list[list[tuple[Any, Any]]](), list[tuple[np.ndarray, np.ndarray]]()
    for name, motion, rig in named_people(stage, body):
        parts = [Part.of(piece, rig.vertices, rig.blend) for piece in rig.pieces]
        added = [add_part(server.scene, f"/{name}_{k}", part, rig.bind) for k, part in enumerate(parts)]
        meshes.append([(part.joints, mesh) for part, mesh in zip(parts, added, strict=True)])
        turns = quaternions_xyzw(motion.skeleton.global_rotations(motion.q))
        poses.append((turns[..., [3, 0, 1, 2]].round(6), motion.joints.round(5)))
    recorder = server.get_scene_serializer()
    for frame in range(len(stage)):
        for person, (wxyz, position) in zip(meshes, poses, strict=True):
            if frame < len(position):
                for joints, mesh in person:
                    for j, bone in zip(joints, mesh.bones, strict=True):
                        bone.wxyz, bone.position = wxyz[frame, j], position[frame, j]
        # A page of one frame stands still.
        if len(stage) > 1:
            recorder.insert_sleep(1 / stage.fps)
    return recorder.as_html()


def add_part(
    scene: "viser.SceneApi", name: str, part: Part, rest: Float[np.ndarray, "22 3"], *, shadow: bool = True
) -> "viser.MeshSkinnedHandle":
    """Add a skinned mesh of one colour in the rest pose."""
    return scene.add_mesh_skinned(
        name,
        part.vertices,
        part.faces,
        bone_wxyzs=np.tile((1.0, 0.0, 0.0, 0.0), (len(part.joints), 1)),
        bone_positions=rest[part.joints],
        skin_weights=part.blend,
        color=part.color,
        cast_shadow=shadow,
        receive_shadow=shadow,
    )


def _set_scene(server: "viser.ViserServer", stage: Stage) -> None:
    """Lay the floor and put the camera where it sees the whole path, in front of the first person's left."""
    paths = np.concatenate([motion.root[:, :2] for motion in stage.people])
    low, high = paths.min(0), paths.max(0)
    middle, reach = (low + high) / 2, float(np.linalg.norm(high - low))
    side = float(np.ceil(reach + 8))
    server.scene.add_grid(
        "/floor",
        side,
        side,
        position=(*middle.round(), 0.0),
        section_color=(200, 200, 200),
        plane_color=(245, 245, 245),
        plane_opacity=1.0,
        shadow_opacity=0.3,
    )
    azimuth, distance = np.radians(stage.azimuth()), 3.2 + 0.6 * reach
    camera = server.initial_camera
    camera.fov = np.radians(45)
    camera.look_at = (*middle, 0.9)
    camera.position = (*(middle + distance * np.array((np.cos(azimuth), np.sin(azimuth)))), 0.9 + 0.3 * distance)
