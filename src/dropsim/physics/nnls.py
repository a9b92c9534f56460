"""Non-negative least squares over a batch of small problems."""

import math

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.compute import arrays as kernels


def nnls(
    F: Float[Tensor, "*b m n"], b: Float[Tensor, "*b m"], active: Bool[Tensor, "*b n"] | None = None, *, ridge: float = 0.0
) -> Float[Tensor, "*b n"]:
    """Return c >= 0 that minimises |F c - b|^2, with c = 0 in the columns that are not active.

    F c is unique; where columns depend on each other c is not. A ridge above zero adds (ridge s |c|)^2, s being the norm of the longest
    column, and with it picks the smallest c: the optimality conditions are then off by ridge^2 s^2 c, which is 1e-12 at ridge = 1e-6.

    The active set of Lawson & Hanson, in double precision, one problem after the other, compiled. An active set vectorised over the batch
    in torch was no faster at a batch of 1024 than SciPy's, and several times slower below 100.
    """
    if ridge < 0:
        raise ValueError(f"the ridge of a least-squares problem cannot be negative, and is {ridge}")
    *batch, num_rows, num_columns = F.shape
    num = math.prod(batch)
    matrices = F.detach().to("cpu", torch.float64).reshape(num, num_rows, num_columns).numpy()
    targets = b.detach().to("cpu", torch.float64).reshape(num, num_rows).numpy()
    masks = np.ones((num, num_columns), dtype=bool) if active is None else active.detach().cpu().reshape(num, num_columns).numpy()
    squares = np.where(masks, np.einsum("bmn,bmn->bn", matrices, matrices), 0.0)
    if not np.isfinite(squares.sum() + targets.sum()):
        raise ValueError(_NOT_FINITE)
    c = np.zeros((num, num_columns))
    if kernels.installed():
        from dropsim.physics import linear

        contiguous = np.ascontiguousarray
        checked(linear.nnls(contiguous(matrices), np.ones(num_rows), contiguous(targets), contiguous(masks), ridge, c))
        return torch.from_numpy(c).reshape(*batch, num_columns).to(F.device)
    for i in np.flatnonzero(masks.any(axis=-1)):
        columns = np.flatnonzero(masks[i])
        matrix, target = matrices[i].take(columns, axis=1), targets[i]
        if ridge:
            matrix = np.concatenate((matrix, ridge * squares[i].max() ** 0.5 * np.eye(len(columns))))
            target = np.concatenate((target, np.zeros(len(columns))))
        # Each iteration brings one column in; the few that leave again come nowhere near this bound.
        c[i, columns] = scipy.optimize.nnls(matrix, target, maxiter=100 * num_columns)[0]
    return torch.from_numpy(c).reshape(*batch, num_columns).to(F.device)


_NOT_FINITE = "a least-squares problem has numbers that are not finite: look for NaN in the positions, velocities or forces"


def checked(status: int) -> None:
    """Raise what went wrong in a kernel."""
    from dropsim.physics.linear import ENDLESS, NOT_FINITE

    if status == NOT_FINITE:
        raise ValueError(_NOT_FINITE)
    if status == ENDLESS:
        raise RuntimeError("a least-squares problem did not come to its end")
