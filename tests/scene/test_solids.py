"""Boxes, ramps, stairs, terrain and meshes in scenes, the people who walk over them, and loose things."""

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.skeleton import joint_index
from dropsim.control.floor import NOTICE, REACH, Footing, FootingStage, kept_from_walls, noticed
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane, Shape, nearest_surface, of_person, ray, solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BOX
from dropsim.physics.step import Simulator
from dropsim.priors.motion_field import MotionField
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, Landings, State
from dropsim.scene import (
    Box,
    Carry,
    Cylinder,
    Follow,
    Ground,
    MeshObject,
    Obstacle,
    Patch,
    Person,
    Push,
    Ramp,
    Scene,
    SceneContext,
    Stairs,
    Terrain,
    World,
    run,
)
from dropsim.scene.files import Setup, read_scene, write_scene
from dropsim.scene.loose import response_of
from dropsim.scene.mesh_files import read_mesh
from dropsim.scene.objects import SHEET

H = 1 / 30
UP = np.array([0.0, 0.0, 1.0])
CLIP = stepping_clip(0.5)
SKELETON = CLIP.skeleton


def height(element, x, y, *, top=5.0):
    """Return the height of the highest surface below a point."""
    here = of_person(solids((Plane.ground(), *element.shapes(0.0, H)), ()), 0)
    return top - 10 * ray((x, y, top), (0.0, 0.0, -10.0), here, True)[0]


def test_a_ramp_rises_as_its_slope_says():
    ramp = Ramp((0.0, 2.0), 12.0, length=3.0, landing=1.0)
    for y in (2.1, 3.0, 4.9):
        assert height(ramp, 0.3, y) == pytest.approx((y - 2.0) * math.tan(math.radians(12)), abs=1e-9)
    assert height(ramp, 0.3, 5.5) == pytest.approx(ramp.height, abs=1e-9)
    assert [height(ramp, 0.3, y) for y in (1.9, 6.5)] == pytest.approx([0.0, 0.0], abs=1e-9)
    # Turned by 90 degrees counterclockwise it rises toward -x.
    assert height(replace(ramp, facing=90.0), -1.0, 2.3) == pytest.approx(math.tan(math.radians(12)), abs=1e-9)


def test_stairs_rise_step_by_step():
    stairs = Stairs((0.0, 2.0), num_steps=3, rise=0.15, run=0.3, landing=1.0)
    assert [height(stairs, 0.0, y) for y in (1.9, 2.1, 2.4, 2.7, 3.5, 3.7)] == pytest.approx(
        [0.0, 0.15, 0.3, 0.45, 0.45, 0.0]
    )


def test_terrain_has_its_heights_and_is_solid():
    terrain = Terrain((0.0, 0.0), (2.0, 2.0), ((0.0, 0.1, 0.0), (0.1, 0.3, 0.2), (0.0, 0.1, 0.0)))
    assert [
        height(terrain, x, y) for x, y in ((0.0, 0.0), (1.0, 0.0), (0.5, 0.0), (0.0, -1.0 + 1e-9))
    ] == pytest.approx([0.3, 0.2, 0.25, 0.1])
    points = np.array([[[0.0, 0.0, 0.2], [0.0, 0.0, 0.4], [3.0, 0.0, 0.1], [0.9, 0.9, -0.1]]])
    assert (nearest_surface(terrain.shapes(0.0, H), points).distance[0] < 0).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "element",
    [
        Box((0.0, 0.0, 0.0), (0.6, 0.6, 1.0)),
        Stairs((0.0, -0.3), 1, 1.0, 0.6, 0.6, 0.6),
    ],
)
def test_nobody_is_pushed_out_through_the_bottom_of_what_stands_on_the_ground(element):
    # 6 cm inside, 2.5 cm above the ground: the way out is to the side.
    surface = nearest_surface(element.shapes(0.0, H), np.array([[0.24, 0.0, 0.025]]))
    assert float(surface.distance[0]) == pytest.approx(-0.06)
    np.testing.assert_allclose(surface.normal[0], (1.0, 0.0, 0.0), atol=1e-12)
    # It is drawn as it was.
    assert min(
        float((solid.vertices @ solid.rotation.T + solid.centre)[:, 2].min()) for solid in element.solids(None)
    ) == pytest.approx(0.0)


