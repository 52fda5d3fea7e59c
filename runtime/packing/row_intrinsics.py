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

    def count(x: Any, i: int, more: int) -> Any:
        """x[i] before `more` is added to it, atomically."""
        before = x[i]
        x[i] += more
        return before

    def fresh(x: Any, i: int) -> Any:
        """x[i] as memory has it, whoever has written it meanwhile."""
        return x[i]

    def quotient(x: Any, y: Any) -> Any:
        """x // y of int32 that are not negative."""
        return np.int32(x // y)

    def nearest_integer(x: Any) -> Any:
        """x, below 2^31, to the nearest int32, ties to even."""
        return np.int32(np.rint(x))

    nearest_integer32 = nearest_integer64 = nearest_integer

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
    def count(typing: Any, x: Any, i: Any, more: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.gep(arguments[0], [arguments[1]])
            return builder.atomic_rmw("add", place, arguments[2], "monotonic")

        return types.int32(x, i, types.int32), generate

    @intrinsic
    def fresh(typing: Any, x: Any, i: Any) -> Any:
        # The names of a register in PTX and in LLVM's constraints.
        kind, name = {
            types.int32: ("u32", "r"),
            types.uint32: ("u32", "r"),
            types.uint64: ("u64", "l"),
            types.float32: ("f32", "f"),
        }[x.dtype]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.gep(arguments[0], [arguments[1]])
            load = ir.InlineAsm(
                ir.FunctionType(context.get_data_type(x.dtype), [place.type]),
                f"ld.relaxed.gpu.{kind} $0, [$1];",
                f"={name},l",
                side_effect=True,
            )
            return builder.call(load, [place])

        return x.dtype(x, i), generate

    @intrinsic
    def quotient(typing: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.udiv(*arguments)

        return types.int32(types.int32, types.int32), generate

    nearest_integer32, nearest_integer64 = libdevice.float2int_rn, libdevice.double2int_rn

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
