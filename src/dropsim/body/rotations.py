"""Rotations as 3x3 matrices acting on column vectors, batched over any leading dimensions.

Conversions come from RoMa; the swing-twist split and the two small closed forms that the simulator's inner loop needs are ours.
"""

import torch
from jaxtyping import Float
from torch import Tensor

NEARLY_OPPOSED = -0.5
"""Cosine below which the least rotation between two directions is found the careful way."""


def normalize(v: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3"]:
    """Unit vectors; the zero vector stays zero."""
    return v / v.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def perpendicular(a: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3"]:
    """Some unit vector perpendicular to the unit vector a."""
    # Crossing with the axis in which a is smallest is never degenerate.
    axis = torch.zeros_like(a).scatter_(-1, a.abs().argmin(dim=-1, keepdim=True), 1.0)
    return normalize(torch.linalg.cross(a, axis))


def swing(a: Float[Tensor, "*#b 3"], b: Float[Tensor, "*#b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the least rotation that takes the direction of a to the direction of b.

    With unit vectors and u = a + b: R = I - u u^T / (1 + a.b) + 2 b a^T.
    """
    a, b = torch.broadcast_tensors(normalize(a), normalize(b))
    if not b.any(dim=-1).all():  # a collapsed bone has no direction: it stays as it is
        b = torch.where(b.any(dim=-1, keepdim=True), b, a)
    cosine = (a * b).sum(-1)[..., None, None]
    u = a + b
    scaled = u.unsqueeze(-1) / (1 + cosine).clamp_min(1e-12)
    R = torch.eye(3, dtype=a.dtype, device=a.device) - scaled * u.unsqueeze(-2) + (2 * b).unsqueeze(-1) * a.unsqueeze(-2)
    opposed = cosine < NEARLY_OPPOSED
    return torch.where(opposed, _swing_of_opposed(a, b), R) if opposed.any() else R


def _swing_of_opposed(a: Float[Tensor, "*b 3"], b: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Do swing's work for unit vectors that are nearly antiparallel, where its short form loses precision.

    It is the half turn about a followed by the half turn about the bisector m of a and b:
    R = (2 m m^T - I)(2 a a^T - I). Where b = -a, any m perpendicular to a serves.
    """
    bisector = a + b
    antiparallel = bisector.norm(dim=-1, keepdim=True) < 8 * torch.finfo(a.dtype).eps
    m = torch.where(antiparallel, perpendicular(a), normalize(bisector))
    # Where a + b nearly cancels, rounding tilts m along a - b; the true bisector is perpendicular to it.
    half = (a - b) / 2
    m = normalize(m - (m * half).sum(-1, keepdim=True) * half)
    cosine = (m * a).sum(-1)[..., None, None]
    m_column, a_row = m.unsqueeze(-1), a.unsqueeze(-2)
    half_turns = 4 * cosine * m_column * a_row - 2 * m_column * m.unsqueeze(-2) - 2 * a.unsqueeze(-1) * a_row
    return torch.eye(3, dtype=a.dtype, device=a.device) + half_turns


def twist_about(rotation: Float[Tensor, "*#b 3 3"], axis: Float[Tensor, "*#b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the twist T of rotation = S T, where T turns about axis and S is the swing that moves axis.

    The split of HybrIK (Li et al. 2021): S is the least rotation taking axis to rotation @ axis.
    """
    moved = (rotation @ axis.unsqueeze(-1)).squeeze(-1)
    return swing(axis, moved).transpose(-1, -2) @ rotation


def heading(rotation: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the turn about world z that makes a body with this root orientation face +y.

    The body's right is -R[:, 0] (the rest pose has its left along +x); its horizontal part is turned onto +x, as HuMoR does.
    """
    right = -rotation[..., :2, 0]
    norm = right.norm(dim=-1, keepdim=True)
    upright = torch.zeros_like(right)
    upright[..., 0] = 1.0
    right = torch.where(norm > 1e-8, right / norm.clamp_min(1e-8), upright)
    cosine, sine = right[..., 0], right[..., 1]
    zero, one = torch.zeros_like(cosine), torch.ones_like(cosine)
    return torch.stack((cosine, sine, zero, -sine, cosine, zero, zero, zero, one), dim=-1).unflatten(-1, (3, 3))


def exp(rotvec: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Rodrigues' formula, R = I + a [w] + b [w]^2 with a = sin t / t and b = (1 - cos t) / t^2: cheaper than by quaternions."""
    square = rotvec.square().sum(-1, keepdim=True)
    angle = square.clamp_min(1e-24).sqrt()
    a = torch.sinc(angle / torch.pi)
    b = 0.5 * torch.sinc(angle / (2 * torch.pi)).square()
    x, y, z = rotvec.unbind(-1)
    sx, sy, sz = (a * rotvec).unbind(-1)
    bx, by, bz = (b * rotvec).unbind(-1)
    xx, yy, zz = bx * x, by * y, bz * z
    xy, yz, zx = bx * y, by * z, bz * x
    rows = (1 - yy - zz, xy - sz, zx + sy, xy + sz, 1 - xx - zz, yz - sx, zx - sy, yz + sx, 1 - xx - yy)
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def log_small(rotation: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3"]:
    """Return the rotation vector of a turn that is well below half a circle, as between two frames: the inverse of exp there."""
    R = rotation
    axis = 0.5 * torch.stack((R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]), dim=-1)
    sine = axis.square().sum(-1, keepdim=True).clamp_min(1e-24).sqrt()
    cosine = 0.5 * (R.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1)
    return axis * (torch.atan2(sine, cosine) / sine)


def best_turn(
    points: Float[Tensor, "*#b n 3"], onto: Float[Tensor, "*#b n 3"], weights: Float[Tensor, "n"] | None = None
) -> Float[Tensor, "*b 3 3"]:
    """Return the rotation about the origin that brings points nearest to others, in weighted least squares (Kabsch)."""
    weighted = onto if weights is None else onto * weights.unsqueeze(-1)
    U, _, Vh = torch.linalg.svd(weighted.transpose(-1, -2) @ points)
    flip = torch.ones_like(U[..., 0])
    flip[..., 2] = torch.linalg.det(U @ Vh).sign()
    return (U * flip.unsqueeze(-2)) @ Vh