def test_what_hangs_in_the_air_has_a_bottom():
    surface = nearest_surface(Box((0.0, 0.0, 1.0), (0.6, 0.6, 1.0)).shapes(0.0, H), np.array([[0.24, 0.0, 1.025]]))
    np.testing.assert_allclose(surface.normal[0], (0.0, 0.0, -1.0), atol=1e-12)


def test_a_box_moves_along_its_path_and_carries_its_velocity():
    box = Box(path=((0.0, 0.0, 5.0, 0.0, 0.0), (2.0, 2.0, 5.0, 0.0, 90.0)))
    (shape,) = box.shapes(1.0, H)
    np.testing.assert_allclose(shape.centre, [1.0, 5.0, 0.25])  # 1 m above the ground and 0.5 m in it
    np.testing.assert_allclose(shape.velocity, [1.0, 0.0, 0.0], atol=1e-9)
    assert shape.angular_velocity[2] == pytest.approx(math.radians(45))


OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1/1/1 2/2/2 4/4/4\nf 1 4 3\nf 2 3 -1\n"


def glb_of(vertices, indices, **accessor):
    binary = np.array(vertices, np.float32).tobytes() + np.array(indices, np.uint16).tobytes()
    tree = {
        "nodes": [{"mesh": 0, "translation": [0, 2, 0]}], "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": len(vertices), "type": "VEC3", **accessor},
            {"bufferView": 1, "componentType": 5123, "count": len(indices), "type": "SCALAR"},
        ],
        "bufferViews": [
            {"byteOffset": 0, "byteLength": 12 * len(vertices)}, {"byteOffset": 12 * len(vertices), "byteLength": 2 * len(indices)},
        ],
    }  # fmt: skip
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(binary), b"BIN\0") + binary
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def test_meshes_are_read_from_files(tmp_path):
    # A tetrahedron: its inside is below x + y + z = 1. In glTF y is up, so (x, y, z) becomes (x, -z, y), and the node
    # lifts it by 2 m.
    (tmp_path / "a.obj").write_text(OBJ)
    mesh = read_mesh(tmp_path / "a.obj")
    assert mesh.faces.shape == (4, 3)
    (tmp_path / "a.glb").write_bytes(
        glb_of([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [0, 2, 1, 0, 1, 3, 0, 3, 2, 1, 2, 3])
    )
    points = np.array([[[0.1, 0.1, 0.1], [0.5, 0.5, 0.5], [0.1, -0.1, 2.1]]])
    found = [
        nearest_surface(MeshObject(str(tmp_path / name)).shapes(0.0, H), points).distance[0] < 0
        for name in ("a.obj", "a.glb")
    ]
    assert [inside.tolist() for inside in found] == [[True, False, False], [False, False, True]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.obj", b"v 0 0 0\nf 1 2 3\n"), ("a.obj", b"nothing"), ("a.obj", b"v 1 2 x\n"), ("a.glb", b""), ("a.glb", b"glTF" + bytes(40)),
        ("a.glb", glb_of([[0, 0, 0]] * 3, [0, 1, 2], count=10**9)), ("a.glb", glb_of([[0, 0, 0]] * 3, [0, 1, 2])),
        ("a.glb", glb_of([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [0, 1, 7])),
    ],
)  # fmt: skip
def test_broken_meshes_are_refused_in_a_sentence(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.(obj|glb): ") as error:
        read_mesh(tmp_path / name)
    assert "\n" not in str(error.value)


def test_scene_files_hold_all_objects(tmp_path):
    (tmp_path / "a.obj").write_text(OBJ)
    elements = (
        Patch(friction=0.1), Box(mass=3.0), Box(unseen=True), Cylinder(), Ramp(friction=0.3), Stairs(num_steps=2), Terrain(),
        Obstacle((0.0, 2.0, 0.2), 0.2, mass=0.4), Box(path=((0.0, 0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 2.0, 0.0, 0.0))),
        MeshObject(str(tmp_path / "a.obj"), (0.0, 9.0, 0.0)),
    )  # fmt: skip
    write_scene(Setup(scene=Scene(elements=elements)), tmp_path / "scene.toml")
    assert 'file = "a.obj"' in (tmp_path / "scene.toml").read_text()
    assert read_scene(tmp_path / "scene.toml").scene.elements == elements


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Box, {"size": (1.0, 0.0, 1.0)}, "box size has to be in"),
        (Box, {"mass": 0.001}, "box mass has to be in"),
        (Box, {"mass": 1.0, "path": ((0.0,) * 5, (1.0,) * 5)}, "a mass or a path"),
        (Box, {"mass": 1.0, "size": (1.0, 0.01, 1.0)}, "at least 2 cm"),
        (Box, {"bounce": 2.0}, "box bounce has to be in"),
        (Obstacle, {"mass": 1.0, "radius": 0.01}, "at least 2 cm"),
        (Ramp, {"slope": 80.0}, "ramp slope has to be in"),
        (Stairs, {"num_steps": 0}, "stairs num_steps has to be in"),
        (Terrain, {"heights": ((0.0, 1.0),)}, "at least two rows"),
        (Terrain, {"heights": ((0.0, -1.0), (0.0, 0.0))}, "terrain heights has to be in"),
        (MeshObject, {"file": "a.stl"}, ".obj or .glb"),
        (Patch, {"friction": 0.0}, "patch friction has to be in"),
    ],
)
def test_objects_that_cannot_be_are_refused(kind, given, message):
    with pytest.raises(ValueError, match=message):
        kind(**given)


