"""The root wrench: what of a motion's change of momentum no contact force explains, and the soft correction that takes some of it away.

After DROP (Jiang et al. 2023), section 6, and ManipNet (Zhang et al. 2021). Symbols are those of docs/notation.md.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.rotations import normalize, perpendicular
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.compute import arrays as kernels
from dropsim.motion.motion import Motion
from dropsim.physics.nnls import checked, nnls

GRAVITY = 9.81
"""Downward, along -z [m/s^2]."""


@dataclass(frozen=True)
class WrenchOptions:
    """What contacts can do, and how strongly a motion that they do not explain is corrected."""

    friction: float = 0.8
    """Largest tangential force over the normal one, mu; a rubber sole on a floor."""
    num_edges: int = 4
    """Edges of the pyramid inscribed in the friction cone."""
    length: float = 0.4
    """Arm at which a moment weighs as much as a force, in the fit and in the correction [m]: about the radius of gyration of a body."""
    ridge: float = 1e-6
    """Spreads the load over the contacts: of all the forces that fit alike the smallest are taken, and the fit changes by less than 1e-10.
    At zero it falls on some of the contacts, in a quarter of the time for eight of them; the root wrench and its reaction are the same."""
    weight: float = 10.0
    """Strength of the correction, w_p: it removes w_p / (1 + w_p) of an unexplained force, and less of an unexplained moment."""
    threshold: float = 0.05
    """Root wrenches beyond the tolerated one up to this size are left alone [body weights]."""
    cap: float = 0.1
    """Farthest that the correction moves any joint [m]."""
    airborne_weight: float = 10.0
    """Strength of the correction where nothing is touched: in flight only gravity changes the momentum, whatever the prior wishes."""
    tolerance: float = 0.4
    """Largest root wrench of the prior's own wish that is let pass [body weights]; recorded motion has as much."""
    largest_load: float = 4.0
    """Most that ankles and toes together bear along their normals [body weights]; people land from jumps with about as much."""
    largest_bearing: float = 1.0
    """Most that all the other joints bear together [body weights]: hands, hips and backs carry a body, but do not throw it into the air."""

    def __post_init__(self) -> None:
        if not (self.friction > 0 and self.length > 0):
            raise ValueError(f"friction and length have to be above zero, and are {self.friction} and {self.length}")
        if self.num_edges < 3:
            raise ValueError(f"a friction pyramid needs at least 3 edges, and was given {self.num_edges}")
        strengths = (self.ridge, self.weight, self.threshold, self.cap, self.airborne_weight, self.tolerance)
        if not min(strengths) >= 0:
            raise ValueError(f"ridge, weights, threshold and caps cannot be negative: {', '.join(map(str, strengths))}")
        if not min(self.largest_load, self.largest_bearing) > 0:
            raise ValueError(f"loads have to be above zero, and are {self.largest_load} and {self.largest_bearing}")


@dataclass(frozen=True, eq=False)
class Contacts:
    """Where the body touches something."""

    touching: Bool[Tensor, "*b 22"]
    """Which joints' spheres do."""
    points: Float[Tensor, "*b 22 3"]
    """Where [m]; of no meaning for the others."""
    normals: Float[Tensor, "*b 22 3"]
    """Unit vectors toward the body; of no meaning for the others."""

    @classmethod
    def of_spheres(
        cls,
        x: Float[Tensor, "*b 22 3"],
        radii: Float[Tensor, "22"],
        touching: Bool[Tensor, "*b 22"],
        normals: Float[Tensor, "*b 22 3"],
    ) -> "Contacts":
        """Put each contact on its joint's sphere, on the side that faces what it touches."""
        return cls(touching, x - radii.to(x).unsqueeze(-1) * normals, normals)


@dataclass(frozen=True, eq=False)
class _ProblemArrays:
    B: np.ndarray
    a: np.ndarray
    r: np.ndarray
    edges: np.ndarray
    F: np.ndarray
    touching: np.ndarray
    masses: np.ndarray
    limits: np.ndarray
    """What feet and other joints bear together [N]."""


