"""The body's capsules: which can meet, how thick they are, and how deep they are in each other."""

import numpy as np
import pytest

from dropsim.body.capsules import CAPSULES, PAIRS, capsule_radii, closest, deepest_overlap
from dropsim.body.joints import JOINTS, joint_index
from dropsim.body.mesh import Body
from dropsim.body.skeleton import Skeleton

SKELETON = Skeleton.adult()
NAMES = ["-".join(JOINTS[end] for end in ends) for ends in CAPSULES]
LIMBS = [i for i, name in enumerate(NAMES) if name.startswith("left") and "right" not in name]


def depth(x):
    out = np.empty(1)
    deepest_overlap(x[None], SKELETON.arrays.capsules, out)
    return out[0]


def test_capsules_that_share_a_joint_do_not_meet():
    for one, other in PAIRS:
        assert not set(CAPSULES[one]) & set(CAPSULES[other])
    assert len(PAIRS) == len({tuple(pair) for pair in PAIRS})


def test_a_body_at_rest_is_not_in_itself():
    assert depth(SKELETON.rest) == 0.0


def test_an_arm_through_the_chest_is_as_deep_as_both_radii_reach():
    # The wrist at the middle of the chest, the forearm pointing away from it.
    x = SKELETON.rest.copy()
    x[joint_index("left_wrist")] = (x[joint_index("spine2")] + x[joint_index("spine3")]) / 2
    x[joint_index("left_elbow")] = x[joint_index("left_wrist")] + (-0.3, 0.0, 0.0)
    radii = SKELETON.arrays.capsules
    chest, wrist = radii[NAMES.index("spine2-spine3")].mean(), radii[NAMES.index("left_elbow-left_wrist"), 1]
    assert depth(x) >= chest + wrist - 1e-9


def test_nearest_points_are_nearer_than_any_others(rng):
    shares = np.linspace(0, 1, 41)
    for p, q, r, s in rng.standard_normal((20, 4, 3)):
        along, across = closest(p, q, r, s)
        grid = (p + shares[:, None] * (q - p))[:, None] - (r + shares[:, None] * (s - r))
        found = np.linalg.norm(p + along * (q - p) - r - across * (s - r))
        assert found <= np.linalg.norm(grid, axis=-1).min() + 1e-12


@pytest.mark.parametrize("capsule", LIMBS, ids=[NAMES[i] for i in LIMBS])
def test_limbs_are_as_thick_as_the_mesh_where_it_is_flat(capsule):
    # The radii are a line through the lower quartiles of the skin's distances from the bone. Limbs are no cones.
    body, (near, far) = Body.shipped(), CAPSULES[capsule]
    start, bone = SKELETON.rest[near], SKELETON.rest[far] - SKELETON.rest[near]
    own = body.vertices[body.blend.argmax(1) == near] - start
    share = own @ bone / (bone @ bone)
    distance = np.linalg.norm(own - share[:, None] * bone, axis=1)
    radii = capsule_radii(SKELETON.height)[capsule]
    for low in np.arange(0.05, 0.95, 0.15):
        part = (share >= low) & (share < low + 0.15)
        expected = radii[0] + (low + 0.075) * (radii[1] - radii[0])
        assert np.quantile(distance[part], 0.25) == pytest.approx(expected, abs=0.01), (
            f"{low:.2f} along {NAMES[capsule]}"
        )
