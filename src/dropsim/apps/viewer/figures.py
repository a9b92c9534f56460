"""What the browser draws: bodies, limbs to grab, ground, spheres and arrows; the world moves so that people stay in view."""

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dropsim.apps.viewer.shot import Shot, Sphere
from dropsim.body.clothes import SHIRTS, Part, dressed
from dropsim.body.mesh import Body
from dropsim.body.rotations import rotmat_to_unitquat
from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton
from dropsim.export.hands import lifted_hands
from dropsim.export.people import BALL_COLOR, object_color
from dropsim.physics.contact import Plane
from dropsim.priors.prior import State
from dropsim.render.raster import DARK_TILE, HORIZON, LIGHT_TILE
from dropsim.render.snapshot import GHOST, resultants
from dropsim.render.stage import floor_axes
from dropsim.scene import Solid

if TYPE_CHECKING:
    import viser

BONES = tuple(range(1, NUM_JOINTS))
"""Named by the joint at the far end."""
CONTACT_COLOR, EXTERNAL_COLOR = (38, 64, 242), (230, 20, 31)
OBSTACLE_COLOR, GOAL_COLOR = (90, 90, 96), (42, 127, 184)
FLOOR_SIZE, TEXELS = 60, 64
"""Side of the floor [m], and of the picture of one square metre of it [pixels]."""
SIGHT = (9.0, 26.0)
"""Distances from the camera at which the floor begins to fade, and is gone [m]."""
METRES_PER_NEWTON = 1 / 1000
MIN_FORCE = 15.0
"""Smaller forces are not drawn [N]."""
GRAB_MARGIN = 1.25
"""Thickness of the invisible limbs that can be grabbed, relative to the body."""
GHOST_APART = 0.02
"""A ghost is shown once one of its joints is this far from the person's [m]."""
FOLLOW_HALF_LIFE = 0.3
"""Of the view's lag behind the people [s]."""