@dataclass(frozen=True, eq=False)
class WrenchProblem:
    """All that the root wrench of a step takes from the step's start: b = B x - a and F, at x_t."""

    B: Float[Tensor, "*b 6 66"]
    """Joint positions to rates of linear [N] and angular momentum about the centre of mass [N m]."""
    a: Float[Tensor, "*b 6"]
    """What those rates would be at x = 0, negated, and gravity: B x - a is what forces other than gravity bring about [N, N m]."""
    r: Float[Tensor, "*b 22 3"]
    """Joints from the centre of mass [m]."""
    edges: Float[Tensor, "*b 22 e 3"]
    """Edges of each contact's friction cone."""
    F: Float[Tensor, "*b 6 n"]
    """Coefficients of the edges to the force and moment of the contacts [N, N m]."""
    touching: Bool[Tensor, "*b 22"]
    masses: Float[Tensor, "22"]
    """[kg]"""
    h: float
    """[s]"""
    options: WrenchOptions

    @functools.cached_property
    def arrays(self) -> "_ProblemArrays":
        """The problem as the kernels take it."""
        e, o = self.edges.shape[-2], self.options
        touching = kernels.array(self.touching.expand(self.r.shape[:-1]), NUM_JOINTS)
        B, a, r = kernels.array(self.B, 6, 3 * NUM_JOINTS), kernels.array(self.a, 6), kernels.array(self.r, NUM_JOINTS, 3)
        edges, F = kernels.array(self.edges, NUM_JOINTS, e, 3), kernels.array(self.F, 6, NUM_JOINTS * e)
        limits = self.body_weight * np.array([o.largest_load, o.largest_bearing])
        return _ProblemArrays(B, a, r, edges, F, touching, kernels.constant(self.masses), limits)

    @functools.cached_property
    def row_scale(self) -> np.ndarray:
        """What brings moments to forces at the options' arm."""
        return row_scale(self.options)

    @functools.cached_property
    def body_weight(self) -> float:
        """[N]."""
        return GRAVITY * float(self.masses.sum())


@dataclass(frozen=True, eq=False)
class FitConstants:
    """What every fit of a body's contact forces takes, laid out once."""

    masses: np.ndarray
    """[kg]"""
    body_weight: float
    """[N]"""
    options: tuple[np.ndarray, float, np.ndarray, np.ndarray]
    """Scale of the rows, ridge, groups of joints, and what these bear together [N]."""


@functools.lru_cache(maxsize=8)
def fit_constants(skeleton: Skeleton, options: WrenchOptions) -> FitConstants:
    """Lay out the constants of a body."""
    weight = GRAVITY * float(skeleton.masses.sum())
    limits = weight * np.array([options.largest_load, options.largest_bearing])
    return FitConstants(kernels.constant(skeleton.masses), weight, (row_scale(options), options.ridge, _BEARING, limits))


def row_scale(options: WrenchOptions) -> np.ndarray:
    """Return what brings moments to forces at the options' arm."""
    return np.array([1.0] * 3 + [1 / options.length] * 3)


@dataclass(frozen=True, eq=False)
class RootWrench:
    """How far contact forces explain a change of momentum, b = F c + residual."""

    residual: Float[Tensor, "*b 6"]
    """What they do not explain, e [N, N m about the centre of mass]."""
    explained: Float[Tensor, "*b 6"]
    """What they do, F c [N, N m]."""
    c: Float[Tensor, "*b 22 e"]
    """Coefficients of the cones' edges."""
    forces: Float[Tensor, "*b 22 3"]
    """On the body at each contact [N]."""
    body_weight: float
    """[N]"""

    @property
    def linear(self) -> Float[Tensor, "*b 3"]:
        """The force that would be needed besides [N]."""
        return self.residual[..., :3]

    @property
    def angular(self) -> Float[Tensor, "*b 3"]:
        """The moment that would be needed besides [N m]."""
        return self.residual[..., 3:]

    @property
    def sizes(self) -> Float[Tensor, "*b 2"]:
        """Norms of force and moment, in body weights and in body weights at an arm of one metre."""
        return torch.stack((self.linear.norm(dim=-1), self.angular.norm(dim=-1)), dim=-1) / self.body_weight

    @property
    def reaction(self) -> Float[Tensor, "*b 3"]:
        """Sum of the contact forces, R [N]."""
        return self.explained[..., :3]


def contact_basis(normals: Float[Tensor, "*b c 3"], friction: float, num: int = 4) -> Float[Tensor, "*b c {num} 3"]:
    """Return the edges cos(k) t1 + sin(k) t2 + n / mu of pyramids inscribed in friction cones; four are +-t1 and +-t2, as in ManipNet."""
    t1 = perpendicular(normals)
    t2 = torch.linalg.cross(normals, t1)
    angles = torch.arange(num, dtype=normals.dtype, device=normals.device).unsqueeze(-1) * (2 * math.pi / num)
    return angles.cos() * t1.unsqueeze(-2) + angles.sin() * t2.unsqueeze(-2) + normals.unsqueeze(-2) / friction