# The ground under people


def standing(x=0.0, y=0.0, z=0.0):
    shift = np.array([x, y, z]) - CLIP.joints[0, 0] * [1.0, 1.0, 0.0]
    return State(CLIP.joints[0] + shift, np.zeros((22, 3)), CLIP.q[0], np.zeros(0))


def footing_of(state, *elements):
    shapes = [shape for element in elements for shape in element.shapes(0.0, H)]
    return Footing.under(state, solids((Plane.ground(), *shapes), state.x.shape[:-2]), None, H)


def test_feet_find_their_own_ground():
    # One foot on a curb, one beside it; and on a slope each foot has its height and the slope.
    state = standing()
    left = state.x[7, 0] < state.x[8, 0]
    curb = Box((-1.0 if left else 1.0, 0.0, 0.0), (2.0, 2.0, 0.1))
    found = footing_of(state, curb)
    assert found.feet.tolist() == pytest.approx([0.1, 0.0])
    assert float(found.floor) == pytest.approx(0.05)
    found = footing_of(standing(y=3.0, z=0.2), Ramp((0.0, 2.0), 10.0))
    np.testing.assert_allclose(found.slopes, [[0.0, math.tan(math.radians(10))]] * 2, atol=1e-9)
    assert footing_of(state, replace(curb, unseen=True)).feet.tolist() == [0.0, 0.0]


def test_what_is_not_seen_is_known_a_while_after_it_was_touched():
    # A box at the head, and one that nobody touches: after NOTICE, which is a little more than 17 frames, the first is
    # seen, and stays so when the person has gone.
    x = np.zeros((1, 22, 3)) + np.arange(22)[:, None]
    person, gone = (
        State(place, np.zeros_like(x), np.tile(np.eye(3), (1, 22, 1, 1)), np.zeros((1, 0))) for place in (x, x + 100.0)
    )
    boxes = [Shape(BOX, (0.1, 0.1, 0.1), x[0, 15] + at, np.eye(3), seen=False) for at in (0.0, 50.0)]
    around, known, seen = solids(tuple(boxes), (1,)), None, []
    for frame in range(30):
        known = noticed(person if frame < 5 else gone, SKELETON, around, known, H)
        ways = (
            ray(tuple(place), (0.0, 0.0, -1.0), of_person(known, 0), True)[0]
            for place in (x[0, 15] + UP, x[0, 15] + UP + 50.0)
        )
        seen.append([way <= 1.0 for way in ways])
    assert [first for first, _ in seen].index(True) == pytest.approx(NOTICE / H - 1, abs=1)
    assert seen[-1] == [True, False]


