"""The browser's scene: bodies, limbs to grab, ground, objects and arrows; it moves so that people stay in view."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dropsim.apps.viewer.session import Shot
from dropsim.apps.viewer.steering import first_hit
from dropsim.body.clothes import Part, Piece, dressed
from dropsim.body.mesh import Body
from dropsim.body.rotations import rotmat_to_unitquat, swing
from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.export.hands import lifted_hands
from dropsim.export.html import add_part
from dropsim.export.people import object_color
from dropsim.physics.contact import Plane
from dropsim.priors.prior import State
from dropsim.render.camera import floor_axes, floor_height
from dropsim.render.meshes import GHOST, METRES_PER_NEWTON, resultants
from dropsim.render.raster import DARK_TILE, HORIZON, LIGHT_TILE

if TYPE_CHECKING:
    import viser

    from dropsim.apps.viewer.hands import Hands

BONES = tuple(range(1, NUM_JOINTS))
"""Bones by the joint at the far end."""
NEAR_ENDS = [PARENTS[bone] for bone in BONES]
LANDMARKS = [joint_index(name) for name in ("pelvis", "spine3", "left_ankle", "right_ankle")]
CONTACT_COLOR, EXTERNAL_COLOR = (38, 64, 242), (230, 20, 31)
GOAL_COLOR = (42, 127, 184)
FLOOR_SIZE, TEXELS = 200, 64
"""Side of the floor [m], which goes to the horizon (viser's fog breaks its outlines of limbs that are held), and of the
picture of one square metre of it [pixels]."""
MIN_FORCE = 15.0
"""Smallest force that is drawn [N]."""
GRAB_MARGIN = 1.25
"""Thickness of the invisible limbs that can be grabbed, relative to the body."""
GHOST_APART = 0.02
"""A ghost is shown once one of its joints is this far from the person's [m]."""
FOLLOW_HALF_LIFE, FARTHEST_BEHIND = 0.15, 5.0
"""Half-life of the view's lag behind the people [s], and the lag beyond which it jumps to them [m]."""
ANKLE = 0.1
"""Height of the lowest joint of somebody who stands, at most [m]."""
TOGETHER = 12.0
"""People within this distance of those who are steered, or else of the first, are kept in view [m]."""
SEE_THROUGH = 0.3
"""Opacity of what stands between somebody and a camera."""


@dataclass(frozen=True)
class Look:
    """Choice of what is shown."""

    contact_forces: bool = False
    external_forces: bool = True
    follow: bool = True
    """The view goes along with the people."""


def wxyz_of(R: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 4"]:
    """Unit quaternions, real part first."""
    return np.roll(rotmat_to_unitquat(R), 1, axis=-1)


def upright_to(ways: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 4"]:
    """Least rotations from +z to the given directions, as quaternions (wxyz)."""
    return wxyz_of(swing(np.array([0.0, 0.0, 1.0]), ways))


def set_bones(
    skin: "viser.MeshSkinnedHandle", wxyz: Float[np.ndarray, "n 4"], position: Float[np.ndarray, "n 3"]
) -> None:
    """Pose a body; viser's own way compares each bone with its last pose, which takes three times as long."""
    from viser._messages import SetBoneOrientationMessage, SetBonePositionMessage

    name, queue = skin.name, skin._impl.api._queue_scene_message
    for bone, (w, x) in enumerate(zip(wxyz.tolist(), position.tolist(), strict=True)):
        queue(SetBoneOrientationMessage(name, bone, tuple(w)))
        queue(SetBonePositionMessage(name, bone, tuple(x)))


def floor_glb() -> bytes:
    """Return a floor of light and dark squares as glTF; unlike viser's grid it is opaque, and no limb hides it."""
    import trimesh
    from PIL import Image
    from trimesh.visual import TextureVisuals
    from trimesh.visual.material import PBRMaterial

    half, picture = TEXELS // 2, np.tile(LIGHT_TILE, (TEXELS, TEXELS, 1))
    picture[:half, :half] = picture[half:, half:] = DARK_TILE
    texture = Image.fromarray((255 * picture).astype(np.uint8))
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * FLOOR_SIZE / 2
    material = PBRMaterial(baseColorTexture=texture, metallicFactor=0.0, roughnessFactor=1.0)
    visual, level = TextureVisuals(uv=corners, material=material), np.column_stack((corners, np.zeros(4)))
    file = io.BytesIO()
    trimesh.Trimesh(level, [[0, 1, 2], [0, 2, 3]], process=False, visual=visual).export(file, file_type="glb")
    return file.getvalue()


@dataclass(eq=False)
class _Figure:
    """One person in the browser's scene."""

    skin: "list[tuple[viser.MeshSkinnedHandle, Part]]"
    limbs: "viser.BatchedMeshHandle | None"
    """Invisible limbs to grab; a ghost has none."""


class Figures:
    """Everything in the browser's scene. Owned by the simulation's thread."""

    def __init__(self, server: "viser.ViserServer", skeleton: Skeleton, hands: "Hands") -> None:
        self._scene, self.skeleton, self._hands = server.scene, skeleton, hands
        self._body = Body.shipped().fitted(skeleton)
        scene = server.scene
        scene.world_axes.visible = False
        scene.configure_environment_map(None)
        self._world = scene.add_frame("/world", show_axes=False)
        self._ground = scene.add_glb("/world/ground", floor_glb(), cast_shadow=False, receive_shadow=True)
        sky = (255 * np.array(HORIZON)).astype(np.uint8)
        scene.set_background_image(np.broadcast_to(sky, (2, 2, 3)).copy(), format="png")
        scene.configure_default_lights(enabled=True, cast_shadow=True)
        scene.add_light_hemisphere("/light/sky", sky_color=(255, 255, 255), ground_color=(225, 225, 225), intensity=2.2)
        self._contact, self._external = (
            scene.add_arrows(
                f"/world/{name}",
                np.zeros((1, 2, 3)),
                color,
                shaft_radius=thick,
                head_radius=2.5 * thick,
                head_length=5.6 * thick,
            )
            for name, color, thick in (("contact", CONTACT_COLOR, 0.014), ("external", EXTERNAL_COLOR, 0.018))
        )
        self._people, self._ghosts = list[_Figure](), list[_Figure]()
        self.objects: dict[int, Any] = {}
        """Balls, boxes and other objects, by the numbers of the shot."""
        self._rings: list[viser.MeshHandle] = []
        self._wide = GRAB_MARGIN * 0.5 * (skeleton.radii[NEAR_ENDS] + skeleton.radii[list(BONES)])
        self.origin = (0.0, 0.0, 0.0)
        """Point of the simulated world that is drawn at the browser's origin [m]."""

    def draw(self, shot: Shot, look: Look, seconds: float) -> None:
        """Show a frame, `seconds` after the last one."""
        if look.follow:
            self._follow(shot, seconds)
        self._pose(self._people, shot.people, shot.ground)
        if shot.ghosts is not None:
            apart = np.linalg.norm(shot.ghosts.x - shot.people.x, axis=-1).max(-1)
            # At the same place as its person it would only flicker.
            self._pose(self._ghosts, shot.ghosts, None, shown=apart > GHOST_APART)
        self._hide(self._people[len(shot.people.x) :])
        self._hide(self._ghosts[0 if shot.ghosts is None else len(shot.ghosts.x) :])
        self.lay_ground(shot.ground)
        self._draw_rings(shot)
        self._place_objects(shot)
        self._draw_forces(shot, look)

    def _follow(self, shot: Shot, seconds: float) -> None:
        x = in_view(shot)
        middle = (x[:, 0, :2].min(0) + x[:, 0, :2].max(0)) / 2
        height = floor_height(shot.ground, *middle.tolist())
        if any(not solid.radius for solid in shot.objects.values()):  # on which people may stand
            height = max(height, float(x[..., 2].min()) - ANKLE)
        goal, old = np.array((*middle, height)), np.array(self.origin)
        share = 1 - 0.5 ** (seconds / FOLLOW_HALF_LIFE) if np.linalg.norm(goal - old) < FARTHEST_BEHIND else 1.0
        x, y, z = (old + share * (goal - old)).tolist()
        self.origin, self._world.position = (x, y, z), (-x, -y, -z)

    def clear_view(self, shot: Shot, eyes: Iterable[Sequence[float]]) -> None:
        """Make what stands between a camera and somebody translucent."""
        solids = {key: solid for key, solid in shot.objects.items() if not solid.radius}
        rays = [(eye, np.subtract(joint, eye)) for eye in eyes for joint in shot.people.x[:, LANDMARKS].reshape(-1, 3)]
        hits = {first_hit(solids, eye, way, farthest=1.0) for eye, way in rays if solids}
        for key in self.objects.keys() & solids.keys():
            self.objects[key].opacity = SEE_THROUGH if key in hits else 1.0

    # --- people

    def _new_figure(self, number: int, ghost: bool) -> _Figure:
        import trimesh

        # A ghost is pale and not translucent: what shows through it twice, such as an arm behind the chest, would be
        # dark.
        body, (r, g, b) = self._body, (0.35 * np.array(GHOST) + 0.65 * np.array(LIGHT_TILE)).tolist()
        parts = [Part.of(Piece("ghost", (r, g, b), body.faces), body.vertices, body.blend)]
        skin, kind = [], "ghost" if ghost else "person"
        for i, part in enumerate(parts if ghost else dressed(body, number).parts):
            name = f"/world/{kind}_{number}_{i}"
            skin.append((add_part(self._scene, name, part, self.skeleton.rest, shadow=not ghost), part))
        if ghost:
            return _Figure(skin, None)
        limb = trimesh.creation.cylinder(1.0, segment=[[0.0, 0.0, -0.05], [0.0, 0.0, 1.05]], sections=10)
        limbs = self._scene.add_batched_meshes_simple(
            f"/world/limbs_{number}",
            np.asarray(limb.vertices, np.float32),
            np.asarray(limb.faces, np.uint32),
            np.tile((1.0, 0.0, 0.0, 0.0), (len(BONES), 1)),
            np.zeros((len(BONES), 3)),
            batched_scales=np.ones((len(BONES), 3)),
            opacity=0.0,
            cast_shadow=False,
            receive_shadow=False,
            lod="off",
        )
        self._hands.listen_to_limbs(limbs, number)
        return _Figure(skin, limbs)

    def _pose(
        self, figures: list[_Figure], people: State, ground: Plane | None, shown: np.ndarray | None = None
    ) -> None:
        """Pose people, or ghosts if there is no ground, and add figures for those who are new."""
        while len(figures) < len(people.x):
            figures.append(self._new_figure(len(figures), ghost=ground is None))
        q = people.q if ground is None else lifted_hands(people.q, people.x, self.skeleton, ground)
        turns, x = wxyz_of(self.skeleton.global_rotations(q)).round(5), people.x
        near = x[:, NEAR_ENDS]
        ways = x[:, list(BONES)] - near
        lengths, upright = np.linalg.norm(ways, axis=-1), upright_to(ways)
        for i, figure in enumerate(figures[: len(x)]):
            for skin, part in figure.skin:
                skin.visible = shown is None or bool(shown[i])
                set_bones(skin, turns[i, part.joints], x[i, part.joints].round(5))
            if figure.limbs is not None:
                figure.limbs.visible = True
                # Relative to the pelvis: a slow browser updates a node's position at once but its contents later.
                figure.limbs.position = x[i, 0]
                figure.limbs.batched_positions = near[i] - x[i, 0]
                figure.limbs.batched_wxyzs = upright[i]
                scales = np.stack((self._wide, self._wide, lengths[i] + 0.5 * self._wide), axis=-1)
                figure.limbs.batched_scales = scales.astype(np.float32)

    def _hide(self, figures: list[_Figure]) -> None:
        """Hide figures that are left over: to remove a skinned mesh breaks viser's page."""
        for figure in figures:
            for node in (*(skin for skin, _ in figure.skin), *([figure.limbs] if figure.limbs else [])):
                node.visible = False

    # --- the world

    def lay_ground(self, plane: Plane) -> None:
        """Put the floor's sheet under the people."""
        self._ground.wxyz = upright_to(plane.normal)
        # The sheet moves by whole metres along its squares, so that they appear fixed.
        axes, shift = floor_axes(plane)
        x, y, _ = np.round(axes @ np.array(self.origin) + shift)
        self._ground.position = axes.T @ (np.array((x, y, -0.002)) - shift)

    def _draw_rings(self, shot: Shot) -> None:
        """Draw rings where people are sent, and around people who are steered among others."""
        import trimesh

        steered = shot.people.x[list(shot.steered), 0, :2].tolist() if len(shot.people.x) > 1 else ()
        places = np.array((*shot.goals, *steered)).reshape(-1, 2)
        while len(self._rings) < len(places):
            ring, name = trimesh.creation.annulus(0.30, 0.36, 0.002), f"/world/ring_{len(self._rings)}"
            shape = np.asarray(ring.vertices, np.float32), np.asarray(ring.faces, np.uint32)
            self._rings.append(self._scene.add_mesh_simple(name, *shape, color=GOAL_COLOR, cast_shadow=False))
        for i, mark in enumerate(self._rings):
            mark.visible = i < len(places)
            if mark.visible:
                mark.wxyz = upright_to(shot.ground.normal)
                mark.position = (*places[i], floor_height(shot.ground, *places[i].tolist()) + 0.01)

    def _place_objects(self, shot: Shot) -> None:
        for key in set(self.objects) - set(shot.objects):
            self.objects.pop(key).remove()
        for key, solid in shot.objects.items():
            if key not in self.objects:
                # A flat side that gets its own shadow is full of stripes, and a sheet on the floor casts none.
                self.objects[key] = self._scene.add_mesh_simple(
                    f"/world/object_{key}",
                    solid.vertices.astype(np.float32),
                    solid.faces.astype(np.uint32),
                    color=object_color(solid.name),
                    flat_shading=not solid.radius,
                    side="double",
                    cast_shadow=solid.name != "patch",
                    receive_shadow=False,
                )
                if solid.name == "crate":
                    self._hands.listen_to_box(self.objects[key], key)
            self.objects[key].position = solid.centre
            self.objects[key].wxyz = wxyz_of(solid.rotation)

    def _draw_forces(self, shot: Shot, look: Look) -> None:
        contact = external = np.zeros((0, 2, 3))
        x, report, about = shot.people.x, shot.report, shot.people.x[0, 0]
        if report is not None and look.contact_forces:
            # The ground's force on the person.
            contact = _arrows(x, report.contact_forces)
        if report is not None and look.external_forces:
            # Draw a hand's force where it holds, and not again at the ends of the bone.
            external = pushes(x, report.external_forces, self.skeleton)
            if shot.pulls:
                external = _arrows(*(np.stack(values) for values in zip(*shot.pulls, strict=True)), least=0.0)
        for handle, points in ((self._contact, contact), (self._external, external)):
            handle.visible = len(points) > 0
            if len(points):
                handle.position = about
                handle.points = (points - about).astype(np.float32)


def in_view(shot: Shot) -> Float[np.ndarray, "n 22 3"]:
    """Return the joints of everybody who is not far from the people who are steered, or else from the first."""
    x = shot.people.x
    middle = x[list(shot.steered) or [0], 0].mean(0)
    near = np.linalg.norm(x[:, 0] - middle, axis=-1) < TOGETHER
    near[list(shot.steered)] = True
    return x[near | ~near.any()]


def pushes(
    x: Float[np.ndarray, "p 22 3"], forces: Float[np.ndarray, "p 22 3"], skeleton: Skeleton
) -> Float[np.ndarray, "n 2 3"]:
    """Return arrows of external forces, starting at the skin; a push spread over several joints is one arrow."""
    arrows = []
    for joints, force in zip(x, forces, strict=True):
        at, total = resultants(joints, force)
        nearest = np.linalg.norm(at[:, None] - joints, axis=-1).argmin(-1)
        way = total / np.maximum(np.linalg.norm(total, axis=-1, keepdims=True), 1e-9)
        arrows.append(_arrows(at + skeleton.radii[nearest, None] * way, total))
    return np.concatenate(arrows)


def _arrows(
    at: Float[np.ndarray, "*b 3"], forces: Float[np.ndarray, "*b 3"], least: float = MIN_FORCE
) -> Float[np.ndarray, "n 2 3"]:
    drawn = np.linalg.norm(forces, axis=-1) > least
    return np.stack((at[drawn], at[drawn] + METRES_PER_NEWTON * forces[drawn]), axis=-2)
