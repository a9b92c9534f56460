"""Laws of the body: its shape, and forward against inverse kinematics."""

import pytest
import roma
import torch

from dropsim.body.skeleton import CHILDREN, JOINTS, LEAVES, LEVELS, MIRROR, NUM_JOINTS, PARENTS, Skeleton, joint_index

# Forward kinematics adds at most 9 bones of up to 0.5 m and multiplies at most 9 rotations; inverse kinematics does so again. In
# float32 (unit roundoff 6e-8, positions of up to 3 m) a few dozen roundings stay below 2e-5 m; float64 has the 1e-6 m of the contract
# to spare, and is held to 1e-12 m.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
SKELETON = Skeleton.adult()


def bone_directions(joints):
    bones = joints[..., 1:, :] - joints[..., PARENTS[1:], :]
    return bones / bones.norm(dim=-1, keepdim=True)


@pytest.fixture
def pose(random_rotations, rng):
    """Any rotation at any joint: far beyond what people can do."""
    return random_rotations(200, NUM_JOINTS), torch.randn(200, 3, generator=rng, dtype=torch.float64)


def test_tree_is_smpls():
    # SMPL's order: a parent comes before its child, every joint but the root has one, and the levels hold each joint once.
    assert JOINTS[0] == "pelvis"
    assert all(p < j for j, p in enumerate(PARENTS))
    assert sorted(j for level in LEVELS for j in level) == list(range(NUM_JOINTS))
    assert LEAVES == (10, 11, 15, 20, 21)
    assert [j for j in range(NUM_JOINTS) if len(CHILDREN[j]) > 1] == [joint_index("pelvis"), joint_index("spine3")]


def test_unknown_joint_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no joint 'tail'.*pelvis"):
        joint_index("tail")


@pytest.mark.parametrize("skeleton", [SKELETON, Skeleton.adult(height=1.2, body_mass=25.0)], ids=["adult", "child-sized"])
def test_body_is_left_right_symmetric(skeleton):
    # Mirroring in x = 0 swaps the sides and changes nothing.
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    assert [MIRROR[j] for j in MIRROR] == list(range(NUM_JOINTS))
    assert torch.equal((skeleton.rest * flip)[list(MIRROR)], skeleton.rest)
    assert torch.equal(skeleton.masses[list(MIRROR)], skeleton.masses)
    assert torch.equal(skeleton.radii[list(MIRROR)], skeleton.radii)


@pytest.mark.parametrize("body_mass", [50.0, 70.0, 110.0])
def test_masses_are_positive_and_sum_to_the_body(body_mass):
    # 22 float64 additions round by less than 22 units in the last place.
    skeleton = Skeleton.adult(body_mass=body_mass)
    unit = skeleton.with_unit_masses()
    for s in (skeleton, unit):
        assert (s.masses > 0).all()
        assert float(s.masses.sum()) == pytest.approx(body_mass, rel=22 * 2.2e-16)
    assert unit.masses.unique().numel() == 1