def test_what_is_higher_than_a_step_is_no_ground():
    assert footing_of(standing(), Box((0.0, 0.0, 0.0), (2.0, 2.0, 0.6))).feet.tolist() == [0.0, 0.0]


def test_a_proposal_of_the_same_pose_is_the_same_pose_on_any_ground():
    # Put onto a level floor for the prior and back onto the slope, a body is where it was; bones keep their lengths on
    # the way.
    state = standing(y=3.0, z=math.tan(math.radians(10)))
    state = replace(state, x=state.x - [0.0, 0.0, 0.05])  # legs that can reach
    stage = FootingStage(footing_of(state, Ramp((0.0, 2.0), 10.0)), state, SKELETON, 1 / 30)
    asked = stage.query(state)
    assert SKELETON.bone_error(asked.x) < 1e-6
    back = stage.change(Candidates(asked.x[None], asked.q[None], np.zeros((1, 0)))).x[0]
    assert np.abs(back - state.x).max() < 2e-3  # toes are turned along a chord
    assert REACH < 1


def test_people_see_walls_and_slow_down():
    wall = Box((0.0, 2.0, 0.0), (4.0, 0.2, 2.0))
    around = solids((Plane.ground(), *wall.shapes(0.0, H)), ())
    state, floor = standing(), np.zeros(())

    def kept(x, y, speed):
        moving = replace(standing(x, y), v=np.tile([0.0, speed, 0.0], (22, 1)))
        return kept_from_walls(np.array([0.0, 1.2]), moving, floor, around)

    assert kept(0.0, 0.0, 1.2)[1] == 1.2
    assert 0 < kept(0.0, 0.9, 0.3)[1] < 1.2
    assert kept(0.0, 1.5, 0.3)[1] == 0
    # Along the wall they go on.
    assert kept_from_walls(
        np.array([1.0, 0.5]), replace(state, x=standing(y=1.5).x), floor, around
    ).tolist() == pytest.approx([1.0, 0.0])


def test_a_step_among_others_is_no_wall():
    # The fourth riser is 60 cm above the ground in front of the stairs, and 15 cm above the third tread.
    around = solids((Plane.ground(), *Stairs((0.0, 2.0), width=4.0).shapes(0.0, H)), ())
    moving = replace(standing(y=1.5), v=np.tile([0.0, 0.5, 0.0], (22, 1)))
    assert kept_from_walls(np.array([0.0, 0.5]), moving, np.zeros(()), around).tolist() == [0.0, 0.5]
    # A metre ahead the second tread is 30 cm higher: at 0.3 m/s upward that is 1 m/s.
    assert kept_from_walls(np.array([0.0, 1.2]), moving, np.zeros(()), around)[1] == pytest.approx(1.0, rel=1e-6)


def footing_with_a_swinging_foot(landing, *, seconds=0.2):
    """Return the footing of somebody in front of a step, at y = 0.5, whose left ankle will land at a place."""
    state = standing()
    shapes = [*Box((0.0, 1.5, 0.0), (4.0, 2.0, 0.15)).shapes(0.0, H)]
    around, known = solids((Plane.ground(), *shapes), ()), footing_of(state)
    x = float(state.x[7, 0])
    ahead = Landings(np.array([seconds, 0.0]), np.array([[x, landing], [0.0, 0.0]]))
    return Footing.under(state, around, known, H, ahead)


def test_a_foot_lands_on_a_tread_and_not_on_its_edge():
    # The foot goes from 3 cm behind the ankle to 19 cm before it: at 0.7 m it is on the step, at 0.2 m before it.
    for landing, height in ((0.7, 0.15), (0.2, 0.0)):
        found = footing_with_a_swinging_foot(landing)
        assert not found.ways.any()
        assert (found.feet[0] > 0.01) == (height > 0)
    # At 0.45 m an edge would be under it: it goes on for 8 cm more, in equal parts over the time that is left.
    found = footing_with_a_swinging_foot(0.45)
    assert np.linalg.norm(found.ways[0]) == pytest.approx(0.08 * H / 0.2, abs=0.02 * H / 0.2 + 1e-9)
    assert found.ways[0, 1] > 0
    assert not found.ways[1].any()