def momentum_map(
    x_t: Float[Tensor, "*b 22 3"], v_t: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"], h: float
) -> tuple[Float[Tensor, "*b 6 66"], Float[Tensor, "*b 6"]]:
    """Return B and a such that B x - a are the rates of momentum when x_t with velocity v_t goes to x, less gravity [N, N m].

    Accelerations are ((x - x_t) / h - v_t) / h; moments are about the centre of mass of x_t, with the arms of x_t.
    """
    arms = _arms(x_t, masses)
    eye = torch.eye(3, dtype=x_t.dtype, device=x_t.device)
    # Column i of [r]_x is r x e_i.
    columns = torch.linalg.cross(arms.unsqueeze(-2).expand(*arms.shape[:-1], 3, 3), eye.expand(*arms.shape[:-1], 3, 3))
    spin = columns.movedim(-1, -3).flatten(-2)
    share = (masses / h**2).repeat_interleave(3)
    B = share * torch.cat((eye.repeat(1, NUM_JOINTS).expand_as(spin), spin), dim=-2)
    a = (B @ (x_t + h * v_t).flatten(-2).unsqueeze(-1)).squeeze(-1)
    a[..., 2] -= GRAVITY * masses.sum()
    return B, a


def wrench_problem(
    x_t: Float[Tensor, "*b 22 3"],
    v_t: Float[Tensor, "*b 22 3"],
    contacts: Contacts,
    *,
    masses: Float[Tensor, "22"],
    h: float,
    options: WrenchOptions | None = None,
) -> WrenchProblem:
    """Lay out the root wrench of the step that starts at x_t with velocity v_t, in double precision."""
    options = options or WrenchOptions()
    x_t, v_t, masses = x_t.double(), v_t.double(), masses.double()
    if kernels.serve(x_t, v_t, masses, contacts.points, contacts.normals):
        return _wrench_problem_compiled(x_t, v_t, contacts, masses, h, options)
    B, a = momentum_map(x_t, v_t, masses, h)
    r = _arms(x_t, masses)
    edges = contact_basis(contacts.normals.double(), options.friction, options.num_edges)
    # From the centre of mass, which is where x_t - r is.
    points = (contacts.points - x_t + r).unsqueeze(-2)
    moments = torch.linalg.cross(points.expand_as(edges), edges)
    F = torch.cat((edges, moments), dim=-1).flatten(-3, -2).transpose(-1, -2)
    return WrenchProblem(B, a, r, edges, F, contacts.touching, masses, h, options)


def _wrench_problem_compiled(
    x_t: Float[Tensor, "*b 22 3"],
    v_t: Float[Tensor, "*b 22 3"],
    contacts: Contacts,
    masses: Float[Tensor, "22"],
    h: float,
    options: WrenchOptions,
) -> WrenchProblem:
    from dropsim.physics import wrench_kernels as wrench

    shape, rows, e = x_t.shape, (NUM_JOINTS, 3), options.num_edges
    places = (kernels.array(part.expand(shape), *rows) for part in (contacts.points, contacts.normals))
    start = (kernels.array(x_t, *rows), kernels.array(v_t.expand(shape), *rows), kernels.constant(masses), *places)
    sizes = ((6, 3 * NUM_JOINTS), (6,), rows, (NUM_JOINTS, e, 3), (6, e * NUM_JOINTS))
    parts = [torch.empty(*shape[:-2], *size, dtype=torch.float64) for size in sizes]
    out = (kernels.array(part, *size) for part, size in zip(parts, sizes, strict=True))
    wrench.problem(*start, options.friction, h, GRAVITY, *out)
    B, a, r, edges, F = parts
    return WrenchProblem(B, a, r, edges, F, contacts.touching, masses, h, options)


def contact_fit(problem: WrenchProblem, b: Float[Tensor, "*b 6"]) -> RootWrench:
    """Return the contact forces that come nearest to giving a rate of momentum b: min |F c - b|^2, c >= 0, moments at the options' arm."""
    if problem.a.shape == b.shape and kernels.serve(problem.F, b):
        return _contact_fit_compiled(problem, b)
    num_edges = problem.edges.shape[-2]
    if problem.touching.any():
        rows = _row_scale(problem, b)
        active = problem.touching.repeat_interleave(num_edges, dim=-1)
        c = nnls(rows.unsqueeze(-1) * problem.F, rows * b, active, ridge=problem.options.ridge).unflatten(-1, (NUM_JOINTS, num_edges))
        c = c * _bearable(problem, c).unsqueeze(-1)
    else:
        c = b.new_zeros(*b.shape[:-1], NUM_JOINTS, num_edges)
    forces = (c.unsqueeze(-1) * problem.edges).sum(-2)
    explained = (problem.F @ c.flatten(-2).unsqueeze(-1)).squeeze(-1)
    return RootWrench(b - explained, explained, c, forces, problem.body_weight)


