"""Boxes and meshes: distances, rays, and nothing that gets through."""

import math

import numpy as np
import pytest

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.rotations import exp
from dropsim.physics.contact import (
    Marks,
    Plane,
    Shape,
    colliders_by_world,
    contact_targets,
    nearest_surface,
    of_person,
    push_out,
    ray,
    solids,
)
from dropsim.physics.shapes import BOX, MESH, Mesh

H = 1 / 30
TURN = exp(np.array([0.4, -0.3, 1.1]))
CENTRE = np.array([0.3, -0.2, 0.5])


def box_mesh(half) -> Mesh:
    """A closed mesh of twelve triangles."""
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * np.array(half, float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return Mesh(corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]))


def ball_mesh(radius: float, rings: int = 40) -> Mesh:
    """A sphere of about 2 rings^2 * 2 triangles."""
    up, around = np.linspace(0, math.pi, rings + 1), 2 * math.pi * np.arange(2 * rings) / (2 * rings)
    points = np.stack(
        [np.stack((np.sin(u) * np.cos(around), np.sin(u) * np.sin(around), np.cos(u) + 0 * around), -1) for u in up]
    )
    index = np.arange(points[..., 0].size).reshape(points.shape[:2])
    a, b, c, d = index[:-1], np.roll(index, -1, 1)[:-1], index[1:], np.roll(index, -1, 1)[1:]
    faces = np.concatenate([np.stack((a, c, d), -1).reshape(-1, 3), np.stack((a, d, b), -1).reshape(-1, 3)])
    return Mesh(radius * points.reshape(-1, 3), faces)


def shape_of(kind, half, at=CENTRE, turn=TURN, mesh=None):
    """A box, or a mesh: that of the box unless given."""
    if kind == "box":
        return Shape(BOX, half, at, turn)
    return Shape(MESH, (0.0, 0.0, 0.0), at, turn, mesh=mesh or box_mesh(half))


KINDS = ["box", "mesh"]


@pytest.mark.parametrize("kind", KINDS)
def test_distance_and_normal_lead_to_the_surface(kind, rng):
    shape = shape_of(kind, (0.4, 0.2, 0.7))
    # The point x - d n lies on the surface, so its own distance is 0; d changes by dx . n, as eikonal functions do.
    points = CENTRE + 0.8 * rng.standard_normal((1, 400, 3))
    found = nearest_surface([shape], points)
    foot = points - found.distance[..., None] * found.normal
    np.testing.assert_allclose(nearest_surface([shape], foot).distance, 0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found.normal, axis=-1), 1, atol=1e-9)
    assert (found.distance < 0).any()
    for axis in np.eye(3):
        ahead, back = (nearest_surface([shape], points + step * axis).distance for step in (1e-6, -1e-6))
        change = (ahead - back) / 2e-6
        smooth = np.abs(change - found.normal @ axis) < 1e-4
        assert smooth.mean() > 0.97  # but for the few points between two faces


def test_the_hierarchy_finds_what_brute_force_finds(rng):
    # A ball of 6,400 triangles is a sphere to within the sagitta r (1 - cos(pi / 80)) = 0.8 mm.
    points = rng.standard_normal((1, 300, 3))
    found = nearest_surface([Shape(MESH, (0.0, 0.0, 0.0), np.zeros(3), np.eye(3), mesh=ball_mesh(1.0))], points)
    np.testing.assert_allclose(found.distance, np.linalg.norm(points, axis=-1) - 1, atol=1.6e-3)