def test_sizes_are_positive_and_scale_with_height():
    tall = Skeleton.adult(height=3.40)
    assert (SKELETON.radii > 0).all()
    assert (SKELETON.lengths[1:] > 0).all()
    # Twice the height is twice every bone and radius.
    torch.testing.assert_close(tall.lengths, 2 * SKELETON.lengths, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(tall.radii, 2 * SKELETON.radii, rtol=1e-14, atol=0)


def test_leg_and_standing_height_follow_drillis_and_contini():
    # Hip at 0.530 and ankle at 0.039 of the body's height: a leg of 0.491 * 1.70 m.
    assert SKELETON.leg_length == pytest.approx(0.491 * 1.70, abs=1e-12)
    # The lowest sphere is the ball of the foot's, of radius 0.025 m at 0.015 of the height; the pelvis is at 0.575.
    assert SKELETON.standing_height == pytest.approx((0.575 - 0.015) * 1.70 + 0.025, abs=1e-12)


def test_rest_pose_is_the_identity():
    # No rotation anywhere leaves the rest joints, wherever the pelvis is.
    q = torch.eye(3, dtype=torch.float64).expand(NUM_JOINTS, 3, 3)
    torch.testing.assert_close(SKELETON.forward(q, SKELETON.rest[0]), SKELETON.rest, rtol=0, atol=1e-15)


def test_forward_is_rigid(pose):
    # Rotations keep lengths, a moved pelvis moves every joint alike, and the root's rotation turns the body as a whole.
    q, root = pose
    joints = SKELETON.forward(q, root)
    assert SKELETON.bone_error(joints).max() < 1e-13
    shift = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(SKELETON.forward(q, root + shift), joints + shift, rtol=0, atol=1e-14)
    turn = roma.rotvec_to_rotmat(torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64))
    turned = torch.cat((turn @ q[:, :1], q[:, 1:]), dim=1)
    torch.testing.assert_close(SKELETON.forward(turned, root @ turn.T), joints @ turn.T, rtol=0, atol=1e-13)


def test_forward_follows_the_chain(pose):
    # By definition: R_j = R_parent q_j and p_j = p_parent + R_parent offset_j, one joint after the other.
    q, root = pose
    R, p = [q[:, 0]], [root]
    for j in range(1, NUM_JOINTS):
        R.append(R[PARENTS[j]] @ q[:, j])
        p.append(p[PARENTS[j]] + R[PARENTS[j]] @ SKELETON.offsets[j])
    torch.testing.assert_close(SKELETON.global_rotations(q), torch.stack(R, 1), rtol=0, atol=1e-14)
    torch.testing.assert_close(SKELETON.forward(q, root), torch.stack(p, 1), rtol=0, atol=1e-14)


@DTYPES
def test_inverse_undoes_forward(pose, dtype):
    # With its own pose as the twist source, inverse returns the rotations themselves, hence the same joints.
    q, root = (part.to(dtype) for part in pose)
    joints = SKELETON.forward(q, root)
    solved = SKELETON.inverse(joints, q)
    assert (SKELETON.forward(solved, root) - joints).norm(dim=-1).max() < TOLERANCE[dtype]
    # A direction off by the position tolerance over the shortest bone (4 cm) turns its joint by 25 times as much, or less.
    assert (solved - q).abs().max() < 25 * TOLERANCE[dtype]


@DTYPES
def test_inverse_reproduces_bones_whatever_the_twist(pose, random_rotations, dtype):
    # The swing alone decides where a bone points, so any twist source gives the same joints; leaves are the source's.
    q, root = (part.to(dtype) for part in pose)
    joints = SKELETON.forward(q, root)
    source = random_rotations(200, NUM_JOINTS).to(dtype)
    solved = SKELETON.inverse(joints, source)
    assert (SKELETON.forward(solved, root) - joints).norm(dim=-1).max() < TOLERANCE[dtype]
    assert torch.equal(solved[:, LEAVES], source[:, LEAVES])


@DTYPES
@pytest.mark.parametrize("off", [0.0, 1e-8, 1e-6, 1e-4])
def test_inverse_handles_a_bone_folded_straight_back(rng, dtype, off):
    # A knee turned by 180 degrees points its bone against the rest direction, where the least rotation is not unique.
    q = torch.eye(3, dtype=torch.float64).repeat(NUM_JOINTS, 1, 1)
    for joint in ("left_knee", "right_elbow", "spine1"):
        axis = SKELETON.offsets[CHILDREN[joint_index(joint)][0]]
        across = torch.linalg.cross(axis, torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64))
        q[joint_index(joint)] = roma.rotvec_to_rotmat((torch.pi - off) * across / across.norm())
    q, root = q.to(dtype), torch.zeros(3, dtype=dtype)
    joints = SKELETON.forward(q, root)
    rest = torch.eye(3, dtype=dtype).expand(NUM_JOINTS, 3, 3)
    for source in (q, rest):
        again = SKELETON.forward(SKELETON.inverse(joints, source), root)
        assert torch.isfinite(again).all()
        assert (again - joints).norm(dim=-1).max() < TOLERANCE[dtype]