def _contact_fit_compiled(problem: WrenchProblem, b: Float[Tensor, "*b 6"]) -> RootWrench:
    from dropsim.physics import wrench_kernels as wrench

    options, at, batch, e = problem.options, problem.arrays, b.shape[:-1], problem.edges.shape[-2]
    c, forces, explained, residual = (
        torch.empty(*batch, *size, dtype=torch.float64) for size in ((NUM_JOINTS, e), (NUM_JOINTS, 3), (6,), (6,))
    )
    out = (kernels.array(c, NUM_JOINTS * e), kernels.array(forces, NUM_JOINTS, 3), kernels.array(explained, 6), kernels.array(residual, 6))
    fit = (at.F, at.edges, at.touching, kernels.array(b, 6), problem.row_scale)
    checked(wrench.contact_fit(*fit, options.ridge, options.friction, _BEARING, at.limits, *out))
    return RootWrench(residual, explained, c, forces, problem.body_weight)


def root_wrench(problem: WrenchProblem, x: Float[Tensor, "*b 22 3"], *, forces: Float[Tensor, "*b 22 3"] | None = None) -> RootWrench:
    """Return what of the step to x contact explains, and what it does not; forces are the external ones on the joints [N].

    The one fit behind the metric, the soft correction (x = x_pd) and the ground's reaction (x = the prior's mode).
    """
    return contact_fit(problem, _demand(problem, x, forces))


def soft_correction(
    problem: WrenchProblem,
    x_pd: Float[Tensor, "*b 22 3"],
    wrench: RootWrench,
    *,
    wished: RootWrench | None = None,
    forces: Float[Tensor, "*b 22 3"] | None = None,
) -> Float[Tensor, "*b 22 3"]:
    """Return x_pd moved so that contact explains more of its change of momentum, where it explains too little.

    With e the root wrench of x_pd in body weights less what is tolerated, u = g h^2 the way that one body weight moves a body within a
    step, and c held fixed:

        minimise  sum_j (m_j / M) |dx_j / u|^2 + w_p |eps|^2   subject to   e + B dx = eps,
        dx = -D^-1 B^T (B D^-1 B^T + I / w_p)^-1 e,            D = diag(m_j / M) / u^2.

    The paper has M = I, and with equal masses this is its problem. With others, weighing the displacements by the masses makes dx a rigid
    motion, so that no bone is stretched. Then B D^-1 B^T is the identity for forces, and the inertia over M length^2 for moments.

    Tolerated is the root wrench that the prior's own wish has, up to the options' tolerance: recorded motion has one too, and a body that
    is not allowed it stumbles over the noise of its own prior. In flight nothing is tolerated, and a push uses the tolerance up: what the
    prior wishes against it is no noise.
    """
    if wrench.residual.shape[:-1] == x_pd.shape[:-2] and kernels.serve(x_pd, problem.B, *([] if forces is None else [forces])):
        return _soft_correction_compiled(problem, x_pd, wrench, wished, forces)
    options, shares = problem.options, problem.masses / problem.masses.sum()
    scale = _row_scale(problem, wrench.residual) / problem.body_weight
    e = scale * wrench.residual
    grounded = problem.touching.any(-1)
    if wished is not None:
        allowed = scale * wished.residual
        pushed = 0.0 if forces is None else forces.norm(dim=-1).sum(-1) / problem.body_weight
        most = torch.where(grounded, (options.tolerance - pushed), 0.0).clamp(min=0).to(e)
        e = e - (most / torch.maximum(most, allowed.norm(dim=-1)).clamp(min=1e-30)).unsqueeze(-1) * allowed
    u = GRAVITY * problem.h**2
    B = u * scale.unsqueeze(-1) * problem.B
    B_weighed = B / shares.repeat_interleave(3)
    eye = torch.eye(6, dtype=B.dtype, device=B.device)
    weight = torch.where(grounded, options.weight, options.airborne_weight).to(e).unsqueeze(-1)
    multipliers = torch.linalg.solve(weight.unsqueeze(-1) * B_weighed @ B.transpose(-1, -2) + eye, weight * e)
    dx = -u * (B_weighed.transpose(-1, -2) @ multipliers.unsqueeze(-1)).reshape(x_pd.shape)
    farthest = dx.norm(dim=-1).amax(dim=-1)
    size = (options.cap / farthest.clamp_min(1e-30)).clamp(max=1.0)
    size = torch.where(e.norm(dim=-1) > options.threshold, size, 0.0)
    return x_pd + size[..., None, None] * dx


