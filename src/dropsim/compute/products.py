"""Matrix products in single precision that give every row the same numbers, whatever other rows there are.

A BLAS chooses the order of its sums by the number of rows, so a person in a batch would part from the same person
alone. Here each number is summed in the order of the columns. The weights are laid out once, so for the few rows of one
person this is also faster.
"""

from typing import Any

import llvmlite.binding
import numpy as np
from jaxtyping import Float32
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 8
"""Numbers in a vector register."""
PANEL = 2 * LANES
"""Columns of the result that are computed together: with 6 rows, 6 x 2 sums, 2 vectors of weights and one of x fit in
16 registers."""


class Linear:
    """A linear layer, x weight^T + bias, with its weights laid out in panels of a few columns of the result."""

    def __init__(self, weight: Float32[np.ndarray, "o i"], bias: Float32[np.ndarray, "o"]) -> None:
        """Lay the weights out; the last panel is filled up with zeros."""
        self.size_out, self.size_in = weight.shape
        count = -(-self.size_out // PANEL)
        filled = np.zeros((count * PANEL, self.size_in), dtype=np.float32)
        filled[: self.size_out] = weight
        self.panels = np.ascontiguousarray(filled.reshape(count, PANEL, self.size_in).transpose(0, 2, 1))
        self.bias = np.zeros((1, count * PANEL), dtype=np.float32)
        self.bias[0, : self.size_out] = bias

    def __reduce__(self) -> tuple[type["Linear"], tuple[np.ndarray, np.ndarray]]:
        # The layout depends on the processor; somewhere else it is made again.
        weight = self.panels.transpose(0, 2, 1).reshape(-1, self.size_in)[: self.size_out]
        return Linear, (weight, self.bias[0, : self.size_out])

    def __call__(
        self, x: Float32[np.ndarray, "r i"], plus: Float32[np.ndarray, "p w"] | None = None
    ) -> Float32[np.ndarray, "r w"]:
        """Return x weight^T + bias, filled up to whole panels: only the first `size_out` columns mean something.

        With `plus`, an earlier result, this is added instead of the bias: its first row to the first r / p rows of x,
        and so on.
        """
        out = np.empty((len(x), self.bias.shape[1]), dtype=np.float32)
        multiply(np.ascontiguousarray(x), self.panels, self.bias if plus is None else plus, out)
        return out


def _tile(num_rows: int, num_panels: int = 1) -> Any:  # noqa: ANN401
    """Make the inner loop for some rows and panels: all sums stay in registers, and each runs over the columns of x in order."""

    @intrinsic
    def tile(_: Any, x: Any, panels: Any, start: Any, out: Any, row: Any, group: Any, panel: Any) -> Any:  # noqa: ANN401
        return types.void(x, panels, start, out, types.intp, types.intp, types.intp), write_tile

    def write_tile(context: Any, b: ir.IRBuilder, signature: Any, args: Any) -> Any:  # noqa: ANN401
        x, panels, start, out = (
            context.make_array(t)(context, b, a) for t, a in zip(signature.args[:4], args[:4], strict=True)
        )
        row, group, panel = args[4:]
        integer, vector = row.type, ir.VectorType(ir.FloatType(), LANES)
        width, width_out = b.extract_value(x.shape, 1), b.extract_value(out.shape, 1)
        multiply_add = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f32"
        )  # fused where the processor can
        column, nowhere = b.mul(panel, integer(PANEL)), ir.Constant(vector, ir.Undefined)
        first_lane = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

        def at(base: Any, *offsets: Any) -> Any:  # noqa: ANN401
            for offset in offsets:
                base = b.gep(base, [offset])
            return base

        def vectors(base: Any, between_panels: Any) -> list[Any]:  # noqa: ANN401
            places = [(b.mul(integer(p), between_panels), integer(v)) for p in range(num_panels) for v in (0, LANES)]
            return [b.bitcast(at(base, *place), vector.as_pointer()) for place in places]

        def rows(base: Any, width: Any) -> list[Any]:  # noqa: ANN401
            return [at(base, b.mul(b.add(row, integer(r)), width)) for r in range(num_rows)]

        panel_size, columns = b.mul(width, integer(PANEL)), integer(PANEL)
        weights = at(panels.data, b.mul(panel, panel_size))
        begin = [b.load(p, align=4) for p in vectors(at(start.data, b.mul(group, width_out), column), columns)]
        sources, targets = rows(x.data, width), [at(p, column) for p in rows(out.data, width_out)]
        before, loop, after = b.block, b.append_basic_block("sum"), b.append_basic_block("write")
        b.branch(loop)
        b.position_at_end(loop)
        k = b.phi(integer)
        sums = [[b.phi(vector) for _ in begin] for _ in range(num_rows)]
        factors, ends = [b.load(p, align=4) for p in vectors(at(weights, b.mul(k, columns)), panel_size)], []
        for source, totals in zip(sources, sums, strict=True):
            value = b.insert_element(nowhere, b.load(at(source, k), align=4), ir.IntType(32)(0))
            value = b.shuffle_vector(value, nowhere, first_lane)
            ends.append(
                [b.call(multiply_add, [value, factor, total]) for factor, total in zip(factors, totals, strict=True)]
            )
        following = b.add(k, integer(1))
        b.cbranch(b.icmp_signed("<", following, width), loop, after)
        k.add_incoming(integer(0), before)
        k.add_incoming(following, loop)
        for totals, ended in zip(sums, ends, strict=True):
            for total, first, last in zip(totals, begin, ended, strict=True):
                total.add_incoming(first, before)
                total.add_incoming(last, loop)
        b.position_at_end(after)
        for target, ended in zip(targets, ends, strict=True):
            for pointer, value in zip(vectors(target, columns), ended, strict=True):
                b.store(value, pointer, align=4)
        return context.get_dummy_value()

    return tile


_six, _four, _one, _one_by_four = _tile(6), _tile(4), _tile(1), _tile(1, 4)


@kernel
def multiply(x: Array, panels: Array, start: Array, out: Array) -> None:
    """Write start + x weight^T; the rows of x and out belong to the rows of `start` in groups of equal size. x has at least one column."""
    num_groups, first = len(start), 0
    size = len(x) // num_groups
    if len(x) == 1:
        # One row alone has too few sums to keep the processor busy: several panels at a time.
        while first + 4 <= len(panels):
            _one_by_four(x, panels, start, out, 0, 0, first)
            first += 4
    for panel in range(first, len(panels)):
        for group in range(num_groups):
            row, end = group * size, (group + 1) * size
            while row + 6 <= end:
                _six(x, panels, start, out, row, group, panel)
                row += 6
            if row + 4 <= end:
                _four(x, panels, start, out, row, group, panel)
                row += 4
            while row < end:
                _one(x, panels, start, out, row, group, panel)
                row += 1
