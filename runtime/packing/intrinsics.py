"""What the kernels need of the machine beyond plain Python, and the same for Numba's simulator.

Wide loads and stores, the bits of a floating-point number, rounding and fused arithmetic: LLVM
instructions and libdevice calls where compiled, NumPy scalars in the simulator. None of them uses
`cuda.…`, so that the simulator need not swap this module's names.
"""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="attr-defined, import-untyped"

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config, cuda

SIMULATED: bool = bool(config.ENABLE_CUDASIM)

Function = Callable[..., Any]

if SIMULATED:

    def device(function: Function) -> Function:
        """A function called by kernels."""
        return function

    def load_four(x: Any, i: int) -> Any:
        """x[i : i + 4] as a tuple; the address is a multiple of 16 bytes."""
        return x[i], x[i + 1], x[i + 2], x[i + 3]

    def store_two(x: Any, i: int, first: Any, second: Any) -> None:
        """Stores two 32-bit words; the address is a multiple of 8 bytes."""
        x[i], x[i + 1] = first, second

    def store_four(x: Any, i: int, first: Any, second: Any, third: Any, fourth: Any) -> None:
        """Stores four elements of 32 bits; the address is a multiple of 16 bytes."""
        x[i], x[i + 1], x[i + 2], x[i + 3] = first, second, third, fourth

    def bits32(x: Any) -> Any:
        """The bits of a float32 as uint32."""
        return x.view(np.uint32)

    def bits64(x: Any) -> Any:
        """The bits of a float64 as uint64."""
        return x.view(np.uint64)

    def float32_of(bits: Any) -> Any:
        return np.uint32(bits).view(np.float32)

    def float64_of(bits: Any) -> Any:
        return np.uint64(bits).view(np.float64)

    def nearest(x: Any) -> Any:
        """x rounded to an integer, ties to even, in its own type."""
        return np.rint(x)

    nearest32 = nearest64 = nearest

    def fused(x: Any, y: Any, z: Any) -> Any:
        """x · y + z. Here rounded twice in float64: enough for what the kernels measure."""
        return type(z)(float(x) * float(y) + float(z))

    def trailing_zeros(bits: Any) -> Any:
        """Zero bits below the lowest that is set, of an unsigned integer that is not 0."""
        size = int(bits)
        return (size & -size).bit_length() - 1

    def bytes_of(low: Any, high: Any, selector: int) -> Any:
        """Four bytes picked from the eight of (high, low): nibble i of `selector` names byte i."""
        both = int(high) << 32 | int(low)
        picked = [both >> 8 * (selector >> 4 * i & 7) & 255 for i in range(4)]
        return np.uint32(int.from_bytes(bytes(picked), "little"))

else:
    from llvmlite import ir
    from numba.cuda import libdevice, types
    from numba.cuda.extending import intrinsic

    device = cuda.jit(device=True)

    def _wide(builder: Any, pointer: Any, index: Any, element: Any, count: int) -> Any:
        place = builder.gep(pointer, [index])
        return builder.bitcast(place, ir.PointerType(ir.VectorType(element, count)))

    def _pointer(context: Any, builder: Any, x: Any, value: Any) -> Any:
        """Of an argument of a kernel, or of an array of its own."""
        if isinstance(x, types.Array):
            return context.make_array(x)(context, builder, value).data
        return value

    @intrinsic
    def load_four(typing: Any, x: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element = context.get_data_type(x.dtype)
            pointer = _pointer(context, builder, x, arguments[0])
            # Four float64 are two loads of 16 bytes: that is as wide as one can be.
            count = 16 * 8 // x.dtype.bitwidth
            values = []
            for start in range(0, 4, count):
                index = builder.add(arguments[1], ir.Constant(arguments[1].type, start))
                loaded = builder.load(_wide(builder, pointer, index, element, count))
                loaded.align = 16
                for place in range(count):
                    at = ir.Constant(ir.IntType(32), place)
                    values.append(builder.extract_element(loaded, at))
            return context.make_tuple(builder, signature.return_type, values)

        return types.UniTuple(x.dtype, 4)(x, i), generate

    def _store(x: Any, count: int) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value, index, *words = arguments
            pointer = _pointer(context, builder, x, value)
            element = context.get_data_type(x.dtype)
            vector = ir.Constant(ir.VectorType(element, count), ir.Undefined)
            for place, word in enumerate(words):
                at = ir.Constant(ir.IntType(32), place)
                vector = builder.insert_element(vector, word, at)
            stored = builder.store(vector, _wide(builder, pointer, index, element, count))
            stored.align = 4 * count
            return context.get_dummy_value()

        return generate

    @intrinsic
    def store_two(typing: Any, x: Any, i: Any, first: Any, second: Any) -> Any:
        word = x.dtype
        return types.void(x, i, word, word), _store(x, 2)

    @intrinsic
    def store_four(
        typing: Any, x: Any, i: Any, first: Any, second: Any, third: Any, fourth: Any
    ) -> Any:
        word = x.dtype
        return types.void(x, i, word, word, word, word), _store(x, 4)

    def _reinterpreted(source: Any, target: Any) -> Any:
        def typed(typing: Any, x: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                return builder.bitcast(arguments[0], context.get_data_type(target))

            return target(source), generate

        return intrinsic(typed)

    bits32 = _reinterpreted(types.float32, types.uint32)
    bits64 = _reinterpreted(types.float64, types.uint64)
    float32_of = _reinterpreted(types.uint32, types.float32)
    float64_of = _reinterpreted(types.uint64, types.float64)

    nearest32, nearest64 = libdevice.rintf, libdevice.rint

    @intrinsic
    def fused(typing: Any, x: Any, y: Any, z: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.fma(*arguments)

        return z(z, z, z), generate

    @intrinsic
    def trailing_zeros(typing: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            count = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
            word = ir.IntType(32)
            return count if bits.bitwidth == 32 else builder.trunc(count, word)

        return types.int32(bits), generate

    bytes_of = libdevice.byte_perm


@device
def power_of_two(exponent):
    """2^exponent as float64, exponent ≤ 1023; 0 where that is subnormal."""
    return float64_of(np.uint64((exponent + 1023) << 52)) if exponent > -1023 else 0.0
