"""What the row kernels need of the machine beyond `intrinsics`, and the same for the simulator."""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="attr-defined, import-untyped"

from typing import Any

import numpy as np

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

    def nearest_halves(first: Any, second: Any) -> Any:
        """Two float32 to nearest float16, in the lower and the upper half of a word; no −0."""
        return _word(np.float16(first), np.float16(second))

    def cut_halves(first: Any, second: Any) -> Any:
        """The same, rounded towards zero."""
        return _word(_cut(first), _cut(second))

    def first_half(word: Any) -> Any:
        """The float16 in the lower half of a word, as float32."""
        return np.float32(np.uint16(word & 0xFFFF).view(np.float16))

    def second_half(word: Any) -> Any:
        return first_half(word >> np.uint32(16))

    def _cut(x: Any) -> Any:
        near = np.float16(x)
        return np.nextafter(near, np.float16(0)) if abs(np.float32(near)) > abs(x) else near

    def _word(first: Any, second: Any) -> Any:
        low, high = ((half + np.float16(0)).view(np.uint16) for half in (first, second))
        return np.uint32(low | np.uint32(high) << np.uint32(16))

else:
    from llvmlite import ir
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

    def _halves(rounding: str) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, single = ir.IntType(32), ir.FloatType()
            convert = ir.InlineAsm(
                ir.FunctionType(word, [single, single]),
                f"cvt.{rounding}.f16x2.f32 $0, $1, $2;",
                "=r,f,f",
            )
            add = ir.InlineAsm(
                ir.FunctionType(word, [word, word]), "add.rn.f16x2 $0, $1, $2;", "=r,r,r"
            )
            both = builder.call(convert, [arguments[1], arguments[0]])
            # −0 + 0 is 0.
            return builder.call(add, [both, ir.Constant(word, 0)])

        def typed(typing: Any, first: Any, second: Any) -> Any:
            return types.uint32(types.float32, types.float32), generate

        return intrinsic(typed)

    nearest_halves, cut_halves = _halves("rn"), _halves("rz")

    def _half(shift: int) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bits = builder.lshr(arguments[0], ir.Constant(ir.IntType(32), shift))
            half = builder.bitcast(builder.trunc(bits, ir.IntType(16)), ir.HalfType())
            return builder.fpext(half, ir.FloatType())

        def typed(typing: Any, word: Any) -> Any:
            return types.float32(types.uint32), generate

        return intrinsic(typed)

    first_half, second_half = _half(0), _half(16)