def test_the_ground_of_a_foot_rises_while_it_swings_and_is_there_when_it_lands():
    # A share of (1 - t)^2 of the rise is left after a share t of the way: a foot that lands in one frame is there.
    heights = [float(footing_with_a_swinging_foot(0.7, seconds=seconds).feet[0]) for seconds in (0.4, 0.2, 1 / 30)]
    assert 0 < heights[0] < heights[1] < heights[2]
    assert heights[2] == pytest.approx(0.15, abs=1e-6)


# Worlds


@pytest.fixture(scope="module")
def walkers():
    return Simulator(MotionField.shipped()).with_options(num_samples=16)


AHEAD = Follow(((0.0, 0.0, 1.2),))


@pytest.mark.slow
def test_nobody_goes_through_a_wall_that_they_do_not_see(walkers):
    wall = Box((0.0, 2.0, 0.0), (6.0, 0.05, 2.2), unseen=True)
    motion = run(World(Scene(elements=(AHEAD, wall)), walkers), 100, [0, 1]).motions[0]
    assert motion.joints[..., 1].max() < 2.0


def limp(x, v=(0.0, 0.0, 0.0)):
    prior = PassivePrior(SKELETON)
    start = prior.start_at_rest(x, CLIP.q[0])
    return replace(start, v=start.v + np.array(v))


def test_somebody_who_runs_into_a_box_gives_it_what_they_lose():
    # In the air, so that nothing else pushes: the momentum of both along y stays what it was.
    box = Box((0.0, 0.6, 2.5), (1.0, 0.3, 2.0), mass=20.0, friction=0.02)
    simulator = Simulator(PassivePrior(SKELETON), pose=None).with_options(kinematic=False, correct=False, num_samples=1)
    world = World(Scene(elements=(box,), get_up=False), simulator)
    start = world.start_from(limp(standing(z=2.5).x, (0.0, 2.0, 0.0)).map(lambda values: values[None]))
    now, rng, mass = start, world.streams(0), SKELETON.masses
    for _ in range(12):
        now, _ = world.step(now, rng)
    given = 20.0 * now.memories[0].v[1]
    kept = (mass * now.people.v[0, :, 1]).sum()
    assert given > 10
    assert given + kept == pytest.approx(2.0 * mass.sum(), rel=1e-6)


def pushed_into(box, start, force, **options):
    """Return a world with a box, and somebody limp whose right ankle is pushed, its start and its random numbers."""
    simulator = Simulator(PassivePrior(SKELETON), pose=None).with_options(correct=False, num_samples=1, **options)
    world = World(Scene(elements=(box, Push("right_ankle", force, 0.0, 0.2)), get_up=False), simulator)
    return world, world.start_from(limp(start).map(lambda values: values[None])), world.streams(0)


def deepest_in(size, now):
    """Return how deep people are in a box [m]."""
    crate = Shape(BOX, tuple(s / 2 for s in size), now.memories[0].x, now.memories[0].R)
    return float((SKELETON.radii - nearest_surface([crate], now.people.x[0]).distance).max())


ANKLE = joint_index("right_ankle")


def test_a_box_makes_way_for_a_foot_that_is_suddenly_pushed_into_it():
    # A push of 3000 N takes the ankle along within one frame: objects, which expect people to keep their velocities,
    # see nothing of it.
    x = standing().x
    box = Box((float(x[ANKLE, 0]), float(x[ANKLE, 1]) + 0.3, 0.0), (0.3, 0.3, 0.3), mass=2.0)
    world, now, rng = pushed_into(box, x, (0.0, 3000.0, 0.0))
    for _ in range(4):
        now, _ = world.step(now, rng)
        assert deepest_in(box.size, now) < 0.011
    assert now.memories[0].x[1] > box.position[1] + 0.02