def wxyz_of(R: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 4"]:
    """Unit quaternions, real part first."""
    return np.roll(rotmat_to_unitquat(R), 1, axis=-1)


def upright_to(ways: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 4"]:
    """Shortest rotations from +z to the given directions, as quaternions (wxyz)."""
    x, y, z = np.moveaxis(ways / np.maximum(np.linalg.norm(ways, axis=-1, keepdims=True), 1e-9), -1, 0)
    # q = (1 + z . w, z x w), or half a turn about x if that vanishes.
    q = np.stack((1 + z, -y, x, np.zeros_like(z)), axis=-1)
    length = np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(length < 1e-6, (0.0, 1.0, 0.0, 0.0), q / np.maximum(length, 1e-6))


def set_bones(
    skin: "viser.MeshSkinnedHandle", wxyz: Float[np.ndarray, "n 4"], position: Float[np.ndarray, "n 3"]
) -> None:
    """Pose a body. Same as assigning each bone's pose, without viser's comparison with the last one, which takes three times as long."""
    from viser._messages import SetBoneOrientationMessage, SetBonePositionMessage

    name, queue = skin.name, skin._impl.api._queue_scene_message
    for bone, (w, x) in enumerate(zip(wxyz.tolist(), position.tolist(), strict=True)):
        queue(SetBoneOrientationMessage(name, bone, tuple(w)))
        queue(SetBonePositionMessage(name, bone, tuple(x)))


def floor_glb() -> bytes:
    """Return a floor of light and dark squares as a glTF file. Unlike viser's grid it is opaque, so the invisible limbs do not hide it."""
    import trimesh
    from PIL import Image
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    half, light = TEXELS // 2, (255 * np.array(LIGHT_TILE)).astype(np.uint8)
    picture = np.broadcast_to(light, (TEXELS, TEXELS, 3)).copy()
    picture[:half, :half] = picture[half:, half:] = (255 * np.array(DARK_TILE)).astype(np.uint8)
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * FLOOR_SIZE / 2
    material = PBRMaterial(baseColorTexture=Image.fromarray(picture), metallicFactor=0.0, roughnessFactor=1.0)
    mesh = trimesh.Trimesh(
        np.concatenate((corners, np.zeros((4, 1))), 1), [[0, 1, 2], [0, 2, 3]], process=False,
        visual=TextureVisuals(uv=corners, material=material),
    )  # fmt: skip
    file = io.BytesIO()
    mesh.export(file, file_type="glb")
    return file.getvalue()


def ring(inner: float, outer: float, sides: int = 48) -> tuple[Float[np.ndarray, "v 3"], np.ndarray]:
    """Return a flat ring as vertices and faces."""
    turn = np.arange(sides) * 2 * np.pi / sides
    way = np.stack((np.cos(turn), np.sin(turn), np.zeros(sides)), -1)
    a = np.arange(sides)
    b = (a + 1) % sides
    faces = np.concatenate((np.stack((a, a + sides, b), 1), np.stack((b, a + sides, b + sides), 1)))
    return np.concatenate((inner * way, outer * way)).astype(np.float32), faces.astype(np.uint32)


def capsule(sides: int = 10, rings: int = 3) -> tuple[Float[np.ndarray, "v 3"], np.ndarray]:
    """Return a capsule of length and radius 1 along +z, whose ends bulge by a tenth, as vertices and faces."""
    heights, radii = [], []
    for k in range(rings + 1):
        angle = np.pi / 2 * k / rings
        heights.append(-0.1 * np.cos(angle))
        radii.append(np.sin(angle))
    profile = [
        *zip(heights, radii, strict=True),
        *((1 - h, r) for h, r in zip(heights[::-1], radii[::-1], strict=True)),
    ]
    turn = np.arange(sides) * 2 * np.pi / sides
    rows = np.stack([np.stack((r * np.cos(turn), r * np.sin(turn), np.full(sides, h)), axis=-1) for h, r in profile])
    faces = []
    for i in range(len(profile) - 1):
        for j in range(sides):
            a, b, c, d = (
                i * sides + j,
                i * sides + (j + 1) % sides,
                (i + 1) * sides + j,
                (i + 1) * sides + (j + 1) % sides,
            )
            faces += [(a, b, d), (a, d, c)]
    return rows.reshape(-1, 3).astype(np.float32), np.array(faces, dtype=np.uint32)


@dataclass(frozen=True)
class Look:
    """What is shown."""

    skin: bool = True
    """Skinned bodies, or capsules."""
    contact_forces: bool = True
    external_forces: bool = True
    follow: bool = True
    """Whether the view goes along with the first person."""


@dataclass(eq=False)
class _Figure:
    """One person in the browser's scene."""

    skin: "list[tuple[viser.MeshSkinnedHandle, Part]]"
    limbs: "viser.BatchedMeshHandle | None"
    """None for a ghost: it cannot be grabbed."""


class Figures:
    """Everything in the browser's scene. Owned by the clock's thread."""

    def __init__(self, server: "viser.ViserServer", skeleton: Skeleton, grabbed: "Grabbed") -> None:
        self._server, self.skeleton, self._grabbed = server, skeleton, grabbed
        self._body = Body.shipped().fitted(skeleton)
        scene = server.scene
        scene.world_axes.visible = False
        scene.configure_environment_map(None)
        self._world = scene.add_frame("/world", show_axes=False)
        self._ground = scene.add_glb("/world/ground", floor_glb(), cast_shadow=False, receive_shadow=True)
        sky = (255 * np.array(HORIZON)).astype(np.uint8)
        scene.set_background_image(np.broadcast_to(sky, (2, 2, 3)).copy(), format="png")
        scene.configure_fog(*SIGHT, color=sky)
        self._arrows = {
            "contact": scene.add_arrows(
                "/world/contact", _nowhere(), CONTACT_COLOR, shaft_radius=0.014, head_radius=0.035, head_length=0.08
            ),
            "external": scene.add_arrows(
                "/world/external", _nowhere(), EXTERNAL_COLOR, shaft_radius=0.018, head_radius=0.045, head_length=0.1
            ),
        }
        self._people, self._ghosts = list[_Figure](), list[_Figure]()
        self._spheres: dict[int, viser.IcosphereHandle] = {}
        self._solids: dict[int, viser.MeshHandle] = {}
        self._goals: list[viser.MeshHandle] = []
        radii = skeleton.radii
        self._thick = 0.5 * (radii[[PARENTS[bone] for bone in BONES]] + radii[list(BONES)])
        self._light()
        self.origin = (0.0, 0.0, 0.0)
        """Point of the simulated world that is drawn at the browser's origin [m]."""

    def _light(self) -> None:
        scene = self._server.scene
        scene.configure_default_lights(enabled=True, cast_shadow=True)
        scene.add_light_hemisphere("/light/sky", sky_color=(255, 255, 255), ground_color=(225, 225, 225), intensity=2.2)

    def draw(self, shot: Shot, look: Look, seconds: float) -> None:
        """Show a frame, `seconds` after the last one."""
        self._follow(shot, look, seconds)
        self._set_count(len(shot.people.x), 0 if shot.ghosts is None else len(shot.ghosts.x))
        self._pose(self._people, shot.people, look, shot.ground)
        if shot.ghosts is not None:
            self._pose(self._ghosts, shot.ghosts, look, None)
            apart = np.linalg.norm(shot.ghosts.x - shot.people.x, axis=-1).max(-1)
            for figure, far in zip(self._ghosts, apart.tolist(), strict=False):
                # At the same place as its person it would only flicker.
                for skin, _ in figure.skin:
                    skin.visible = look.skin and far > GHOST_APART
        self._lay_ground(shot.ground)
        self._mark(shot)
        self._place(shot.spheres)
        self._place_solids(shot.solids)
        self._draw_forces(shot, look)

    def _follow(self, shot: Shot, look: Look, seconds: float) -> None:
        if not look.follow:
            return
        x = shot.people.x
        here = x[:, 0, :2].mean(0) if len(x) < 3 else x[0, 0, :2]
        height = _height(shot.ground, here)
        goal, old = np.array((*here.tolist(), height)), np.array(self.origin)
        share = 1.0 if np.linalg.norm(goal - old) > 5 else 1 - 0.5 ** (seconds / FOLLOW_HALF_LIFE)
        x, y, z = (old + share * (goal - old)).tolist()
        self.origin = (x, y, z)
        self._world.position = (-x, -y, -z)

    def _set_count(self, people: int, ghosts: int) -> None:
        """Add figures for everybody, and hide those that are left over: to remove a skinned mesh breaks viser's page."""
        for figures, count, ghost in ((self._people, people, False), (self._ghosts, ghosts, True)):
            while len(figures) < count:
                figures.append(self._made(len(figures), ghost))
            for figure in figures[count:]:
                for node in (*(skin for skin, _ in figure.skin), *([figure.limbs] if figure.limbs else [])):
                    node.visible = False

    def _made(self, number: int, ghost: bool) -> _Figure:
        scene, body = self._server.scene, self._body
        # A ghost is pale and not translucent: what shows through it twice, such as an arm behind the chest, would be
        # dark.
        pale = tuple(float(v) for v in 0.35 * np.array(GHOST) + 0.65 * np.array(LIGHT_TILE))
        everything = Part(
            body.vertices, body.faces, body.blend, np.arange(NUM_JOINTS), _rgb((pale[0], pale[1], pale[2]))
        )
        skin = []
        for i, part in enumerate([everything] if ghost else dressed(body, number).parts):
            handle = scene.add_mesh_skinned(
                f"/world/{'ghost' if ghost else 'person'}_{number}_{i}", part.vertices, part.faces,
                bone_wxyzs=np.tile((1.0, 0.0, 0.0, 0.0), (len(part.joints), 1)), bone_positions=self.skeleton.rest[part.joints],
                skin_weights=part.blend, color=part.color, cast_shadow=not ghost, receive_shadow=not ghost,
            )  # fmt: skip
            skin.append((handle, part))
        if ghost:
            return _Figure(skin, None)
        vertices, faces = capsule()
        count = len(BONES)
        limbs = scene.add_batched_meshes_simple(
            f"/world/limbs_{number}", vertices, faces, np.tile((1.0, 0.0, 0.0, 0.0), (count, 1)), np.zeros((count, 3)),
            batched_scales=np.ones((count, 3)), batched_colors=_rgb(SHIRTS[number % len(SHIRTS)]), opacity=0.0,
            cast_shadow=False, receive_shadow=False, lod="off",
        )  # fmt: skip
        self._grabbed.listen(limbs, number)
        return _Figure(skin, limbs)

    def _pose(self, figures: Sequence[_Figure], people: State, look: Look, ground: Plane | None) -> None:
        q = people.q if ground is None else lifted_hands(people.q, people.x, self.skeleton, ground)
        turns, x = wxyz_of(self.skeleton.global_rotations(q)).round(5), people.x
        near = x[:, [PARENTS[bone] for bone in BONES]]
        ways = x[:, list(BONES)] - near
        lengths, upright = np.linalg.norm(ways, axis=-1), upright_to(ways)
        wide = self._thick * (GRAB_MARGIN if look.skin else 0.9)
        for i, figure in enumerate(figures[: len(x)]):
            for skin, part in figure.skin:
                skin.visible = look.skin
                if look.skin:
                    set_bones(skin, turns[i, part.joints], x[i, part.joints].round(5))
            if figure.limbs is not None:
                figure.limbs.visible = True
                figure.limbs.opacity = 0.0 if look.skin else 1.0
                figure.limbs.cast_shadow = not look.skin
                # Relative to the pelvis: a slow browser updates a node's position at once but its contents later.
                figure.limbs.position = x[i, 0]
                figure.limbs.batched_positions = near[i] - x[i, 0]
                figure.limbs.batched_wxyzs = upright[i]
                figure.limbs.batched_scales = np.stack((wide, wide, lengths[i] + 0.5 * wide), axis=-1).astype(
                    np.float32
                )

    def _lay_ground(self, plane: Plane) -> None:
        self._ground.wxyz = upright_to(plane.normal)
        # The sheet moves by whole metres along its squares, so that they appear fixed.
        axes, shift = floor_axes(plane)
        x, y, _ = np.round(axes @ np.array(self.origin) + shift)
        self._ground.position = axes.T @ (np.array((x, y, -0.002)) - shift)

    def _mark(self, shot: Shot) -> None:
        """Draw rings where people are sent."""
        while len(self._goals) < len(shot.goals):
            self._goals.append(
                self._server.scene.add_mesh_simple(
                    f"/world/goal_{len(self._goals)}",
                    *ring(0.22, 0.28),
                    color=GOAL_COLOR,
                    side="double",
                    cast_shadow=False,
                )
            )
        for i, mark in enumerate(self._goals):
            mark.visible = i < len(shot.goals)
            if mark.visible:
                mark.wxyz = upright_to(shot.ground.normal)
                mark.position = (*shot.goals[i], _height(shot.ground, np.array(shot.goals[i])) + 0.01)

    def _place(self, spheres: Sequence[Sphere]) -> None:
        for key in set(self._spheres) - {sphere.key for sphere in spheres}:
            self._spheres.pop(key).remove()
        for sphere in spheres:
            if sphere.key not in self._spheres:
                color = _rgb(BALL_COLOR) if sphere.flying else OBSTACLE_COLOR
                self._spheres[sphere.key] = self._server.scene.add_icosphere(
                    f"/world/sphere_{sphere.key}", sphere.radius, color=color, subdivisions=3
                )
            self._spheres[sphere.key].position = sphere.centre

    def _place_solids(self, solids: Mapping[int, Solid]) -> None:
        for key in set(self._solids) - set(solids):
            self._solids.pop(key).remove()
        for key, solid in solids.items():
            if key not in self._solids:
                # Flat shading needs no normals, and a box has edges. A sheet on the floor would only shade itself.
                self._solids[key] = self._server.scene.add_mesh_simple(
                    f"/world/solid_{key}", solid.vertices.astype(np.float32), solid.faces.astype(np.uint32),
                    color=_rgb(object_color(solid.name)), flat_shading=True, side="double", cast_shadow=solid.name != "patch",
                )  # fmt: skip
                if solid.name == "crate":
                    self._grabbed.listen_to_box(self._solids[key], key)
            self._solids[key].position = solid.centre
            self._solids[key].wxyz = wxyz_of(solid.rotation)

    def _draw_forces(self, shot: Shot, look: Look) -> None:
        contact = external = _nowhere()
        if shot.report is not None and look.contact_forces:
            # The ground's force on the person.
            contact = _arrows(shot.people.x, shot.report.contact_forces[0])
        if shot.report is not None and look.external_forces:
            hands = [np.stack((at, (at + METRES_PER_NEWTON * force))) for at, force in shot.pulls]
            # Draw a hand's force where it holds, and not again at the ends of the bone.
            external = (
                np.stack(hands) if hands else _pushes(shot.people.x, shot.report.external_forces[0], self.skeleton)
            )
        about = shot.people.x[0, 0]
        for name, points in (("contact", contact), ("external", external)):
            self._arrows[name].visible = bool(points.any())
            self._arrows[name].position = about
            self._arrows[name].points = points - about


class Grabbed(ABC):
    """Listens to drags and clicks on limbs and boxes."""

    @abstractmethod
    def listen(self, limbs: "viser.BatchedMeshHandle", person: int) -> None:
        """Listen to the limbs of a person."""

    @abstractmethod
    def listen_to_box(self, box: "viser.MeshHandle", key: int) -> None:
        """Listen to a loose box; `key` is that of `Shot.solids`."""


def _rgb(color: tuple[float, float, float]) -> tuple[int, int, int]:
    r, g, b = (round(255 * channel) for channel in color)
    return r, g, b


def _nowhere() -> Float[np.ndarray, "1 2 3"]:
    return np.zeros((1, 2, 3), dtype=np.float32)


def _height(plane: Plane, place: Float[np.ndarray, "2"]) -> float:
    """Height of the ground at a place [m]."""
    normal = plane.normal
    return float((float(plane.offset) - normal[:2] @ place) / normal[2])


def _pushes(
    x: Float[np.ndarray, "p 22 3"], forces: Float[np.ndarray, "p 22 3"], skeleton: Skeleton
) -> Float[np.ndarray, "n 2 3"]:
    """Arrows of external forces, starting at the skin; a push spread over several joints is one arrow."""
    arrows = []
    for joints, force in zip(x, forces, strict=True):
        at, total = resultants(joints, force)
        newtons = np.linalg.norm(total, axis=-1, keepdims=True)
        drawn = newtons[:, 0] > MIN_FORCE
        at, total, newtons = at[drawn], total[drawn], newtons[drawn]
        nearest = np.linalg.norm(at[:, None] - joints, axis=-1).argmin(-1)
        start = at + skeleton.radii[nearest, None] * total / newtons
        arrows.append(np.stack((start, start + METRES_PER_NEWTON * total), axis=-2))
    drawn_arrows = np.concatenate(arrows)
    return drawn_arrows.astype(np.float32) if len(drawn_arrows) else _nowhere()


def _arrows(x: Float[np.ndarray, "p 22 3"], forces: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "n 2 3"]:
    at, force = x, forces
    drawn = np.linalg.norm(force, axis=-1) > MIN_FORCE
    if not drawn.any():
        return _nowhere()
    return np.stack((at[drawn], at[drawn] + METRES_PER_NEWTON * force[drawn]), axis=-2).astype(np.float32)
