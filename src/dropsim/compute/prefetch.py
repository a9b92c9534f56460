"""Ask for memory before it is needed."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

CACHE_LINE = 16
"""Numbers of 32 bits in it."""
_INT = ir.IntType(32)


def _write(context, data, first, count):  # noqa: ANN001, ANN202
    """Ask for some numbers of an array to be fetched while other work goes on."""
    del context, first, count

    def generate(context, builder, signature, args):  # noqa: ANN001, ANN202
        address = ir.IntType(8).as_pointer()
        takes = ir.FunctionType(ir.VoidType(), (address, _INT, _INT, _INT))
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (address,), takes)
        start = builder.gep(cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data, [args[1]])
        with cgutils.for_range_slice(builder, args[1].type(0), args[2], args[1].type(CACHE_LINE)) as (offset, _):
            # To read (0), and to stay in all caches (3), which are of data (1).
            builder.call(prefetch, [builder.bitcast(builder.gep(start, [offset]), address), _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(data, types.intp, types.intp), generate


prefetch: Any = intrinsic(_write)
"""prefetch(data, first, count) in a kernel: `data` is a contiguous array of 32-bit numbers with one axis."""
