"""Laws of the body: its shape, and forward against inverse kinematics."""

import math

import numpy as np
import pytest

from dropsim.body.kinematics import best_rotation
from dropsim.body.rotations import exp, transpose, twist_about
from dropsim.body.skeleton import (
    CHILDREN,
    JOINTS,
    LEAVES,
    MIRROR,
    NUM_JOINTS,
    PARENTS,
    Skeleton,
    joint_index,
    mirrored_rotations,
)

# Forward kinematics adds at most 9 bones of up to 0.5 m and multiplies at most 9 rotations; inverse kinematics does so
# again. A few dozen roundings of positions of up to 3 m stay far below 1e-12 m.
TOLERANCE = 1e-12
SKELETON = Skeleton.adult()
FLIP = np.array([-1.0, 1.0, 1.0])


def bone_directions(joints):
    bones = joints[..., 1:, :] - joints[..., PARENTS[1:], :]
    return bones / np.linalg.norm(bones, axis=-1, keepdims=True)


def farthest(a, b):
    return np.linalg.norm(a - b, axis=-1).max()


@pytest.fixture
def pose(random_rotations, rng):
    """Any rotation at any joint: far beyond what people can do."""
    return random_rotations(200, NUM_JOINTS), rng.standard_normal((200, 3))


def test_tree_is_smpls():
    # SMPL's order: a parent comes before its child, and every joint but the root has one.
    assert JOINTS[0] == "pelvis"
    assert all(p < j for j, p in enumerate(PARENTS))
    assert LEAVES == (10, 11, 15, 20, 21)
    assert [j for j in range(NUM_JOINTS) if len(CHILDREN[j]) > 1] == [joint_index("pelvis"), joint_index("spine3")]


def test_unknown_joint_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no joint 'tail'.*pelvis"):
        joint_index("tail")


@pytest.mark.parametrize(
    "skeleton", [SKELETON, Skeleton.adult(height=1.2, body_mass=25.0)], ids=["adult", "child-sized"]
)
def test_body_is_left_right_symmetric(skeleton):
    # Mirroring in x = 0 swaps the sides and changes nothing.
    assert [MIRROR[j] for j in MIRROR] == list(range(NUM_JOINTS))
    assert np.array_equal((skeleton.rest * FLIP)[list(MIRROR)], skeleton.rest)
    assert np.array_equal(skeleton.masses[list(MIRROR)], skeleton.masses)
    assert np.array_equal(skeleton.radii[list(MIRROR)], skeleton.radii)


@pytest.mark.parametrize("body_mass", [50.0, 70.0, 110.0])
def test_masses_are_positive_and_sum_to_the_body(body_mass):
    # 22 float64 additions round by less than 22 units in the last place.
    skeleton = Skeleton.adult(body_mass=body_mass)
    unit = skeleton.with_unit_masses()
    for s in (skeleton, unit):
        assert (s.masses > 0).all()
        assert float(s.masses.sum()) == pytest.approx(body_mass, rel=22 * 2.2e-16)
    assert len(np.unique(unit.masses)) == 1


def test_sizes_are_positive_and_scale_with_height():
    tall, short = Skeleton.adult(height=2.4), Skeleton.adult(height=1.2)
    assert (SKELETON.radii > 0).all()
    assert (SKELETON.lengths[1:] > 0).all()
    # Twice the height is twice every bone and radius.
    np.testing.assert_allclose(tall.lengths, 2 * short.lengths, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(tall.radii, 2 * short.radii, rtol=1e-14, atol=0)


def test_leg_and_standing_height_follow_drillis_and_contini():
    # Hip at 0.530 and ankle at 0.039 of the body's height: a leg of 0.491 * 1.70 m.
    assert SKELETON.leg_length == pytest.approx(0.491 * 1.70, abs=1e-12)
    # The lowest sphere is the ball of the foot's, of radius 0.025 m at 0.015 of the height; the pelvis is at 0.575.
    assert SKELETON.standing_height == pytest.approx((0.575 - 0.015) * 1.70 + 0.025, abs=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, 100.0])
def test_a_body_that_nobody_has_is_refused_in_a_sentence(bad):
    with pytest.raises(ValueError, match=r"give 0\.3 to 3 m and 1 to 1000 kg"):
        Skeleton.adult(height=bad)
    if bad != 100.0:
        with pytest.raises(ValueError, match=r"give 0\.3 to 3 m and 1 to 1000 kg"):
            Skeleton.adult(body_mass=bad)


@pytest.mark.parametrize("name", ["rest", "masses", "radii"])
def test_numbers_that_make_no_body_are_refused(name):
    parts = {part: getattr(SKELETON, part).copy() for part in ("rest", "masses", "radii")}
    parts[name][5] = np.nan
    with pytest.raises(ValueError, match=f"invalid {name}"):
        Skeleton(**parts)
    parts[name][5] = 0.0 if name != "rest" else parts["rest"][PARENTS[5]]
    with pytest.raises(ValueError, match="invalid" if name != "rest" else "the bone to right_knee has no length"):
        Skeleton(**parts)
    parts[name][5] = 1e200  # as a damaged file may have it: finite, and no square of it is
    with pytest.raises(ValueError, match="invalid"):
        Skeleton(**parts)