def test_inverse_ignores_bone_lengths(pose):
    # Directions only: stretching every single-child bone leaves the rotations alone, to rounding of the shortest bone's direction.
    q, root = pose
    joints = SKELETON.forward(q, root)
    stretch = torch.ones(NUM_JOINTS, 1, dtype=torch.float64)
    stretch[[j for j in range(1, NUM_JOINTS) if len(CHILDREN[PARENTS[j]]) == 1]] = 1.3
    bones = (joints - joints[:, [max(p, 0) for p in PARENTS]]) * stretch
    stretched = [joints[:, 0]]
    for j in range(1, NUM_JOINTS):
        stretched.append(stretched[PARENTS[j]] + bones[:, j])
    torch.testing.assert_close(SKELETON.inverse(torch.stack(stretched, 1), q), q, rtol=0, atol=1e-12)


def test_inverse_of_inexact_joints_still_gives_rotations_along_the_bones(pose, rng):
    # Where a solver left the joints 1 cm off, single-child bones still point exactly along them, and every answer is a rotation.
    q, root = pose
    joints = SKELETON.forward(q, root)
    joints = joints + 0.01 * torch.randn(joints.shape, generator=rng, dtype=torch.float64)
    solved = SKELETON.inverse(joints, q)
    identity = torch.eye(3, dtype=torch.float64)
    assert (solved @ solved.transpose(-1, -2) - identity).abs().max() < 1e-13
    assert (torch.linalg.det(solved) - 1).abs().max() < 1e-13
    single = [j - 1 for j in range(1, NUM_JOINTS) if len(CHILDREN[PARENTS[j]]) == 1]
    again = SKELETON.forward(solved, joints[:, 0])
    torch.testing.assert_close(bone_directions(again)[:, single], bone_directions(joints)[:, single], rtol=0, atol=1e-12)


def test_batch_equals_loop(random_rotations, rng):
    # Leading dimensions are independent. Batched kernels may sum in another order, hence the rounding.
    q, source = random_rotations(2, 2, 3, NUM_JOINTS)
    root = torch.randn(2, 3, 3, generator=rng, dtype=torch.float64)
    joints = SKELETON.forward(q, root)
    solved = SKELETON.inverse(joints, source)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(joints[i, j], SKELETON.forward(q[i, j], root[i, j]), rtol=0, atol=1e-14)
            torch.testing.assert_close(solved[i, j], SKELETON.inverse(joints[i, j], source[i, j]), rtol=0, atol=1e-12)


def test_mirrored_pose_gives_mirrored_joints(pose):
    # F R F swapped left for right is the mirrored pose; for a symmetric body its joints are the mirrored joints.
    q, root = pose
    flip = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    mirrored_q = (flip[:, None] * q * flip)[:, MIRROR]
    expected = (SKELETON.forward(q, root) * flip)[:, MIRROR]
    torch.testing.assert_close(SKELETON.forward(mirrored_q, root * flip), expected, rtol=0, atol=1e-14)


def test_centre_of_mass_and_bone_error_by_hand():
    # The centre of unit masses is the mean; one bone stretched by 5 % is an error of 5 %.
    joints = SKELETON.rest.clone()
    torch.testing.assert_close(SKELETON.with_unit_masses().centre_of_mass(joints), joints.mean(0), rtol=0, atol=1e-15)
    wrist = joint_index("left_wrist")
    joints[wrist] += 0.05 * SKELETON.offsets[wrist]
    assert float(SKELETON.bone_error(joints)) == pytest.approx(0.05, abs=1e-13)


def test_to_changes_the_precision_of_everything():
    single = SKELETON.to(torch.float32)
    assert {single.rest.dtype, single.masses.dtype, single.radii.dtype, single.offsets.dtype, single.lengths.dtype} == {torch.float32}
