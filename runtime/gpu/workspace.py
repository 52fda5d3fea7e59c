"""How much memory of the device a product takes besides its operands and its result.

    W = P(A, m) + P(B, n) + S

P(x, rows) is an operand of `rows` rows (A's) or columns (B's), packed into `count` slices whose
elements take `size` bytes (1 of integers, 2 of FP16 and BF16, 4 of TF32), in bytes:

    count · ⌈rows⌉8 · size · ⌈k⌉step  +  4 · rows · blocks  +  rows  +  32 KiB

its slices, k padded to steps of 64 bytes, or to whole blocks; a scale for each block of k; a flag
for each row; and what a tile may read past the end. Another rows · blocks where there are several
blocks, which may be outliers; 8 · rows · (2 + count) where norms are measured. An operand whose
rows are contiguous, and k long, takes a few bytes for each row and segment of k while it is packed.
S is what thread blocks that share the last tiles leave for one another: no more than 4 bytes ·
accumulators · tile for each multiprocessor. For int8x6 of float32, W is 0.75 (mk + kn) · 4 bytes,
and little more. Large products that are prepared for a wider scheme besides (see `guard`) take the
larger of both: 1.5 times their operands in place of once, for `faithful`; the sum of both where an
operand is packed beforehand, and in CUDA graphs.

Of residues, modulo N numbers, P is N · ⌈rows⌉tile · ⌈k⌉64 + 5 · rows, rows padded to those of whole
tiles, and S is N · ⌈m⌉tile · ⌈n⌉tile; an operand whose k is not contiguous takes another 28 bytes
for each row and chunk of k while it is packed. Of digits (`schemes.integers`) N is how many an
operand has in P, and one less than there are orders in S.
"""

import math
from typing import Literal

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.gpu.gemm import scratch
from mixpert_py.runtime.gpu.guard import WORD
from mixpert_py.runtime.model.tile import Depth
from mixpert_py.runtime.packing import packed_bytes, pooled
from mixpert_py.runtime.packing.operand import Form, layout
from mixpert_py.runtime.request import result_shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import OutlierRule


def needs(
    a: Form,
    b: Form,
    scheme: Scheme,
    result: str,
    batch: int,
    m: int,
    n: int,
    device: int,
    *,
    kept: tuple[bool, bool] = (False, False),
    wider: Scheme | None = None,
    rule: OutlierRule = "loss",
    measure: bool = False,
    captured: bool = False,
) -> int:
    """W, as CuPy's memory pool counts it, of what is multiplied at a time.

    kept: which operand is packed already. result: the type of the product, of which a launch makes
    `batch` matrices (m, n). wider: what they are prepared for as well, in the same memory unless an
    operand is kept, or the product captured in a graph. Allocates nothing.
    """
    forms = tuple(x for x, is_kept in zip((a, b), kept, strict=True) if not is_kept)
    which: Literal["both", "left", "right"] = "both"
    if len(forms) == 1:
        which = "right" if kept[0] else "left"
    packed = packed_bytes(scheme, which, forms, result, rule, measure, device) if forms else 0
    if wider is not None:
        again = packed_bytes(wider, "both", (a, b), result, rule, measure, device)
        packed = packed + again if captured or True in kept else max(packed, again)
        packed += pooled(WORD)
    place = layout(scheme.left, 1, 1, a.k, scheme.lengths(a.k)[1], False)
    depth = Depth(place.steps, place.blocks, place.steps_per_block)
    shared = scratch(scheme, m, n, batch, depth, result == "float64", device)
    return int(packed + pooled(shared))


def array_bytes(
    name: str, a: AnyArray, b: AnyArray, out: object, left: object = None, right: object = None
) -> int:
    """Bytes of whole arrays that a product takes besides W: operands cast to float64, or the parts
    of complex ones, and products of these.

    a, b: arrays of any library. out: None where the product is an array of its own. left, right:
    an operand that is packed already, parts and all.
    """
    size = math.prod(result_shape(a, b))
    if name == "float64":
        wide = 16 if is_complex(a, b) else 8
        casts = sum(x.size * wide for x in (a, b) if x.dtype.itemsize < wide)
        return int(casts) + (size * wide if casts or out is not None else 0)
    if not is_complex(a, b):
        return 0
    split = ((a, left), (b, right))
    parts = sum(x.size * x.dtype.itemsize for x, ready in split if is_complex(x) and ready is None)
    real = np.result_type(a.dtype, b.dtype).itemsize // 2
    return int(parts + 2 ** (is_complex(a) + is_complex(b)) * size * real)
