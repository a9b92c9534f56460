"""Draws a snapshot on the processor alone: no graphics card, no display, no OpenGL."""

from dataclasses import replace

import numpy as np
from PIL import Image

from dropsim.body.clothes import outfit
from dropsim.compute.threads import single_threaded
from dropsim.render import raster
from dropsim.render.camera import Camera, View
from dropsim.render.light import cast
from dropsim.render.meshes import Mesh, cones, facets, skinned
from dropsim.render.snapshot import Figure, Snapshot
from dropsim.render.stage import Style, floor_axes

SIGHT = 3.4
"""How far one sees before fog, in distances of the camera from its target."""


@single_threaded
def paint(snapshot: Snapshot, camera: Camera, style: Style) -> Image.Image:
    """Return a picture of the style's size, without its caption."""
    view, capsules = View.of(camera, *style.size), style.body == "capsules"
    figures = [*snapshot.people, *([] if snapshot.ghost is None else [snapshot.ghost])]
    bodies = [
        _body(figure, number, capsules=capsules, plain=figure is snapshot.ghost)
        for number, figure in enumerate(figures)
    ]
    outfits = np.stack([outfit(figure.skeleton, figure.shirt, plain=figure is snapshot.ghost) for figure in figures])
    solid = Mesh.join(
        [
            *bodies[: len(snapshot.people)],
            cones(snapshot.spheres, rings=14, segments=52),
            facets(snapshot.triangles, snapshot.triangle_colors),
        ]
    )
    light, shadows = cast(snapshot, solid, camera, view.eye)
    rays, ground = view.rays(), view.ground(*floor_axes(snapshot.floor))
    picture = np.empty((view.height, view.width, 3), np.uint8)
    raster.draw_floor(picture, rays, ground, SIGHT * camera.distance, shadows.dark, shadows.square)
    opaque = Mesh.join([solid, cones(snapshot.arrows, rings=5, segments=24)])
    everything = [(opaque, 1.0), *((body, snapshot.ghost_opacity) for body in bodies[len(snapshot.people) :])]
    fine = View.of(camera, 2 * view.width, 2 * view.height)
    floor, nearness = fine.ground(*floor_axes(snapshot.floor))[2], np.zeros((fine.height, fine.width), np.float32)
    for mesh, opacity in everything:
        owner = np.zeros(nearness.shape, np.int32)
        points = fine.projected(mesh.surface[:, :3], mesh.lift)
        raster.rasterize(points, mesh.faces, -1, floor, nearness, owner)
        raster.shade(
            picture, owner, nearness, opacity, points, mesh.faces, mesh.surface, outfits, light, 1 / view.focal
        )
    return Image.fromarray(picture)


def _body(figure: Figure, number: int, *, capsules: bool, plain: bool) -> Mesh:
    if not capsules:
        return skinned(figure, number)
    parts = figure.capsules()
    if plain:
        parts = replace(parts, color=np.tile(figure.shirt, (len(parts), 1)))
    return cones(parts, rings=5, segments=24)
