"""Draws a snapshot on the processor alone: no graphics card, no display, no OpenGL."""

import numpy as np
from PIL import Image

from dropsim.body.clothes import outfit
from dropsim.compute.threads import single_threaded
from dropsim.render import raster
from dropsim.render.camera import Camera, View
from dropsim.render.light import cast
from dropsim.render.meshes import Mesh, arrow_mesh, skinned, solid_mesh
from dropsim.render.snapshot import Snapshot
from dropsim.render.stage import floor_axes

SIGHT = 3.4
"""How far one sees before fog, in distances of the camera from its target."""


@single_threaded
def paint(snapshot: Snapshot, camera: Camera, size: tuple[int, int]) -> Image.Image:
    """Return a picture of a size [pixels]."""
    view = View.of(camera, *size)
    figures = [*snapshot.people, *([] if snapshot.ghost is None else [snapshot.ghost])]
    bodies = [skinned(figure, number) for number, figure in enumerate(figures)]
    outfits = np.stack([outfit(figure.skeleton, figure.shirt, plain=figure is snapshot.ghost) for figure in figures])
    solid = Mesh.join([*bodies[: len(snapshot.people)], *map(solid_mesh, snapshot.objects)])
    light, shadows = cast(snapshot, solid, camera, view.eye)
    rays, ground = view.rays(), view.ground(*floor_axes(snapshot.floor))
    picture = np.empty((view.height, view.width, 3), np.uint8)
    raster.draw_floor(picture, rays, ground, SIGHT * camera.distance, shadows.dark, shadows.square)
    opaque = Mesh.join([solid, *map(arrow_mesh, snapshot.arrows)])
    everything = [(opaque, 1.0), *((body, snapshot.ghost_opacity) for body in bodies[len(snapshot.people) :])]
    fine = View.of(camera, 2 * view.width, 2 * view.height)
    floor, nearness = fine.ground(*floor_axes(snapshot.floor))[2], np.zeros((fine.height, fine.width), np.float32)
    for mesh, opacity in everything:
        owner = np.zeros(nearness.shape, np.int32)
        points = fine.projected(mesh.surface[:, :3], mesh.lift)
        raster.rasterize(points, mesh.faces, -1, floor, nearness, owner)
        raster.shade(picture, (owner, nearness, points), mesh[::2], outfits, light, opacity, 1 / view.focal)
    return Image.fromarray(picture)