def test_meshes_of_boxes_in_one_hierarchy_are_the_boxes(rng):
    points = 2 * rng.standard_normal((1, 300, 3))
    places = np.array([[-1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, -1.0, 1.0]])
    halves = [(0.3, 0.2, 0.5), (0.5, 0.4, 0.2), (0.2, 0.2, 0.9)]
    meshes, boxes = (
        [shape_of(kind, half, at) for at, half in zip(places, halves, strict=True)] for kind in ("mesh", "box")
    )
    np.testing.assert_allclose(
        nearest_surface(meshes, points).distance, nearest_surface(boxes, points).distance, atol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rays_enter_where_the_distance_is_zero(kind, rng):
    shape = shape_of(kind, (0.4, 0.2, 0.7), mesh=ball_mesh(0.5, 12))
    here, hits = of_person(solids((shape,), ()), 0), 0
    for _ in range(300):
        start = CENTRE + 3 * rng.standard_normal(3)
        way = 2 * (CENTRE + 0.3 * rng.standard_normal(3) - start)
        share, normal = ray(tuple(start), tuple(way), here, False)
        path = nearest_surface([shape], (start + np.linspace(0, 1, 200)[:, None] * way)[None]).distance[0]
        if path[0] <= 0:
            continue
        assert math.isfinite(share) or path.min() > -0.02  # a way that grazes may be missed between samples
        if math.isfinite(share):
            hits += 1
            at = nearest_surface([shape], (start + share * way)[None, None])
            assert abs(float(at.distance[0, 0])) < 1e-9
            assert np.dot(normal, way) < 0
            assert path[: int(share * 199)].min(initial=1.0) > -1e-9
    assert hits > 50


def test_rays_leave_out_what_nobody_sees():
    wall = Shape(BOX, (1.0, 0.1, 1.0), np.array([0.0, 2.0, 1.0]), np.eye(3), seen=False)
    here = of_person(solids((Plane.ground(), wall), ()), 0)
    assert ray((0.0, 0.0, 1.0), (0.0, 10.0, 0.0), here, False)[0] == pytest.approx(0.19)
    assert math.isinf(ray((0.0, 0.0, 1.0), (0.0, 10.0, 0.0), here, True)[0])
    assert ray((0.0, 0.0, 1.0), (0.0, 0.0, -2.0), here, True) == (0.5, (0.0, 0.0, 1.0))


def pushed(before, x, colliders, *, radius=0.05):
    """Settle one sphere and return where it is put."""
    start, end = np.full((NUM_JOINTS, 3), 50.0), np.full((NUM_JOINTS, 3), 50.0)
    start[0], end[0] = before, x
    marks = [np.zeros(NUM_JOINTS, dtype=np.bool_) for _ in range(2)]
    sums = [np.zeros(NUM_JOINTS) for _ in range(2)]
    here = of_person(solids(tuple(colliders), ()), 0)
    push_out(end, start, np.full(NUM_JOINTS, radius), here, 0.0, 0.0, H, Marks(*marks, *sums))
    return end[0]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_gets_through_a_thin_wall_at_20_metres_per_second(kind, rng):
    # A frame at 20 m/s is 67 cm; the walls are 2 cm thick, and their thin side, own z, points along -y.
    turn = exp(np.array([0.0, 0.0, 0.3])) @ exp(np.array([math.pi / 2, 0.0, 0.0]))
    wall = shape_of(kind, (2.0, 2.0, 0.01), np.zeros(3), turn)
    for _ in range(200):
        before = turn @ np.array([*rng.uniform(-0.8, 0.8, 2), rng.uniform(0.06, 0.6)])
        x = before + 20 * H * turn @ np.array([*rng.uniform(-0.5, 0.5, 2), -1.0])
        after = pushed(before, x, [wall])
        assert (turn.T @ after)[2] >= 0.01 + 0.05 - 1e-9


def test_a_wall_that_moves_does_not_pass_through_anybody():
    # At 20 m/s it jumps over a sphere that stands still: the way counts relative to the wall.
    wall = Shape(BOX, (2.0, 0.01, 2.0), np.array([0.0, 0.4, 0.0]), np.eye(3), velocity=np.array([0.0, 20.0, 0.0]))
    stands = np.array([0.0, 0.2, 0.0])
    assert pushed(stands, stands, [wall])[1] == pytest.approx(0.4 + 0.01 + 0.05)


def test_the_contact_energy_knows_shapes():
    wall = Shape(BOX, (2.0, 0.01, 2.0), np.array([0.0, 0.4, 0.0]), np.eye(3))
    before = np.full((1, NUM_JOINTS, 3), 50.0)
    before[0, 0] = [0.0, 0.2, 0.0]
    x = before.copy()
    x[0, 0, 1] = 0.8
    p, active = np.empty((1, NUM_JOINTS, 3)), np.empty((1, NUM_JOINTS), dtype=np.bool_)
    contact_targets(x, before, np.full(NUM_JOINTS, 0.05), solids((wall,), ()), 0.8, H, p, active)
    assert active[0].tolist() == [True] + [False] * 21
    np.testing.assert_allclose(p[0, 0], [0.0, 0.34, 0.0], atol=1e-12)


def test_a_shape_of_one_world_is_in_that_world_alone():
    ball = Shape(MESH, (0.0, 0.0, 0.0), np.zeros(3), np.eye(3), mesh=ball_mesh(0.5, 8))
    box = Shape(BOX, (0.5, 0.5, 0.5), np.array([5.0, 0.0, 0.0]), np.eye(3))
    given = colliders_by_world(((1, ball), (2, box)), (3, 2))
    distance = nearest_surface(
        given, np.broadcast_to(np.array([[0.6, 0.0, 0.0], [5.6, 0.0, 0.0]]), (3, 2, 2, 3)).copy()
    ).distance
    np.testing.assert_allclose(distance[1, :, 0], 0.1, atol=1e-9)
    np.testing.assert_allclose(distance[2, :, 1], 0.1, atol=1e-9)
    assert distance[0].min() > 1e6
    assert distance[2, :, 0].min() > 3