def test_a_foot_that_is_pushed_onto_a_box_on_the_ground_stays_out_of_it():
    # The box cannot make way, so the foot has to, although 3000 N push it down. Nothing else bears a body without a
    # prior, so its momentum changes by gravity and the forces of the report: M dv / h = M g + sum f.
    x, mass = standing(z=0.4).x, SKELETON.masses
    box = Box((float(x[ANKLE, 0]), float(x[ANKLE, 1]), 0.0), (0.5, 0.5, 0.35), mass=2.0)
    for kinematic in (True, False):
        world, now, rng = pushed_into(box, x, (0.0, 0.0, -3000.0), kinematic=kinematic)
        deepest, upward = 0.0, 0.0
        for _ in range(12 if kinematic else 4):
            before = now.people.v
            now, report = world.step(now, rng)
            deepest = max(deepest, deepest_in(box.size, now))
            assert now.memories[0].x[2] > 0.175 - 0.005  # nor does the box go deeper into the ground than people do
            forces = report.external_forces.sum((0, 1))
            upward = max(upward, forces[2] + 3000.0)
            changed = (mass[:, None] * (now.people.v - before)[0]).sum(0) * world.fps
            if not kinematic:
                weight = mass.sum() * np.array([0.0, 0.0, -GRAVITY])
                np.testing.assert_allclose(changed, forces + weight, atol=1e-6 * 3000)
        assert 0.0 < deepest < 0.011
        assert upward > 1000.0


def test_joints_give_way_to_objects_as_the_simulators_options_say():
    # A prior that holds on to its pose for ever makes the body one mass; a limp body gives way more than one with a
    # prior.
    rigid, usual, limp_body = (
        response_of(SKELETON, SimulatorOptions(**options))
        for options in ({"kinematic_weight": 1e9}, {}, {"kinematic": False})
    )
    np.testing.assert_allclose(rigid, 1 / SKELETON.masses.sum(), rtol=1e-6)
    assert (np.diag(limp_body) > np.diag(usual)).all()


def test_ice_lies_on_ground_that_tilts(walkers):
    ice, seeds = Patch((0.5, 2.0), (2.0, 1.0), 30.0), [0, 1]
    rollout = run(
        World(Scene(elements=(ice,), ground=Ground(((0.0, 0.0, 0.0), (0.4, 12.0, -8.0)))), walkers), 13, seeds
    )
    [track], ground = rollout.solids, rollout.ground
    corners = track.vertices @ np.swapaxes(track.rotation, -1, -2) + track.centre[..., None, :]
    above = (corners * ground.normal[..., None, :]).sum(-1) - ground.offset[..., None]
    # Every corner is as high above the ground as a sheet is drawn, and seen from above its middle stays where it is.
    np.testing.assert_allclose(above, SHEET, atol=1e-12)
    assert np.ptp(corners[..., -1, :, 2]) > 0.2
    np.testing.assert_allclose(
        track.centre[..., :2], np.broadcast_to((0.5, 2.0), track.centre[..., :2].shape), atol=SHEET
    )


def test_people_start_on_top_of_things(walkers):
    world = World(Scene((Person(position=(0.0, 1.0)),), (Box((0.0, 0.0, 0.0), (4.0, 6.0, 0.5)),)), walkers)
    plain = World(Scene((Person(position=(0.0, 1.0)),)), walkers)
    np.testing.assert_allclose(world.start(0).people.x[..., 2] - plain.start(0).people.x[..., 2], 0.5, atol=1e-9)


def test_a_load_pulls_with_its_weight_and_inertia():
    # At rest m g, shared by both hands; while the body speeds up by a, m a against it too.
    context = SceneContext(3, 30.0, standing().map(lambda values: values[None]), SKELETON, Plane.ground())
    load = Carry(10.0, "both")
    memory, inputs = load.act(load.begin(context), context)
    np.testing.assert_allclose(inputs.forces[0, [20, 21]], [[0.0, 0.0, -49.05]] * 2)
    faster = replace(context, people=replace(context.people, v=context.people.v + np.array([0.1, 0.0, 0.0])))
    np.testing.assert_allclose(load.act(memory, faster)[1].forces[0].sum(0), [-30.0, 0.0, -98.1])
    assert [solid.name for solid in load.solids(memory)] == ["bag", "bag"]
    with pytest.raises(ValueError, match="left or the right hand or in both"):
        Carry(hand="third")
