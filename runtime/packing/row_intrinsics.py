"""What the row kernels need of the machine beyond `intrinsics`, and the same for the simulator."""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="attr-defined, import-untyped"

from typing import Any

from mixpert_py.runtime.packing.intrinsics import SIMULATED

if SIMULATED:

    def product(x: Any, y: Any) -> Any:
        """x · y, rounded before anything is added to it."""
        return x * y

    product32 = product64 = product

    def count_one(x: Any, i: int) -> Any:
        """x[i] before one is added to it, atomically."""
        before = x[i]
        x[i] += 1
        return before

else:
    from numba.cuda import libdevice, types
    from numba.cuda.extending import intrinsic

    product32, product64 = libdevice.fmul_rn, libdevice.dmul_rn

    @intrinsic
    def count_one(typing: Any, x: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.gep(arguments[0], [arguments[1]])
            one = context.get_constant(types.int32, 1)
            return builder.atomic_rmw("add", place, one, "monotonic")

        return types.int32(x, i), generate
