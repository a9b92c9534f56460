"""Laws of the skinned body: it is a whole, symmetric person whose skin follows the joints and stays in one piece."""

import math

import numpy as np
import pytest
from scipy.spatial import KDTree

from dropsim.body.mesh import Body
from dropsim.body.rotations import exp
from dropsim.body.skeleton import JOINTS, MIRROR, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.motion.synthetic import FACING_Y, stepping_clip

BODY = Body.shipped()
IDENTITY = np.tile(np.eye(3), (NUM_JOINTS, 1, 1))


def edges(faces):
    """All edges once, and how many faces have each."""
    return np.unique(np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=-1), axis=0, return_counts=True)


def lengths(vertices):
    a, b = edges(BODY.faces)[0].T
    return np.linalg.norm(vertices[a] - vertices[b], axis=-1)


def both_sides(**turns):
    """A pose from rotation vectors of the left joints [degrees], mirrored to the right."""
    q = IDENTITY.copy()
    for part, degrees in turns.items():
        turn = np.radians(degrees)
        for side, flip in (("left", (1.0, 1.0, 1.0)), ("right", (1.0, -1.0, -1.0))):
            name = f"{side}_{part}" if f"{side}_{part}" in JOINTS else part
            q[joint_index(name)] = exp(turn * np.array(flip))
    return q


def smpl_like():
    """An adult with SMPL's habits: close hips, legs apart, longer feet, wider shoulders that lie back."""
    adult = Skeleton.adult()
    offsets = adult.offsets.copy()
    for side, sign in (("left", 1.0), ("right", -1.0)):
        changes = {
            "hip": (-0.028, 0, -0.015),
            "knee": (0.04, 0, 0),
            "foot": (0.02, -0.02, 0.005),
            "shoulder": (0.01, 0.01, -0.02),
        }
        for part, change in changes.items():
            offsets[joint_index(f"{side}_{part}")] += np.array(change) * np.array([sign, 1.0, 1.0])
    rest = [adult.rest[0]]
    for j in range(1, NUM_JOINTS):
        rest.append(rest[PARENTS[j]] + offsets[j])
    return Skeleton(np.stack(rest), adult.masses, adult.radii)


SKELETONS = pytest.mark.parametrize(
    "skeleton",
    [Skeleton.adult(), Skeleton.adult(height=1.2), Skeleton.adult(height=2.0), smpl_like()],
    ids=["same", "child", "tall", "smpl"],
)


def test_rest_pose_gives_the_vertices():
    # The weights are stored in single precision and sum to 1 within 3e-7, at most 2 m from the origin.
    np.testing.assert_allclose(BODY.skinned(IDENTITY, BODY.skeleton.rest), BODY.vertices, rtol=0, atol=6e-7)


def test_moving_the_person_moves_the_mesh_rigidly(random_rotations, rng):
    # T (v) = R v + t for the whole mesh, however it is posed: skinning commutes with rigid motions.
    q, R, t = random_rotations(NUM_JOINTS), random_rotations(1)[0], rng.normal(size=3)
    joints = BODY.skeleton.forward(q, np.zeros(3))
    turned = np.concatenate((R @ q[:1], q[1:]))
    moved = BODY.skinned(turned, BODY.skeleton.forward(turned, t))
    # The stored weights sum to 1 within 3e-7, which scales t.
    np.testing.assert_allclose(moved, BODY.skinned(q, joints) @ R.T + t, rtol=0, atol=2e-6)


def test_bones_carry_what_hangs_on_one_joint():
    # A vertex of one joint alone is rigid with it: R (v - rest) + joint.
    q = both_sides(shoulder=(10, -30, -40), elbow=(0, -60, 0), hip=(-60, 10, 0), knee=(80, 0, 0), head=(0, 30, 0))
    joints = BODY.skeleton.forward(q, np.zeros(3))
    R_world, posed = BODY.skeleton.global_rotations(q), BODY.skinned(q, joints)
    for name in ("head", "left_wrist", "right_wrist"):
        j = joint_index(name)
        held = BODY.blend[:, j] == 1
        assert held.sum() > 100
        local = BODY.vertices[held] - BODY.skeleton.rest[j]
        np.testing.assert_allclose(posed[held], local @ R_world[j].T + joints[j], rtol=0, atol=1e-12)


def test_faces_look_outward():
    # The divergence theorem: sum a . (b x c) / 6 is the volume, positive when faces look outward. 70 kg at a density of
    # 1 kg/l are 70 l; people of 1.70 m have 50 to 90 l. Normals agree with the faces.
    a, b, c = BODY.vertices[BODY.faces.T]
    assert 0.050 < (a * np.cross(b, c)).sum() / 6 < 0.090
    normals = BODY.normals(BODY.vertices)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=-1), 1.0, rtol=0, atol=1e-6)
    nose = ((BODY.vertices[:, 1] > BODY.skeleton.rest[15, 1]) * BODY.vertices[:, 2]).argmax()
    assert normals[nose, 2] > 0.5


