"""Projective dynamics: the inertial target and the global solve."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.physics.collider import GRIP_GAP, Collider, nearest_surface, push_out, served
from dropsim.physics.energy import Energy, Frame, FrameArrays, Target, Work
from dropsim.physics.wrench import GRAVITY


def inertial_target(
    x: Float[Tensor, "*b 22 3"], v: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"], h: float
) -> Float[Tensor, "*b 22 3"]:
    """Return y = x + h v + h^2 (M^-1 f + g): where the particles go if nothing holds them."""
    return x + h * v + h * h * (forces / masses.unsqueeze(-1) + _gravity(x.dtype, x.device))


@functools.cache
def _gravity(dtype: torch.dtype, device: torch.device) -> Float[Tensor, "3"]:
    return torch.tensor((0.0, 0.0, -GRAVITY), dtype=dtype, device=device)


def squared_distance(
    x: Float[Tensor, "*b 22 3"], y: Float[Tensor, "*b 22 3"], weights: Float[Tensor, "22"] | None = None
) -> Float[Tensor, "*b"]:
    """Return the sum over the joints of their squared distances [m^2], weighed or not."""
    if not kernels.serve(x, y):
        squares = (x - y).square().sum(-1)
        return squares.sum(-1) if weights is None else squares @ weights
    from dropsim.physics import linear

    out, rows = torch.empty(x.shape[:-2], dtype=torch.float64), (NUM_JOINTS, 3)
    shares = _ONES if weights is None else kernels.constant(weights)
    linear.squared_distance(kernels.array(x, *rows), kernels.array(y.expand_as(x), *rows), shares, kernels.array(out))
    return out


_ONES = np.ones(NUM_JOINTS)


def rigid_acceleration(
    wrench: Float[Tensor, "*b 6"], arms: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"]
) -> Float[Tensor, "*b 22 3"]:
    """Return the accelerations that a force and a moment about the centre of mass give the particles if the body moves as one [m/s^2]."""
    if kernels.serve(wrench, arms, masses):
        from dropsim.physics import linear

        out = torch.empty(arms.shape, dtype=torch.float64)
        rows = (NUM_JOINTS, 3)
        linear.rigid_acceleration(kernels.array(wrench, 6), kernels.array(arms, *rows), kernels.constant(masses), kernels.array(out, *rows))
        return out
    force, moment = wrench[..., :3], wrench[..., 3:]
    squared = arms.square().sum(-1)[..., None, None] * torch.eye(3).to(arms)
    inertia = (masses[:, None, None] * (squared - arms.unsqueeze(-1) * arms.unsqueeze(-2))).sum(-3)
    spin = torch.linalg.solve(inertia, moment)
    return (force / masses.sum()).unsqueeze(-2) + torch.linalg.cross(spin.unsqueeze(-2).expand_as(arms), arms)


class System:
    """The global step: (M + sum w A^T A) x = M y + sum w A^T p, with M scaled to a mean of one.

    Every A acts alike on x, y and z, so the system is 22 x 22 with three right-hand sides. It is in double precision: single loses
    two per cent of the momentum in a second.
    """

    def __init__(self, energies: Sequence[Energy], skeleton: Skeleton) -> None:
        """Lay out the constant part of the system."""
        self.energies = tuple(energies)
        self.mass = skeleton.masses / skeleton.masses.mean()
        self.matrices = [energy.matrix(skeleton).to(skeleton.masses.device, torch.float64) for energy in self.energies]
        self.grams = [energy.weight * A.T @ A for energy, A in zip(self.energies, self.matrices, strict=True)]
        self._constants: dict[tuple[bool, ...], tuple[np.ndarray, np.ndarray]] = {}

    def iterate(self, x: Float[Tensor, "*b 22 3"], frame: Frame, num: int) -> Float[Tensor, "*b 22 3"]:
        """Take some local and global steps from x."""
        if frame.arrays is not None and kernels.serve(x):
            return self._iterate_compiled(x, frame, frame.arrays, num)
        for _ in range(num):
            targets = [energy.project(x, frame) for energy in self.energies]  # local
            x = self.solve(targets, frame.y)  # global
        return x

    def solve(self, targets: Sequence[Target], y: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b 22 3"]:
        """Return the minimiser for given projections."""
        left = torch.diag(self.mass)
        right = self.mass.unsqueeze(-1) * y
        for energy, A, gram, target in zip(self.energies, self.matrices, self.grams, targets, strict=True):
            if target.active is None:
                left = left + gram
                right = right + energy.weight * (A.T @ target.p)
            else:
                rows = energy.weight * target.active.unsqueeze(-1) * A
                left = left + rows.transpose(-1, -2) @ A
                right = right + rows.transpose(-1, -2) @ target.p
        return torch.linalg.solve(left, right)

    def _iterate_compiled(self, x: Float[Tensor, "*b 22 3"], frame: Frame, arrays: FrameArrays, num: int) -> Float[Tensor, "*b 22 3"]:
        work = self.work(x.expand_as(frame.x).clone(memory_format=torch.contiguous_format))
        for _ in range(num):
            always = self.write(work, frame, arrays)  # local
            self.solve_rows(work, arrays, always)  # global
        return work.x

    def solve_rows(self, work: Work, arrays: FrameArrays, always: tuple[bool, ...]) -> None:
        """Put the joints where the rows wish them to be; for some energies all rows always apply."""
        from dropsim.physics.linear import global_step

        (A, weights, _), (constant, yes) = self._rows, self._constant(always)
        global_step(arrays.y, constant, A, weights, yes, work.p, work.active, work.joints)

    def work(self, x: Float[Tensor, "*b 22 3"]) -> Work:
        """Lay out the rows of all energies, one below the other; x has to be contiguous."""
        joints = kernels.array(x, NUM_JOINTS, 3)
        p = np.empty((len(joints), len(self._rows[0]), 3))
        return Work(x, joints, p, np.ones(p.shape[:-1], dtype=np.bool_))

    def write(self, work: Work, frame: Frame, arrays: FrameArrays) -> tuple[bool, ...]:
        """Let every energy write its rows; return for each whether all of them always apply."""
        return tuple([energy.write(work, frame, arrays, at) for energy, at in zip(self.energies, self._rows[2], strict=True)])

    @functools.cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """All matrices one below the other, their rows' weights, and where each energy's rows start."""
        starts = list(itertools.accumulate((len(A) for A in self.matrices[:-1]), initial=0))
        weights = np.concatenate([np.full(len(A), float(e.weight)) for e, A in zip(self.energies, self.matrices, strict=True)])
        return torch.cat(self.matrices).numpy(), weights, starts

    def _constant(self, always: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return masses and those energies of which all rows always apply, added up once; and which rows those are."""
        if always not in self._constants:
            grams = [gram for gram, yes in zip(self.grams, always, strict=True) if yes]
            yes = np.repeat(always, [len(A) for A in self.matrices])
            self._constants[always] = torch.stack((torch.diag(self.mass), *grams)).sum(0).numpy(), yes
        return self._constants[always]

    def values(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Mapping[str, Float[Tensor, "*b"]]:
        """Return what each energy is at x, by name [m^2]."""
        if frame.arrays is not None and kernels.serve(x):
            return self._values_compiled(x, frame, frame.arrays)
        targets = [energy.project(x, frame) for energy in self.energies]
        return self._by_name([e.value_of(x, target, A) for e, target, A in zip(self.energies, targets, self.matrices, strict=True)])

    def _by_name(self, values: Sequence[Float[Tensor, "*b"]]) -> dict[str, Float[Tensor, "*b"]]:
        """Add up energies of one name, such as two pins."""
        found = dict[str, Tensor]()
        for energy, value in zip(self.energies, values, strict=True):
            found[energy.name] = found[energy.name] + value if energy.name in found else value
        return found

    def _values_compiled(self, x: Float[Tensor, "*b 22 3"], frame: Frame, arrays: FrameArrays) -> Mapping[str, Float[Tensor, "*b"]]:
        from dropsim.physics.linear import row_values

        A, weights, starts = self._rows
        work = self.work(x.contiguous())
        self.write(work, frame, arrays)
        values = np.empty(work.active.shape)
        row_values(work.joints, A, weights, work.p, work.active, values)
        sums = torch.from_numpy(np.add.reduceat(values, starts, axis=-1)).reshape(*x.shape[:-2], len(starts))
        return self._by_name(sums.unbind(-1))


def restore_lengths(
    x: Float[Tensor, "*b 22 3"], skeleton: Skeleton, mobility: Float[Tensor, "*b 22"], *, iterations: int = 2
) -> Float[Tensor, "*b 22 3"]:
    """Bring every bone back to its length by the least mass-weighted displacement (fast projection, Goldenthal et al. 2007).

    Bones pull their two ends along themselves, in proportion to the ends' mobilities (inverse masses): with the true ones, linear and
    angular momentum stay what they were. Newton's method on the 21 lengths; twice is enough for the errors of one step.
    """
    if kernels.serve(x, mobility):
        return _restore_lengths_compiled(x, skeleton, mobility, iterations)
    incidence = _INCIDENCE.to(x)
    lengths = skeleton.lengths[1:].to(x)
    coupling = (incidence * mobility.unsqueeze(-2)) @ incidence.T
    for _ in range(iterations):
        bones = incidence @ x
        length = bones.norm(dim=-1)
        direction = bones / length.unsqueeze(-1)
        system = (direction @ direction.transpose(-1, -2)) * coupling
        tension = torch.linalg.solve(system, length - lengths)
        x = x - mobility.unsqueeze(-1) * (incidence.T @ (tension.unsqueeze(-1) * direction))
    return x


DEEP = 0.005
"""How far inside something somebody may be left by the usual rounds [m]."""
STRETCHED = 0.002
"""Relative error of a bone's length that may be left by them."""
MOST_ROUNDS = 8
"""Times as many rounds as usual for who has more than that left: a neck between a head and shoulders that lie on the floor."""


def settle(
    x: Float[Tensor, "*b 22 3"], x_before: Float[Tensor, "*b 22 3"], skeleton: Skeleton, colliders: Sequence[Collider], *,
    friction: float, h: float, contact_mobility: float, rounds: int,
) -> tuple[Float[Tensor, "*b 22 3"], Bool[Tensor, "*b 22"]]:  # fmt: skip
    """Push everybody out of what they are inside of and restore their bones' lengths, in turns; also return which joints touched.

    Joints in contact give less than their inverse masses say, by a factor. Where there are colliders, who is
    still deep inside one after these rounds, or has a stretched bone, has more.
    """
    most = rounds if not colliders else MOST_ROUNDS * rounds
    if (laid_out := served(colliders, x, x_before)) is not None:
        from dropsim.physics import linear

        out, contacts = torch.empty(x.shape, dtype=torch.float64), torch.empty(x.shape[:-1], dtype=torch.bool)
        rows, body = (NUM_JOINTS, 3), skeleton.arrays
        places = (kernels.array(x, *rows), kernels.array(x_before.expand_as(x), *rows), body.radii)
        bones = (body.lengths, body.mobility, contact_mobility, rounds, most, DEEP, STRETCHED)
        touched = (kernels.array(out, *rows), kernels.array(contacts, NUM_JOINTS))
        linear.settle(*places, *laid_out, friction, h, GRAVITY * h * h, GRIP_GAP, *bones, *touched)
        return out, contacts
    mobility = (skeleton.masses.mean() / skeleton.masses).to(x)
    contacts = torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)
    active = torch.ones(x.shape[:-2], dtype=torch.bool, device=x.device)
    for done in range(most):
        if done >= rounds:
            deep = (skeleton.radii.to(x) - nearest_surface(colliders, x).distance).amax(-1) >= DEEP
            active = active & (deep | (skeleton.bone_error(x) >= STRETCHED))
            if not active.any():
                break
        pushed, touching = push_out(x, x_before, skeleton.radii, colliders, friction=friction, h=h)
        contacts = contacts | (touching & active.unsqueeze(-1))
        pushed = restore_lengths(pushed, skeleton, torch.where(contacts, contact_mobility * mobility, mobility))
        x = torch.where(active[..., None, None], pushed, x)
    return x, contacts


def _restore_lengths_compiled(
    x: Float[Tensor, "*b 22 3"], skeleton: Skeleton, mobility: Float[Tensor, "*b 22"], iterations: int
) -> Float[Tensor, "*b 22 3"]:
    from dropsim.physics.linear import restore_lengths

    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    give = kernels.array(mobility.expand(x.shape[:-1]), NUM_JOINTS)
    rows = (NUM_JOINTS, 3)
    restore_lengths(kernels.array(x, *rows), skeleton.arrays.lengths, give, iterations, kernels.array(out, *rows))
    return out


_INCIDENCE = torch.zeros(NUM_JOINTS - 1, NUM_JOINTS, dtype=torch.float64)
"""Rows that take a bone's vector, child less parent, out of the joints."""
for _child in range(1, NUM_JOINTS):
    _INCIDENCE[_child - 1, _child], _INCIDENCE[_child - 1, PARENTS[_child]] = 1.0, -1.0