def _soft_correction_compiled(
    problem: WrenchProblem, x_pd: Float[Tensor, "*b 22 3"], wrench: RootWrench, wished: RootWrench | None,
    forces: Float[Tensor, "*b 22 3"] | None,
) -> Float[Tensor, "*b 22 3"]:  # fmt: skip
    from dropsim.physics import wrench_kernels as compiled

    o, rows, out = problem.options, (NUM_JOINTS, 3), torch.empty(x_pd.shape, dtype=torch.float64)
    start = (problem.arrays.B, problem.arrays.touching, problem.arrays.masses)
    wish = _NO_WRENCH if wished is None else kernels.array(wished.residual, 6)
    pushes = _NO_FORCES if forces is None else kernels.array(forces.expand(x_pd.shape), *rows)
    sizes = (problem.row_scale, problem.body_weight, GRAVITY * problem.h**2, o.tolerance, o.weight, o.airborne_weight, o.threshold, o.cap)
    compiled.soft_correction(
        *start, kernels.array(wrench.residual, 6), wish, pushes, *sizes, kernels.array(x_pd, *rows), kernels.array(out, *rows)
    )
    return out


def cylinder_angular_rate(
    joints: Float[Tensor, "*b 3 22 3"], R_world: Float[Tensor, "*b 3 22 3 3"], skeleton: Skeleton, h: float
) -> Float[Tensor, "*b 3"]:
    """Return what the rate of angular momentum changes by when bones are solid cylinders in place of masses at their ends [N m].

    From three consecutive frames, joints and their rotations in the world. Every bone keeps its mass and centre of mass, and with them
    the linear part. A body with second moments K about its centre has the rate sum_ij K_ij (R e_i) x d^2/dt^2 (R e_j); a cylinder's K is
    m L^2 / 12 along itself and m radius^2 / 4 across, that of two masses at the ends m1 m2 / (m1 + m2) L^2 along and nothing across.
    """
    along, across = _cylinder_moments(skeleton)
    bones = normalize(joints[..., 1:, :] - joints[..., PARENTS[1:], :])
    # A bone turns with the joint at its near end. The rows of the transpose are the axes R e_i.
    axes = R_world[..., PARENTS[1:], :, :].transpose(-1, -2)
    spin = (across.to(joints)[:, None, None] * _turning(axes, dim=-4, h=h)).sum((-3, -2))
    return spin + ((along - across).to(joints).unsqueeze(-1) * _turning(bones, dim=-3, h=h)).sum(-2)


def root_wrench_of_motion(
    motion: Motion, contacts: Bool[Tensor, "*b t 22"], *, cylinders: bool = False, options: WrenchOptions | None = None
) -> Float[Tensor, "*b t 2"]:
    """Return the root wrench of every frame of a motion on level ground, as RootWrench.sizes: force and moment in body weights.

    Accelerations are central second differences, so the first and the last frame repeat their neighbours. External forces that came with
    the motion are accounted for.
    """
    if len(motion) < 3:
        raise ValueError(f"the root wrench needs at least 3 frames for an acceleration, and the motion has {len(motion)}")
    # How the load is spread does not show in the sizes.
    options = replace(options or WrenchOptions(), ridge=0.0)
    h, skeleton = 1 / motion.fps, motion.skeleton
    joints = motion.joints.double()
    before, x_t, after = joints[..., :-2, :, :], joints[..., 1:-1, :, :], joints[..., 2:, :, :]
    up = torch.tensor([0.0, 0.0, 1.0]).to(x_t).expand_as(x_t)
    touch = Contacts.of_spheres(x_t, skeleton.radii, contacts[..., 1:-1, :], up)
    problem = wrench_problem(x_t, (x_t - before) / h, touch, masses=skeleton.masses, h=h, options=options)
    b = _demand(problem, after, None if motion.external_forces is None else motion.external_forces[..., 1:-1, :, :])
    if cylinders:
        R_world = skeleton.global_rotations(motion.q.double())
        triples = (joints.unfold(-3, 3, 1).movedim(-1, -3), R_world.unfold(-4, 3, 1).movedim(-1, -4))
        b[..., 3:] += cylinder_angular_rate(*triples, skeleton, h)
    sizes = contact_fit(problem, b).sizes
    return torch.cat((sizes[..., :1, :], sizes, sizes[..., -1:, :]), dim=-2)


