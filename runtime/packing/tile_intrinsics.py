"""What the tile kernel needs of the machine beyond `intrinsics`, and the same for the simulator."""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="attr-defined, import-untyped"

from typing import Any

import numpy as np

from mixpert_py.runtime.packing.intrinsics import SIMULATED

if SIMULATED:

    def larger(x: Any, y: Any) -> Any:
        """The larger of two float32, NaN if either is."""
        return np.maximum(x, y)

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    @intrinsic
    def larger(typing: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            single = ir.FloatType()
            both = ir.FunctionType(single, [single, single])
            return builder.call(ir.InlineAsm(both, "max.NaN.f32 $0, $1, $2;", "=f,f,f"), arguments)

        return types.float32(types.float32, types.float32), generate
