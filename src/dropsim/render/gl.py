"""A painter in OpenGL under EGL: no screen is needed, and no graphics card either (Mesa's llvmpipe)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from PIL import Image
from scipy.ndimage import gaussian_filter

from dropsim.body.skeleton import joint_index
from dropsim.render import shaders
from dropsim.render.camera import Camera, View
from dropsim.render.gl_mesh import ConeMesh, Programs, SkinnedMesh
from dropsim.render.light import FLOOR_TEXELS, SUN_TEXELS, Light, clip_matrix
from dropsim.render.snapshot import HAIR, NOTHING, SHORTS, SKIN, Figure, Snapshot, Parts
from dropsim.render.painter import NoGLError, Painter
from dropsim.render.shadow import sky_shadow
from dropsim.render.stage import Floor, Style

if TYPE_CHECKING:
    import moderngl

SAMPLES = 4
"""A pixel, against jagged edges."""
SIGHT = 3.4
"""How far one sees before fog, in distances of the camera from its target."""
SHARP, SOFT = 1.0, 4.5
"""Blur of the sun's shadow on the floor where something touches it, and far from that [texels]."""
MAX_MESHES = 16
"""That are kept on the card for the next picture."""
GHOST_PLACE = -1
"""The ghost's among the people in a picture."""


def _open_context() -> "moderngl.Context":
    try:
        import moderngl
    except ImportError:
        raise NoGLError("drawing bodies needs moderngl: run `pip install 'dropsim[video]'`") from None
    settings: dict[str, Any] = {"backend": "egl"}
    try:
        return moderngl.create_context(standalone=True, require=330, **settings)
    except Exception as error:
        # moderngl raises Exception itself, for a missing library and for a missing driver alike.
        detail = " ".join(str(error).split()) or type(error).__name__
        raise NoGLError(f"OpenGL does not start without a screen ({detail}): install the packages libegl1 and libgl1-mesa-dri") from None