def test_rest_pose_is_the_identity():
    # No rotation anywhere leaves the rest joints, wherever the pelvis is.
    q = np.broadcast_to(np.eye(3), (NUM_JOINTS, 3, 3))
    np.testing.assert_allclose(SKELETON.forward(q, SKELETON.rest[0]), SKELETON.rest, rtol=0, atol=1e-15)


def test_forward_follows_the_chain(pose):
    # By definition: R_j = R_parent q_j and p_j = p_parent + R_parent offset_j, one joint after the other.
    q, root = pose
    R, p = [q[:, 0]], [root]
    for j in range(1, NUM_JOINTS):
        R.append(R[PARENTS[j]] @ q[:, j])
        p.append(p[PARENTS[j]] + R[PARENTS[j]] @ SKELETON.offsets[j])
    np.testing.assert_allclose(SKELETON.global_rotations(q), np.stack(R, 1), rtol=0, atol=1e-14)
    np.testing.assert_allclose(SKELETON.forward(q, root), np.stack(p, 1), rtol=0, atol=1e-14)


def test_inverse_undoes_forward(pose):
    # With its own pose as the twist source, inverse returns the rotations themselves, hence the same joints.
    q, root = pose
    joints = SKELETON.forward(q, root)
    solved = SKELETON.inverse(joints, q)
    assert farthest(SKELETON.forward(solved, root), joints) < TOLERANCE
    # A direction off by the position tolerance over the shortest bone (4 cm) turns its joint by 25 times as much, or
    # less.
    assert np.abs(solved - q).max() < 25 * TOLERANCE


def test_inverse_reproduces_bones_whatever_the_twist(pose, random_rotations):
    # The swing alone decides where a bone points, so any twist source gives the same joints; leaves are the source's.
    q, root = pose
    joints, source = SKELETON.forward(q, root), random_rotations(200, NUM_JOINTS)
    solved = SKELETON.inverse(joints, source)
    assert farthest(SKELETON.forward(solved, root), joints) < TOLERANCE
    assert np.array_equal(solved[:, LEAVES], source[:, LEAVES])


@pytest.mark.parametrize("off", [0.0, 1e-8, 1e-6, 1e-4])
def test_inverse_handles_a_bone_folded_straight_back(off):
    # A knee turned by 180 degrees points its bone against the rest direction, where the least rotation is not unique.
    q, root = np.tile(np.eye(3), (NUM_JOINTS, 1, 1)), np.zeros(3)
    for joint in ("left_knee", "right_elbow", "spine1"):
        axis = SKELETON.offsets[CHILDREN[joint_index(joint)][0]]
        across = np.cross(axis, [0.3, 0.5, 0.8])
        q[joint_index(joint)] = exp((math.pi - off) * across / np.linalg.norm(across))
    joints, rest = SKELETON.forward(q, root), np.broadcast_to(np.eye(3), q.shape)
    for source in (q, rest):
        again = SKELETON.forward(SKELETON.inverse(joints, source), root)
        assert np.isfinite(again).all()
        assert farthest(again, joints) < TOLERANCE


def test_a_collapsed_bone_keeps_the_rotation_along_its_twist_source(pose):
    # A bone without a direction swings nowhere: the joint keeps the twist alone, and nothing is NaN.
    q, root = pose
    joints = SKELETON.forward(q, root)
    joints[:, 7] = joints[:, 4]
    solved = SKELETON.inverse(joints, q)
    assert np.isfinite(solved).all()
    axis = SKELETON.offsets[7]
    assert np.abs(solved[:, 4] @ axis - axis).max() < TOLERANCE


def test_inverse_of_inexact_joints_still_gives_rotations_along_the_bones(pose, rng):
    # Where a solver left the joints 1 cm off, single-child bones still point exactly along them, and every answer is a
    # rotation.
    q, root = pose
    joints = SKELETON.forward(q, root)
    joints += 0.01 * rng.standard_normal(joints.shape)
    solved = SKELETON.inverse(joints, q)
    assert np.abs(solved @ transpose(solved) - np.eye(3)).max() < 1e-13
    assert np.abs(np.linalg.det(solved) - 1).max() < 1e-13
    single = [j - 1 for j in range(1, NUM_JOINTS) if len(CHILDREN[PARENTS[j]]) == 1]
    again = SKELETON.forward(solved, joints[:, 0])
    np.testing.assert_allclose(
        bone_directions(again)[:, single], bone_directions(joints)[:, single], rtol=0, atol=1e-12
    )


def turn(R):
    """Return the angle of rotations [rad]."""
    return np.arccos(np.clip((np.trace(R, axis1=-2, axis2=-1) - 1) / 2, -1, 1))