def test_mesh_is_left_right_symmetric():
    # Each vertex has a partner at its mirror image, held by the mirrored joints.
    distance, partner = KDTree(BODY.vertices).query(BODY.vertices * [-1.0, 1.0, 1.0])
    assert distance.max() < 1e-5
    np.testing.assert_allclose(BODY.blend[partner], BODY.blend[:, list(MIRROR)], rtol=0, atol=1e-5)


def winding(points, vertices):
    """How often the surface goes around each point: 1 inside, 0 outside (van Oosterom & Strackee 1983)."""
    a, b, c = (corner - points[:, None] for corner in vertices[BODY.faces.T])
    la, lb, lc = (np.linalg.norm(side, axis=-1) for side in (a, b, c))
    triple = (a * np.cross(b, c)).sum(-1)
    below = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    return np.arctan2(triple, below).sum(-1) / (2 * math.pi)


@SKELETONS
def test_joints_are_inside(skeleton):
    # The rims behind lips and lids take less than a hundredth of the view from any joint but leave the head a little
    # open.
    fitted = BODY.fitted(skeleton)
    np.testing.assert_allclose(winding(skeleton.rest, fitted.vertices), 1.0, rtol=0, atol=0.02)


@SKELETONS
def test_soles_stand_where_the_spheres_of_the_feet_do(skeleton):
    # Under heel and ball alike, within the 1.5 cm that skin may differ from spheres.
    fitted = BODY.fitted(skeleton)
    for side, x in (("left", 1), ("right", -1)):
        ankle, ball = (joint_index(f"{side}_{part}") for part in ("ankle", "foot"))
        ground = skeleton.rest[ball, 1] - skeleton.radii[ball]
        mine = fitted.vertices[fitted.vertices[:, 0] * x > 0]
        for at in (ankle, ball):
            under = np.abs(mine[:, 2] - skeleton.rest[at, 2]) < 0.03
            assert abs(float(mine[under, 1].min() - ground)) < 0.015
        assert float(mine[:, 1].min() - ground) > -0.015


@pytest.mark.parametrize("height", [1.2, 1.7, 2.0])
def test_fitting_to_a_larger_body_scales_the_mesh(height):
    # Skeleton.adult scales everything but the place of the pelvis, which stays SMPL's.
    skeleton = Skeleton.adult(height=height)
    scaled = (BODY.vertices - BODY.skeleton.rest[0]) * (height / 1.70) + skeleton.rest[0]
    np.testing.assert_allclose(BODY.fitted(skeleton).vertices, scaled, rtol=0, atol=1e-5)


POSES = {
    "crouch": both_sides(
        hip=(-110, 0, 10),
        knee=(130, 0, 0),
        ankle=(-20, 0, 0),
        spine1=(20, 0, 0),
        shoulder=(0, 0, -60),
        elbow=(0, -80, 0),
    ),
    "arms up": both_sides(collar=(0, 0, 20), shoulder=(0, 0, 60)),
    "arms down": both_sides(shoulder=(0, 0, -75), elbow=(0, -20, 0)),
    "arms forward": both_sides(shoulder=(0, -85, 0), elbow=(0, -90, 0)),
}


@pytest.mark.parametrize("pose", POSES.values(), ids=POSES)
def test_skin_does_not_tear(pose):
    # At a joint of radius r that bends by an angle the outside grows by r times the angle, 0.06 m * 130 degrees = 0.14
    # m, shared by the ten edges and more of a smooth blend: no edge may gain more than 3 cm, and hardly any more than
    # double.
    q = pose.copy()
    q[0] = np.array(FACING_Y)
    posed = BODY.skinned(q, BODY.skeleton.forward(q, np.zeros(3)))
    rest, now = lengths(BODY.vertices), lengths(posed)
    assert float((now - rest).max()) < 0.03
    assert float((now > 2 * rest).mean()) < 0.005
    assert float(now.min()) > 0


def test_walking_feet_meet_the_ground():
    # The clip keeps one foot's spheres on the ground at any time, so the soles are there too.
    motion = stepping_clip(2.0)
    lowest = BODY.skinned(motion.q, motion.joints)[..., 2].min(-1)
    spheres = (motion.joints[..., 2] - BODY.skeleton.radii).min(-1)
    assert float(np.abs(lowest - spheres).max()) < 0.015
