"""Rotations as 3x3 matrices that act on column vectors, with any leading dimensions; quaternions are (x, y, z, w)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body import kinematics


def dot(a: Float[np.ndarray, "*#b 3"], b: Float[np.ndarray, "*#b 3"]) -> Float[np.ndarray, "*b 1"]:
    """Return inner products, with the last dimension kept."""
    return (a * b).sum(-1, keepdims=True)


def apply(rotation: Float[np.ndarray, "*#b 3 3"], v: Float[np.ndarray, "*#b 3"]) -> Float[np.ndarray, "*b 3"]:
    """Rotate vectors."""
    return (rotation @ v[..., None])[..., 0]


def transpose(rotation: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return the inverse rotations."""
    return rotation.swapaxes(-1, -2)


def normalize(v: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3"]:
    """Unit vectors; the zero vector stays zero."""
    return v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12)


def swing(a: Float[np.ndarray, "*#b 3"], b: Float[np.ndarray, "*#b 3"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return the least rotation that takes the direction of a to the direction of b."""
    a, b = (np.array(side, dtype=np.float64) for side in np.broadcast_arrays(a, b))
    out = np.empty((a.size // 3, 3, 3))
    kinematics.swings(a.reshape(-1, 3), b.reshape(-1, 3), out)
    return out.reshape(*a.shape, 3)


def twist_about(
    rotation: Float[np.ndarray, "*#b 3 3"], axis: Float[np.ndarray, "*#b 3"]
) -> Float[np.ndarray, "*b 3 3"]:
    """Return the twist T of rotation = S T, where T turns about axis and S is the swing that moves axis.

    The split of HybrIK (Li et al. 2021): S is the least rotation taking axis to rotation @ axis.
    """
    return transpose(swing(axis, apply(rotation, axis))) @ rotation


def heading(rotation: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return the turn about world z that makes a body with this root orientation face +y.

    The body's right is -R[:, 0] (the rest pose has its left along +x); its horizontal part is turned onto +x, as HuMoR
    does.
    """
    right = -rotation[..., :2, 0]
    norm = np.linalg.norm(right, axis=-1, keepdims=True)
    right = np.where(norm > 1e-8, right / np.maximum(norm, 1e-8), [1.0, 0.0])
    R = np.zeros((*rotation.shape[:-2], 3, 3))
    R[..., 0, 0] = R[..., 1, 1] = right[..., 0]
    R[..., 0, 1], R[..., 1, 0], R[..., 2, 2] = right[..., 1], -right[..., 1], 1.0
    return R


def exp(rotvec: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3 3"]:
    """Rodrigues' formula, R = I + a [w] + b [w]^2 with a = sin t / t and b = (1 - cos t) / t^2."""
    angle = np.linalg.norm(rotvec, axis=-1, keepdims=True)
    a, b = np.sinc(angle / np.pi), 0.5 * np.sinc(angle / (2 * np.pi)) ** 2
    x, y, z = np.moveaxis(rotvec, -1, 0)
    sx, sy, sz = np.moveaxis(a * rotvec, -1, 0)
    bx, by, bz = np.moveaxis(b * rotvec, -1, 0)
    xx, yy, zz, xy, yz, zx = bx * x, by * y, bz * z, bx * y, by * z, bz * x
    rows = (1 - yy - zz, xy - sz, zx + sy, xy + sz, 1 - xx - zz, yz - sx, zx - sy, yz + sx, 1 - xx - yy)
    return np.stack(rows, axis=-1).reshape(*rotvec.shape[:-1], 3, 3)


def log_small(rotation: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3"]:
    """Return the rotation vector of a turn well below half a circle, as between two frames: the inverse of exp."""
    R = rotation
    axis = 0.5 * np.stack(
        (R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]), axis=-1
    )
    sine = np.maximum(np.linalg.norm(axis, axis=-1, keepdims=True), 1e-12)
    cosine = 0.5 * (np.trace(R, axis1=-2, axis2=-1)[..., None] - 1)
    return axis * (np.arctan2(sine, cosine) / sine)


def _rotation() -> Any:  # noqa: ANN401
    # Loaded when used: it takes a third of the time of all imports.
    from scipy.spatial.transform import Rotation

    return Rotation


def rotmat_to_rotvec(rotation: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3"]:
    """Return rotation vectors [rad]; the logarithm for any angle."""
    return _rotation().from_matrix(rotation.reshape(-1, 3, 3)).as_rotvec().reshape(rotation.shape[:-1])


rotvec_to_rotmat = exp


def rotmat_to_unitquat(rotation: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 4"]:
    """Return unit quaternions (x, y, z, w)."""
    return _rotation().from_matrix(rotation.reshape(-1, 3, 3)).as_quat().reshape(*rotation.shape[:-2], 4)


def euler_to_rotmat(order: str, degrees: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return R = R_1 R_2 ..., each about the axis that `order` names, such as ZXY."""
    turns = _rotation().from_euler(order, degrees.reshape(-1, len(order)), degrees=True)
    return turns.as_matrix().reshape(*degrees.shape[:-1], 3, 3)


def unitquat_to_rotmat(quaternion: Float[np.ndarray, "*b 4"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return matrices of quaternions (x, y, z, w)."""
    return _rotation().from_quat(quaternion.reshape(-1, 4)).as_matrix().reshape(*quaternion.shape[:-1], 3, 3)


def slerp_rotmat(
    a: Float[np.ndarray, "*#b 3 3"], b: Float[np.ndarray, "*#b 3 3"], share: Float[np.ndarray, "*#b"] | float
) -> Float[np.ndarray, "*b 3 3"]:
    """Go a share of the shortest way from a to b."""
    return a @ exp(np.asarray(share)[..., None] * rotmat_to_rotvec(transpose(a) @ b))


def plane_basis(normal: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return two tangents and the unit normal itself as rows (Duff et al. 2017); they are x, y, z for z."""
    x, y, z = np.moveaxis(normal, -1, 0)
    sign = np.copysign(1.0, z)
    a = -1 / (sign + z)
    rows = (1 + sign * x * x * a, sign * x * y * a, -sign * x, x * y * a, sign + y * y * a, -y, x, y, z)
    return np.stack(rows, axis=-1).reshape(*normal.shape, 3)