def test_a_pose_within_reach_is_followed_exactly(rng):
    # Small turns of the rest pose are natural and near.
    last, target = (exp(0.05 * rng.standard_normal((3, NUM_JOINTS, 3))) for _ in range(2))
    found = SKELETON.follow(SKELETON.forward(target, np.zeros((3, 3))), target, last, 1.0)
    assert np.abs(found - target).max() < 1e-9


def test_bones_never_turn_farther_about_themselves_than_allowed(pose, random_rotations, rng):
    # However wild the pose is from which twists come. What is left of a turn without its swing is a turn about the
    # bone. Angles below 1e-7 are lost in the rounding of a cosine.
    last, root = pose
    moved, most = last @ exp(0.1 * rng.standard_normal((200, NUM_JOINTS, 3))), 0.3
    joints = SKELETON.forward(moved, root)
    found = SKELETON.follow(joints, random_rotations(200, NUM_JOINTS), last, most)
    assert farthest(SKELETON.forward(found, root), joints) < TOLERANCE
    turns = transpose(SKELETON.global_rotations(last)) @ SKELETON.global_rotations(found)
    for j, (child, *others) in ((j, c) for j, c in enumerate(CHILDREN) if c):
        axis = SKELETON.offsets[child] / SKELETON.lengths[child]
        assert others or turn(twist_about(turns[:, j], np.broadcast_to(axis, (200, 3)))).max() < most + 1e-7
    assert turn((transpose(last) @ found)[:, LEAVES]).max() < most + 1e-7


@pytest.mark.parametrize("bend", [0.0, 0.1, 0.4, 1.5])
def test_a_thigh_that_is_turned_away_comes_back_if_the_knee_is_bent(bend):
    # The shin goes back, but the thigh and that of the candidate are turned by 60 degrees: a bent knee allows 15.
    q, hip = np.tile(np.eye(3), (1, NUM_JOINTS, 1, 1)), joint_index("left_hip")
    q[:, joint_index("left_knee")] = exp(np.array([bend, 0.0, 0.0]))
    joints, turned = SKELETON.forward(q, np.zeros((1, 3))), np.array(q)
    turned[:, hip] = exp(np.array([0.0, np.radians(60), 0.0]))
    found = turned
    for _ in range(10):
        found = SKELETON.follow(joints, turned, found, 0.3)
    assert np.degrees(turn(found[:, hip])) == pytest.approx(15.0 if bend > 0.35 else 60.0, abs=0.1)


def test_best_rotation_is_that_of_the_singular_value_decomposition(rng):
    # Kabsch (1976): with M = U S V^T, R = V diag(1, 1, det) U^T has the largest trace of M R, s1 + s2 + det s3. Also
    # for points in a plane and nearly on a line, where R is hardly known but its trace is; for points on one line any
    # rotation about it will do.
    a, b = rng.standard_normal((2, 4, 200, 3, 3))
    a[1, :, 2], a[2, :, 1:], a[3, :, 1:] = 0.0, 1e-4 * a[2, :, 1:], 0.0
    found = np.empty((4, 200, 3, 3))
    M = np.einsum("...kr,...kc->...rc", a, b)
    for i in np.ndindex(4, 200):
        best_rotation(M[i], found[i])
    U, S, V = np.linalg.svd(M)
    S[..., 2] *= np.linalg.det(U @ V)
    assert np.abs(found @ transpose(found) - np.eye(3)).max() < 1e-14
    assert np.abs(np.linalg.det(found) - 1).max() < 1e-14
    np.testing.assert_allclose(np.einsum("...rc,...cr->...", M, found), S.sum(-1), rtol=1e-14)
    known = S[..., 1] + S[..., 2] > 0.01 * S[..., 0]
    assert known[:2].mean() > 0.9
    U[..., 2] *= np.linalg.det(U @ V)[..., None]
    np.testing.assert_allclose(found[known], transpose(U @ V)[known], rtol=0, atol=1e-12)


def test_mirrored_pose_gives_mirrored_joints(pose):
    # For a symmetric body the mirrored pose has the mirrored joints.
    q, root = pose
    expected = (SKELETON.forward(q, root) * FLIP)[:, MIRROR]
    np.testing.assert_allclose(SKELETON.forward(mirrored_rotations(q), root * FLIP), expected, rtol=0, atol=1e-14)


def test_centre_of_mass_and_bone_error_by_hand():
    # The centre of unit masses is the mean; one bone stretched by 5 % is an error of 5 %.
    joints = SKELETON.rest.copy()
    np.testing.assert_allclose(SKELETON.with_unit_masses().centre_of_mass(joints), joints.mean(0), rtol=0, atol=1e-15)
    wrist = joint_index("left_wrist")
    joints[wrist] += 0.05 * SKELETON.offsets[wrist]
    assert float(SKELETON.bone_error(joints)) == pytest.approx(0.05, abs=1e-13)
