"""SMPL's first 22 joints: their names and how they hang together."""

from dropsim.files.names import suggestion

_TRUNK_AND_LEGS = "pelvis left_hip right_hip spine1 left_knee right_knee spine2 left_ankle right_ankle spine3 left_foot"
_REST = "right_foot neck left_collar right_collar head left_shoulder right_shoulder left_elbow right_elbow left_wrist"
JOINTS = (*_TRUNK_AND_LEGS.split(), *_REST.split(), "right_wrist")
"""Joint names in SMPL's order."""

PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)
"""Index of each joint's parent; -1 for the root."""

NUM_JOINTS = len(JOINTS)
CHILDREN = tuple(tuple(c for c in range(NUM_JOINTS) if PARENTS[c] == j) for j in range(NUM_JOINTS))
LEAVES = tuple(j for j in range(NUM_JOINTS) if not CHILDREN[j])
MIRROR = tuple(
    JOINTS.index(name.replace("left", "right") if name.startswith("left") else name.replace("right", "left"))
    for name in JOINTS
)
"""Index of each joint's counterpart on the other side."""
BEYOND = tuple({"foot": 0.58, "wrist": 0.35}.get(name.split("_")[-1], 0.0) for name in JOINTS)
"""Length of the body beyond a joint, over that of its bone: toes 7.6 cm beyond the ball of the foot, palms 9 cm."""
FLESH = tuple(0.0 if name.endswith(("ankle", "foot")) else 0.05 for name in JOINTS)
"""Thickness of the flesh around a joint's sphere where a body lies or sits on it [m]: by the mesh 1 to 5 cm; seats of
recorded people who sit are 4.4 cm (median) above our spheres."""


def joint_index(name: str) -> int:
    """Return the index of a joint, or raise with the names that exist."""
    if name not in JOINTS:
        raise ValueError(f"there is no joint {name!r}: {suggestion(name, JOINTS)}")
    return JOINTS.index(name)