def _bearable(problem: WrenchProblem, c: Float[Tensor, "*b 22 e"]) -> Float[Tensor, "*b 22"]:
    """Return the share of its fitted force that each contact can bear."""
    load = c.sum(-1) / problem.options.friction  # every edge has the same part 1 / mu along its normal
    share = torch.ones_like(load)
    for joints, most in ((_FEET, problem.options.largest_load), (_OTHERS, problem.options.largest_bearing)):
        limit = most * problem.body_weight
        share[..., joints] = limit / load[..., joints].sum(-1, keepdim=True).clamp(min=limit)
    return share


_FEET = [joint_index(f"{side}_{name}") for side in ("left", "right") for name in ("ankle", "foot")]
_OTHERS = [joint for joint in range(NUM_JOINTS) if joint not in _FEET]
_BEARING = np.array([int(joint in _OTHERS) for joint in range(NUM_JOINTS)])
_NO_WRENCH = np.empty((0, 6))
_NO_FORCES = np.empty((0, NUM_JOINTS, 3))


def _arms(x: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"]) -> Float[Tensor, "*b 22 3"]:
    """Joints from the centre of mass [m]."""
    return x - ((masses / masses.sum()).unsqueeze(-1) * x).sum(-2, keepdim=True)


def _demand(problem: WrenchProblem, x: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"] | None) -> Float[Tensor, "*b 6"]:
    """Return b = B x - a, less external forces: what the contacts have to bring about [N, N m]."""
    if problem.a.shape[:-1] == x.shape[:-2] and kernels.serve(problem.B, x, *([] if forces is None else [forces])):
        return _demand_compiled(problem, x, forces)
    b = (problem.B @ x.double().flatten(-2).unsqueeze(-1)).squeeze(-1) - problem.a
    if forces is None:
        return b
    forces = forces.double()
    return b - torch.cat((forces.sum(-2), torch.linalg.cross(problem.r, forces).sum(-2)), dim=-1)


def _demand_compiled(problem: WrenchProblem, x: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"] | None) -> Float[Tensor, "*b 6"]:
    from dropsim.physics import wrench_kernels as wrench

    b, rows = torch.empty(*x.shape[:-2], 6, dtype=torch.float64), (NUM_JOINTS, 3)
    start = (problem.arrays.B, problem.arrays.a, problem.arrays.r)
    pushes = _NO_FORCES if forces is None else kernels.array(forces.expand(x.shape), *rows)
    wrench.demand(*start, kernels.array(x, *rows), pushes, kernels.array(b, 6))
    return b


def _row_scale(problem: WrenchProblem, like: Tensor) -> Float[Tensor, "6"]:
    """Bring moments to forces at the options' arm."""
    return torch.from_numpy(problem.row_scale).to(like)


def _turning(directions: Float[Tensor, "*n 3"], *, dim: int, h: float) -> Float[Tensor, "*m 3"]:
    """Return d x d^2 d / dt^2 by central differences over the three frames along a dimension."""
    before, now, after = directions.unbind(dim)
    return torch.linalg.cross(now, before - 2 * now + after) / h**2


def _cylinder_moments(skeleton: Skeleton) -> tuple[Float[Tensor, "21"], Float[Tensor, "21"]]:
    """Return the second moments along each bone, less those of its end masses, and across it [kg m^2].

    A joint's mass belongs to the bones that meet there, in proportion to their lengths. A bone's radius is the mean of its ends' spheres.
    """
    lengths, parents = skeleton.lengths[1:], list(PARENTS[1:])
    meeting = torch.stack([skeleton.lengths[j] + skeleton.lengths[list(CHILDREN[j])].sum() for j in range(NUM_JOINTS)])
    per_length = skeleton.masses / meeting
    near, far = lengths * per_length[parents], lengths * per_length[1:]
    mass, radius = near + far, (skeleton.radii[parents] + skeleton.radii[1:]) / 2
    return mass * lengths**2 / 12 - near * far / mass * lengths**2, mass * radius**2 / 4