class GLPainter(Painter):
    """Draws on an OpenGL 3.3 context, for one thread at a time."""

    def __init__(self, context: "moderngl.Context") -> None:
        self._context = context
        self._scene, self._bones = context.buffer(reserve=4 * (2 * 16 + 6 * 4)), context.buffer(reserve=4 * 66 * 4)
        self._sun_map = context.depth_texture((SUN_TEXELS, SUN_TEXELS))
        self._sun_map.compare_func = "<="
        self._sun_target = context.framebuffer(depth_attachment=self._sun_map)
        self._floor_target = context.framebuffer(context.renderbuffer((FLOOR_TEXELS, FLOOR_TEXELS), 1))
        self._shadows = context.texture((FLOOR_TEXELS, FLOOR_TEXELS), 2)
        for texture in (self._sun_map, self._shadows):
            texture.repeat_x = texture.repeat_y = False
        self._cone, self._body = (
            Programs(
                self._program(shaders.vertex(vertex), shaders.surface(paint)),
                self._program(shaders.vertex(vertex, shadow=True), shaders.SHADOW_FRAGMENT),
            )
            for vertex, paint in ((shaders.PART_VERTEX, shaders.FLAT_PAINT), (shaders.BODY_VERTEX, shaders.CLOTHES_PAINT))
        )
        self._skin = self._program(shaders.SKIN, None)
        floor = self._program(shaders.vertex(shaders.FLOOR_VERTEX), shaders.fragment(shaders.FLOOR_FRAGMENT))
        self._sky_program = self._program(shaders.vertex(shaders.SKY_VERTEX), shaders.fragment(shaders.SKY_FRAGMENT))
        self._floor, self._sky = (context.vertex_array(program, []) for program in (floor, self._sky_program))
        self._limbs = ConeMesh(context, self._cone, rings=5, segments=24)
        self._balls = ConeMesh(context, self._cone, rings=14, segments=52)
        self._targets: dict[tuple[int, int], tuple[moderngl.Framebuffer, moderngl.Framebuffer]] = {}
        self._meshes: dict[tuple[int, int], SkinnedMesh] = {}

    @classmethod
    def without_screen(cls) -> "GLPainter":
        """Open a context under EGL, or raise NoGLError with what to install."""
        with _open_context() as context:
            return cls(context)

    def _program(self, vertex: str, fragment: str | None) -> "moderngl.Program":
        varyings = ("position", "normal") if fragment is None else ()
        program = self._context.program(vertex_shader=vertex, fragment_shader=fragment, varyings=varyings)
        for name, binding in (("Scene", 0), ("Bones", 1)):
            block: Any = program.get(name, None)
            if block is not None:
                block.binding = binding
        for name, value in (("sun_map", 0), ("shadows", 1), ("opacity", 1.0)):
            if name in program:
                program[name] = value
        return program

    def paint(self, moment: Snapshot, camera: Camera, style: Style) -> Image.Image:
        """Cast the shadows, then draw everything, the ghost last."""
        with self._context as context:
            # Even skinning needs a complete target: without a screen there is none to begin with.
            self._sun_target.use()
            self._bind()
            self._forget(MAX_MESHES)
            light, capsules = Light.of(moment, camera), style.body == "capsules"
            self._tell(View.of(camera, *style.size), light, moment.floor, sight=SIGHT * camera.distance)
            bodies = [] if capsules else [self._posed(figure, i) for i, figure in enumerate(moment.people)]
            limbs = Parts.join([NOTHING, *(figure.capsules() for figure in moment.people if capsules)])
            self._cast_shadows(moment, light, bodies, limbs)
            target, resolved = self._target(style.size)
            target.use()
            target.clear(depth=1.0)
            # The picture is drawn upside down, because its first row is read last.
            context.front_face = "cw"
            for figure, mesh in zip(moment.people, bodies, strict=False):
                self._dress(figure)
                mesh.draw()
            self._limbs.draw(Parts.join([limbs, moment.arrows]))
            self._balls.draw(moment.spheres)
            context.disable(context.CULL_FACE)
            self._floor.render(context.TRIANGLE_STRIP, vertices=4)
            context.depth_func = "<="
            self._sky.render(context.TRIANGLES, vertices=3)
            if moment.ghost is not None:
                self._draw_ghost(moment.ghost, moment.ghost_opacity, capsules=capsules)
            context.copy_framebuffer(resolved, target)
            return Image.frombuffer("RGB", style.size, resolved.read(components=3, alignment=1), "raw", "RGB", 0, 1)

    def _bind(self) -> None:
        self._scene.bind_to_uniform_block(0)
        self._bones.bind_to_uniform_block(1)
        self._sun_map.use(0)
        self._shadows.use(1)
        self._context.depth_func, self._context.front_face = "<", "ccw"
        self._context.enable_only(self._context.DEPTH_TEST | self._context.CULL_FACE)

    def _tell(self, view: View, light: Light, floor: Floor, *, sight: float) -> None:
        """Write what all programs know, in the order of the shaders' block."""
        clip, (axes, shift) = clip_matrix(view), floor.frame()
        vectors = (*view.eye, sight, *light.sun, light.texel, *np.column_stack((axes, shift)).ravel())
        square = (*light.square.corner, 1 / light.square.side, 0.0)
        # GLSL's matrices are stored by columns.
        self._scene.write(np.concatenate((clip.T.ravel(), light.sun_map.T.ravel(), vectors, square)).astype("f4").tobytes())
        self._sky_program["unclip"] = tuple(np.linalg.inv(clip).T.ravel().tolist())

    def _cast_shadows(self, moment: Snapshot, light: Light, bodies: Sequence[SkinnedMesh], limbs: Parts) -> None:
        """Draw the sun's depth map, which people read, and the map of shadows on the floor."""
        for target, onto in ((self._sun_target, light.sun_map), (self._floor_target, light.floor_map)):
            target.use()
            target.clear(depth=1.0)
            for program in (self._body.shadow, self._cone.shadow):
                program["onto"] = tuple(onto.T.ravel().tolist())
            for mesh in bodies:
                mesh.cast()
            self._limbs.cast(limbs)
            self._balls.cast(moment.spheres)
        read = np.frombuffer(self._floor_target.read(components=1, alignment=1), np.uint8)
        shadow = self._blurred(read.reshape(FLOOR_TEXELS, FLOOR_TEXELS) / np.float32(255), moment.floor, light)
        self._shadows.write((255 * shadow + 0.5).astype(np.uint8).tobytes())

    @staticmethod
    def _blurred(sun: Float[np.ndarray, "n n"], floor: Floor, light: Light) -> Float[np.ndarray, "n n 2"]:
        """Return the sky's shadow and the sun's, which is sharp where the sky's is dark: there something touches the floor."""
        sky = sky_shadow(floor, light.square, light.points, light.radii, texels=FLOOR_TEXELS).T
        sharp, soft = (gaussian_filter(sun, sigma, truncate=2.0) for sigma in (SHARP, SOFT))
        return np.stack((sky, soft + np.clip(2.5 * sky, 0.0, 1.0) * (sharp - soft)), axis=-1)

    def _target(self, size: tuple[int, int]) -> "tuple[moderngl.Framebuffer, moderngl.Framebuffer]":
        """Return where a picture of a size is drawn, and where its samples are averaged."""
        if size not in self._targets:
            for old in (framebuffer for pair in self._targets.values() for framebuffer in pair):
                old.release()
            context, samples = self._context, min(SAMPLES, self._context.max_samples)
            drawn = context.framebuffer(context.renderbuffer(size, 4, samples=samples), context.depth_renderbuffer(size, samples=samples))
            self._targets = {size: (drawn, context.framebuffer(context.renderbuffer(size, 4)))}
        return self._targets[size]

    def _posed(self, figure: Figure, place: int) -> SkinnedMesh:
        """Skin a person's mesh; everyone in a picture has a place of their own."""
        key = (id(figure.skeleton), place)
        if key not in self._meshes:
            self._meshes[key] = SkinnedMesh(self._context, self._body, self._skin, figure.skeleton)
        mesh = self._meshes[key]
        self._bones.write(mesh.bones(figure).astype("f4").tobytes())
        mesh.pose()
        return mesh

    def _forget(self, keep: int) -> None:
        """Free the meshes that came first, if there are too many for the card."""
        while len(self._meshes) > keep:
            self._meshes.pop(next(iter(self._meshes))).release()

    def _dress(self, figure: Figure, *, ghost: bool = False) -> None:
        """Set the colours of a person, and where they end in the rest pose."""
        for name, color in (("shirt", figure.shirt), ("trousers", SHORTS), ("skin", SKIN), ("hair", HAIR)):
            self._body.picture[name] = figure.shirt if ghost else color
        names = ("left_ankle", "spine1", "neck", "head", "left_shoulder", "left_elbow")
        ankle, waist, neck, head, shoulder, elbow = figure.skeleton.rest[[joint_index(name) for name in names]].tolist()
        self._body.picture["heights"] = (ankle[1] + 0.05, waist[1], neck[1], head[1] + 0.055)
        self._body.picture["sleeve"] = (0.45 * shoulder[0] + 0.55 * elbow[0], head[2])

    def _draw_ghost(self, ghost: Figure, opacity: float, *, capsules: bool) -> None:
        """Draw a ghost's nearest surface only, thinly: first its depth, then its colour."""
        parts, meshes, program = NOTHING, [], self._body.picture
        if capsules:
            parts, program = ghost.capsules(), self._cone.picture
            parts = replace(parts, color=np.tile(ghost.shirt, (len(parts), 1)))
        else:
            self._dress(ghost, ghost=True)
            meshes = [self._posed(ghost, GHOST_PLACE)]
        self._context.enable(self._context.BLEND)
        for share in (0.0, opacity):
            program["opacity"] = share
            for mesh in meshes:
                mesh.draw()
            self._limbs.draw(parts)
        program["opacity"] = 1.0
        self._context.disable(self._context.BLEND)
