"""Mistakes in the runtime."""

from tests.mutants.mutant import Mutant

HERE = "tests/runtime"
PACKING = f"{HERE}/packing"
REFERENCE = f"{HERE}/reference"

SHARED_WITH_CUDA = (
    Mutant(
        "abi: the mask of a scale word's significand has ten bits",
        "runtime/kernels/abi.py",
        "SIGNIFICAND_MASK: Final = (1 << SIGNIFICAND_BITS) - 1",
        "SIGNIFICAND_MASK: Final = (2 << SIGNIFICAND_BITS) - 1",
        (f"{HERE}/test_abi.py",),
    ),
    Mutant(
        "abi: a whole significand is 128",
        "runtime/kernels/abi.py",
        "WHOLE_LOG: Final = 8",
        "WHOLE_LOG: Final = 7",
        (f"{HERE}/test_abi.py",),
    ),
    Mutant(
        "abi: the codes of float16 and bfloat16 are swapped",
        "runtime/kernels/abi.py",
        '"float16": ElementType(1, 2),\n    "bfloat16": ElementType(2, 2),',
        '"float16": ElementType(2, 2),\n    "bfloat16": ElementType(1, 2),',
        (f"{HERE}/test_abi.py",),
    ),
    Mutant(
        "abi: alpha and beta of a problem are swapped",
        "runtime/kernels/abi.py",
        'Field("double", "alpha", "rounded to float unless WIDE"),\n'
        '        Field("double", "beta", "likewise"),',
        'Field("double", "beta", "rounded to float unless WIDE"),\n'
        '        Field("double", "alpha", "likewise"),',
        (f"{HERE}/test_abi.py", f"{HERE}/gpu/test_gemm_launch.py"),
    ),
    Mutant(
        "abi: rows and positions of K of a small operand are swapped",
        "runtime/kernels/abi.py",
        'Field("long long", "rows", "m of A, n of B"),\n'
        '        Field("long long", "k", "positions of K"),',
        'Field("long long", "k", "positions of K"),\n'
        '        Field("long long", "rows", "m of A, n of B"),',
        (f"{HERE}/test_abi.py",),
    ),
    Mutant(
        "abi: the strides of slices and of scales are swapped",
        "runtime/kernels/abi.py",
        '"slices_stride",\n'
        "            \"bytes from one product's slices to the next's; 0: shared by all\",\n"
        '        ),\n        Field("long long", "scales_stride",',
        '"scales_stride",\n'
        "            \"bytes from one product's slices to the next's; 0: shared by all\",\n"
        '        ),\n        Field("long long", "slices_stride",',
        (f"{HERE}/test_abi.py", f"{HERE}/gpu/test_gemm_launch.py"),
    ),
    Mutant(
        "abi: a flagged row that is not finite does not leave",
        "runtime/kernels/abi.py",
        "LEAVES: Final = NONFINITE | OUTLIER",
        "LEAVES: Final = OUTLIER",
        (f"{HERE}/test_abi.py",),
    ),
)

SPLITS = (
    Mutant(
        "schemes: the low slice of fp16x3 is scaled by 2^11",
        "runtime/schemes/fp16x3.py",
        "LOW: Final = 12",
        "LOW: Final = 11",
        (f"{REFERENCE}/test_instruction_chain.py",),
    ),
    Mutant(
        "schemes: fp16x3 enters the total every 256 of K",
        "runtime/schemes/fp16x3.py",
        "    promotion=32,\n",
        "    promotion=256,\n",
        (f"{HERE}/test_scheme.py", f"{HERE}/test_schemes.py"),
    ),
    Mutant(
        "schemes: int8x6 has the terms of int8x8",
        "runtime/schemes/int8.py",
        "INT8X6 = digits(6, fitted(3, LOWER_LIMIT), 2, error=3.9e-7)",
        "INT8X6 = digits(6, fitted(3, LOWER_LIMIT), 3, error=3.9e-7)",
        (f"{HERE}/test_schemes.py",),
    ),
    Mutant(
        "schemes: crowded rows of int8x6 stay",
        "runtime/schemes/int8.py",
        "LOWER_LIMIT: Final = 0.75 * 2**13",
        "LOWER_LIMIT: Final = 0.75 * 2**15",
        (f"{REFERENCE}/test_outliers.py", f"{HERE}/test_schemes.py"),
    ),
    Mutant(
        "schemes: terms of one order too few",
        "runtime/scheme.py",
        "for total in range(order + 1)",
        "for total in range(order)",
        (f"{REFERENCE}/test_outliers.py", f"{HERE}/test_schemes.py"),
    ),
    Mutant(
        "schemes: MixPert's tiles of B are 16 columns",
        "runtime/schemes/mixpert.py",
        "COLUMNS_OF_B = 8",
        "COLUMNS_OF_B = 16",
        (f"{REFERENCE}/test_outliers.py", f"{HERE}/test_schemes.py"),
    ),
    Mutant(
        "schemes: bfloat16 rows span two binades more than is proved",
        "runtime/schemes/wide_range.py",
        "BF16_SLICES = FloatSlices(BF16, 3, scaled=True, highest=43, span=94)",
        "BF16_SLICES = FloatSlices(BF16, 3, scaled=True, highest=43, span=96)",
        (f"{HERE}/test_wide_range.py",),
    ),
    Mutant(
        "splitter: fitted digits overflow",
        "runtime/splitter.py",
        "FIT = 257.25",
        "FIT = 253.5",
        (f"{REFERENCE}/test_digits.py",),
    ),
    Mutant(
        "splitter: rows lose eight times as much before they leave",
        "runtime/splitter.py",
        "math.ldexp(1.0, -18 if bits >= 21",
        "math.ldexp(1.0, -15 if bits >= 21",
        (f"{HERE}/test_splitter.py", f"{REFERENCE}/test_outliers.py"),
    ),
    Mutant(
        "reference: a block's unit is not raised where rounding needs the room",
        "runtime/reference/digits.py",
        "raised = exponent + (np.rint(np.ldexp(wide, splitter.shift)) > splitter.largest)",
        "raised = exponent + (np.rint(np.ldexp(wide, splitter.shift)) > 2 * splitter.largest)",
        (f"{REFERENCE}/test_digits.py",),
    ),
    Mutant(
        "reference: tiles lose more before they leave",
        "runtime/reference/outliers.py",
        "flags: Array = np.repeat(loss > limit * norm, splitter.group, axis=0)",
        "flags: Array = np.repeat(loss > 2 * limit * norm, splitter.group, axis=0)",
        (f"{REFERENCE}/test_outliers.py",),
    ),
    Mutant(
        "reference: accumulators are combined by the wrong power of two",
        "runtime/reference/engine.py",
        "partial *= 2.0 ** (before - weight)",
        "partial *= 2.0 ** (before - weight + 1)",
        (f"{REFERENCE}/test_engine.py",),
    ),
    Mutant(
        "reference: B's outliers meet A's once more",
        "runtime/reference/reference.py",
        "added = _chain(kept_part(a, left.outlier, block), part.T)",
        "added = _chain(a, part.T)",
        (f"{REFERENCE}/test_outliers.py", f"{REFERENCE}/test_reference.py"),
    ),
)

PACKING_KERNELS = (
    Mutant(
        "packing: 256 / g is one in the kernels of whole rows",
        "runtime/packing/digits.py",
        "ratio = WIDE(WHOLE) / WIDE(significand)\n        flag = NONFINITE if top",
        "ratio = WIDE(1)\n        flag = NONFINITE if top",
        (f"{PACKING}/test_rows.py",),
    ),
    Mutant(
        "packing: bytes of digits are put together in another order",
        "runtime/packing/digits.py",
        "LOW_HALVES, HIGH_HALVES = 0x5410, 0x7632",
        "LOW_HALVES, HIGH_HALVES = 0x5410, 0x7623",
        (f"{PACKING}/test_packing.py",),
    ),
    Mutant(
        "packing: two digits hold one bit more",
        "runtime/packing/digits.py",
        "    HELD = side.held\n",
        "    HELD = side.held + 1\n",
        (f"{PACKING}/test_rows.py",),
    ),
    Mutant(
        "packing: seven-bit digits lose their sign",
        "runtime/packing/digits.py",
        "word = (word << 8) | (((digit ^ sign) - sign) & 255)",
        "word = (word << 8) | ((digit ^ sign) & 255)",
        (f"{PACKING}/test_packing.py",),
    ),
    Mutant(
        "packing: strips are swizzled by their rows, not by pairs of these",
        "runtime/packing/strip_kernels.py",
        "swizzle = np.int32((row >> 1) & 3)",
        "swizzle = np.int32(row & 3)",
        (f"{PACKING}/test_packing.py",),
    ),
    Mutant(
        "packing: the last strip of a batch is taken for the next product's",
        "runtime/packing/strip_kernels.py",
        "row = ((index - batch * strips) << height_log) + r",
        "row = (index << height_log) + r",
        (f"{PACKING}/test_packing.py",),
    ),
    Mutant(
        "packing: a cluster's blocks are sent what half of the warps find",
        "runtime/packing/cluster_kernels.py",
        "top = reduce_tops(top_of, own, APART * OF_WARP, GROUPS)",
        "top = reduce_tops(top_of, own, APART * OF_WARP, GROUPS // 2)",
        (f"{PACKING}/test_clusters.py",),
    ),
    Mutant(
        "packing: the second half of eight TF32 elements goes to the next pair of chunks",
        "runtime/packing/floats.py",
        "slices, index ^ 4, words[i + 4]",
        "slices, index ^ 8, words[i + 4]",
        (f"{PACKING}/test_rows.py",),
    ),
    Mutant(
        "repair: a row and a column that both leave are added twice",
        "runtime/packing/repair_kernels.py",
        "if place < found and not (unmarked and theirs & LEAVES != 0):",
        "if place < found:",
        (f"{PACKING}/test_repair.py",),
    ),
    Mutant(
        "repair: K's last chain is read past its end",
        "runtime/packing/repair_kernels.py",
        "length = np.int32(min(end - begin, CHAIN))",
        "length = np.int32(min(end - begin, CHAIN) // 8 * 8)",
        (f"{PACKING}/test_repair.py",),
    ),
    Mutant(
        "tiny: a block leaves out its last product",
        "runtime/kernels/tiny_kernels.py",
        "count = np.uint32(min(batch - first, PRODUCTS))",
        "count = np.uint32(min(batch - first, PRODUCTS - 1))",
        (f"{PACKING}/test_tiny.py",),
    ),
    Mutant(
        "tiny: columns of the last group are written past the row",
        "runtime/kernels/tiny_kernels.py",
        "if to < M and at < N:",
        "if to < M:",
        (f"{PACKING}/test_tiny.py",),
    ),
)

CERTIFICATES = (
    Mutant(
        "certificates: dropped terms cost nothing",
        "runtime/certificates/certificate.py",
        "weights = np.ones((scheme.left.count, scheme.right.count))",
        "weights = np.zeros((scheme.left.count, scheme.right.count))",
        (f"{HERE}/certificates/test_certificate.py", f"{REFERENCE}/test_reference.py"),
    ),
    Mutant(
        "certificates: what splitting loses of A meets B alone",
        "runtime/certificates/certificate.py",
        "np.stack([left.residual, left.norm + left.residual, *left.slices], axis=1)",
        "np.stack([left.residual, left.norm, *left.slices], axis=1)",
        (f"{HERE}/certificates/test_certificate.py",),
    ),
    Mutant(
        "certificates: the guarantee forgets the digits below the first",
        "runtime/certificates/guarantee.py",
        "dense += rounding * (1 + lower * (means + lower) / products)",
        "dense += rounding",
        (f"{HERE}/certificates/test_guarantee.py",),
    ),
    Mutant(
        "certificates: moduli of complex products leave out the rounding of sums",
        "runtime/certificates/complex_certificate.py",
        "unit = (UNIT64 if wide else UNIT32) * (1 + 2.0**-10)",
        "unit = 0 * (UNIT64 if wide else UNIT32)",
        (f"{HERE}/certificates/test_certificate.py",),
    ),
)

DECISIONS = (
    Mutant(
        "break-even: small products from a thickness of 20",
        "runtime/gpu/break_even.py",
        "SMALL_THICKNESS = 40.0",
        "SMALL_THICKNESS = 20.0",
        (f"{HERE}/gpu/test_break_even.py",),
    ),
    Mutant(
        "break-even: stacks of tiny products from 10 on",
        "runtime/gpu/break_even.py",
        "TINY_COUNT = 1000",
        "TINY_COUNT = 10",
        (f"{HERE}/gpu/test_break_even.py", f"{HERE}/gpu/test_tiny.py"),
    ),
    Mutant(
        "break-even: complex products cost one real one",
        "runtime/gpu/break_even.py",
        "math.prod(broadcast(a[:-2], b[:-2])) * products",
        "math.prod(broadcast(a[:-2], b[:-2]))",
        (f"{HERE}/gpu/test_break_even.py",),
    ),
    Mutant(
        "partition: several devices though a guarantee was asked for",
        "runtime/gpu/partition.py",
        "needs_one = request.left or request.right or request.addend or request.guarantee",
        "needs_one = request.left or request.right or request.addend",
        (f"{HERE}/gpu/test_multi_gpu.py",),
    ),
    Mutant(
        "partition: halves are not cut at multiples of a panel",
        "runtime/gpu/partition.py",
        "middle = -(-length // 2 // multiple) * multiple",
        "middle = length // 2",
        (f"{HERE}/gpu/test_workspace.py",),
    ),
    Mutant(
        "partition: parts may take all of the limit while others wait",
        "runtime/gpu/partition.py",
        'room = limit if request.scheme == "float64" or not halves else limit // 2',
        "room = limit",
        (f"{HERE}/gpu/test_workspace.py", f"{HERE}/gpu/test_complex_on_gpu.py"),
    ),
    Mutant(
        "request: nobody chose, and NumPy operands run faithful in the reference",
        "runtime/select.py",
        "        if emulates(backend) and request.guarantee is None:\n",
        "        if False:\n",
        (f"{HERE}/test_select.py",),
    ),
    Mutant(
        "request: products nobody chose a scheme for are made with any K",
        "runtime/select.py",
        "FAITHFUL_LEAST_K = 48",
        "FAITHFUL_LEAST_K = 4",
        (f"{HERE}/test_select.py",),
    ),
    Mutant(
        "request: a missing kernel goes unreported",
        "runtime/select.py",
        "        Reason.KERNEL,\n        Reason.MEMORY,\n",
        "        Reason.MEMORY,\n",
        (f"{HERE}/test_select.py", f"{HERE}/gpu/test_multiply.py"),
    ),
    Mutant(
        "execute: what another array library lent is not given back",
        "runtime/execute.py",
        "product = product.with_value(selection.give_back(product.value))",
        "pass",
        (f"{HERE}/test_execute.py", f"{HERE}/gpu/test_foreign.py"),
    ),
    Mutant(
        "guard: small products of `faithful` are made without one",
        "runtime/gpu/multiply.py",
        '    if is_plain and request.scheme == "faithful":\n        scheme = safe(',
        '    if is_plain and request.scheme == "fp16":\n        scheme = safe(',
        (f"{HERE}/gpu/test_multiply.py",),
    ),
    Mutant(
        "workspace: a guarded product takes the sum of both packings",
        "runtime/gpu/workspace.py",
        "packed = packed + again if captured or True in kept else max(packed, again)",
        "packed = packed + again",
        (f"{HERE}/gpu/test_workspace.py",),
    ),
    Mutant(
        "resident: operands that were written to are used all the same",
        "runtime/gpu/resident.py",
        "if not np.array_equal(found.sample, _sample(x), equal_nan=True):",
        "if found.sample.shape != _sample(x).shape:",
        (f"{HERE}/gpu/test_resident.py",),
    ),
    Mutant(
        "transfer: c less the product is the product less c",
        "runtime/gpu/transfer.py",
        "    np.subtract(product, c, out=out)",
        "    np.subtract(c, product, out=out)",
        (f"{HERE}/gpu/test_transfer_sums.py",),
    ),
    Mutant(
        "context: a site that passes stays so under a trace",
        "runtime/context.py",
        'if found.scheme in (None, "native") and self.trace is None and self.backend != "cuda":',
        'if found.scheme in (None, "native") and self.backend != "cuda":',
        (f"{HERE}/test_context.py", f"{HERE}/tracing"),
    ),
)

PRODUCTS = (
    Mutant(
        "complex: imaginary parts are subtracted",
        "runtime/complex_product.py",
        "np.add(ri, ir, out=out.imag)",
        "np.subtract(ri, ir, out=out.imag)",
        (f"{HERE}/test_complex_product.py",),
    ),
    Mutant(
        "complex: a stack that repeats itself is copied",
        "runtime/complex_product.py",
        "slice(0, 1) if stride == 0 else slice(None) for stride",
        "slice(None) for stride",
        (f"{HERE}/test_complex_product.py", f"{HERE}/gpu/test_complex_on_gpu.py"),
    ),
    Mutant(
        "einsum: an index that only one operand has is summed before",
        "runtime/products/contraction.py",
        "or not once <= set(output):",
        "or not once & set(output):",
        (f"{HERE}/products/test_contraction.py", f"{HERE}/products/test_einsum.py"),
    ),
    Mutant(
        "einsum: ellipses are aligned at their left",
        "runtime/products/contraction.py",
        'part.replace("...", dots[longest - e :])',
        'part.replace("...", dots[:e])',
        (f"{HERE}/products/test_contraction.py", f"{HERE}/products/test_einsum.py"),
    ),
    Mutant(
        "tensordot: one number of axes pairs them crosswise",
        "runtime/products/tensordot.py",
        "given: Sequence[object] = (range(-axes, 0), range(axes))",
        "given: Sequence[object] = (range(-axes, 0), range(axes)[::-1])",
        (f"{HERE}/products/test_tensordot.py",),
    ),
    Mutant(
        "multi_dot: the cost of a split is that of its left part",
        "runtime/products/multi_dot.py",
        "cost[i, k] + cost[k + 1, j] + sizes[i]",
        "cost[i, k] + sizes[i]",
        (f"{HERE}/products/test_multi_dot.py",),
    ),
    Mutant(
        "fused: a difference has its sign at the wrong term",
        "runtime/products/fused.py",
        "(alpha, -beta) if how.product_first else (-alpha, beta)",
        "(-alpha, beta) if how.product_first else (alpha, -beta)",
        (f"{HERE}/products/test_fused.py", f"{HERE}/gpu/test_addend.py"),
    ),
    Mutant(
        "in place: an element's store is left out",
        "runtime/products/in_place.py",
        "return _Place(owner[key], partial(operator.setitem, owner, key))",
        "return _Place(owner[key], lambda value: None)",
        (f"{HERE}/products/test_in_place.py",),
    ),
)

KEPT = (
    Mutant(
        "signatures: operands of another type find what is kept",
        "runtime/signatures.py",
        "        operands = a.shape, b.shape, a.dtype, b.dtype, ask(a), ask(b)\n",
        "        operands = a.shape, b.shape, b.dtype, b.dtype, ask(a), ask(b)\n",
        (f"{HERE}/test_signatures.py",),
    ),
    Mutant(
        "signatures: Dask's products are kept by their type",
        "runtime/signatures.py",
        "    if is_dask(call.a, call.b):\n",
        "    if False:\n",
        (f"{HERE}/test_signatures.py",),
    ),
    Mutant(
        "signatures: a call's own scheme is no part of it",
        "runtime/signatures.py",
        "else (settings.site, *own)",
        "else settings.site",
        (f"{HERE}/test_signatures.py",),
    ),
    Mutant(
        "signatures: a tensor in name only stays native for ever",
        "runtime/select.py",
        "        Reason.DIMENSIONS,\n    }",
        "        Reason.DIMENSIONS,\n        Reason.NOT_AN_ARRAY,\n    }",
        (f"{HERE}/test_signatures.py", f"{HERE}/gpu/test_foreign.py"),
    ),
    Mutant(
        "native: a matrix of columns is read as one of rows",
        "runtime/gpu/native.py",
        "        return 1, shape[0]\n",
        "        return 0, shape[0]\n",
        (f"{HERE}/gpu/test_native.py",),
    ),
    Mutant(
        "native: vectors go to the call for matrices",
        "runtime/gpu/native.py",
        " or min(*a, *b) < 2",
        "",
        (f"{HERE}/gpu/test_native.py",),
    ),
    Mutant(
        "native: operands of two types make the call",
        "runtime/gpu/native.py",
        "dtype == b.dtype and dtype.char in TYPES",
        "dtype.char in TYPES",
        (f"{HERE}/gpu/test_native.py",),
    ),
    Mutant(
        "native: another function's product is the operator's",
        "runtime/signatures.py",
        "native_product_of.get(kind) if takes_tensors else None",
        "native_product_of.get(kind)",
        (f"{HERE}/gpu/test_native.py",),
    ),
    Mutant(
        "native: another CuPy's function is called again and again",
        "runtime/gpu/native.py",
        "            native_product_of.pop(empty, None)\n",
        "",
        (f"{HERE}/gpu/test_native.py",),
    ),
    Mutant(
        "api: a call with a scheme of its own passes through",
        "runtime/api.py",
        "    return passes(site) and OWN.isdisjoint(options)\n",
        "    return passes(site)\n",
        (f"{HERE}/test_api.py",),
    ),
    Mutant(
        "api: unknown arguments are dropped",
        "runtime/api.py",
        """    if options:
        raise _unexpected("dot", options)
""",
        "",
        (f"{HERE}/test_api.py", "tests/mixpert_py/test_api.py"),
    ),
    Mutant(
        "context: the process default is not what threads see",
        "runtime/context.py",
        "    _process.context = context\n",
        "    innermost.set(Override(context, None))\n",
        (f"{HERE}/test_context.py",),
    ),
    Mutant(
        "recording: launches stay on the stream of the first call",
        "runtime/kernels/recording.py",
        "            found[0].append((ctypes.c_uint64.from_buffer(memory, STREAM_OFFSET), 0))\n",
        "",
        (f"{HERE}/test_recording.py",),
    ),
    Mutant(
        "recording: threads share the arguments of launches",
        "runtime/kernels/recording.py",
        "            bound = self._free.pop()\n",
        "            bound = self._free[-1]\n",
        (f"{HERE}/test_recording.py",),
    ),
    Mutant(
        "shipped: kernels of other sources are taken",
        "runtime/kernels/shipped.py",
        "return all(digest(path) == wanted for path, wanted in sources.items())",
        "return True",
        (f"{HERE}/test_shipped.py",),
    ),
    Mutant(
        "shipped: a driver that is older than the compiler ends a product",
        "runtime/kernels/compile.py",
        "        with suppress(cupy.cuda.driver.CUDADriverError):  # of a driver older",
        "        with suppress(KeyError):  # of a driver older",
        (f"{HERE}/test_shipped.py",),
    ),
    Mutant(
        "compiled ahead: the wider scheme's packing looks at no gate",
        "runtime/gpu/compile_ahead.py",
        "compilations(task, one is wider)",
        "compilations(task, False)",
        (f"{HERE}/gpu/test_compile_ahead.py",),
    ),
)

OBSERVED = (
    Mutant(
        "tracing: every second call is looked into",
        "runtime/tracing/trace.py",
        "(calls, after, due + after) if is_due",
        "(calls, calls + 2, due + after) if is_due",
        (f"{HERE}/tracing/test_trace.py",),
    ),
    Mutant(
        "tracing: cancellation in squares",
        "runtime/tracing/operand_statistics.py",
        "return max(1.0, whole / left) if left",
        "return max(1.0, (whole / left) ** 2) if left",
        (f"{HERE}/tracing/test_operand_statistics.py",),
    ),
    Mutant(
        "tracing: a view's result covers all of its owner",
        "runtime/tracing/buffers.py",
        "            if x.size != owner.size:\n                region",
        "            if False:\n                region",
        (f"{HERE}/tracing/test_buffers.py",),
    ),
    Mutant(
        "models: an accumulator is missing from a tile's registers",
        "runtime/model/tile.py",
        "return 1 + total + scheme.deferred if not scheme.exact else groups + total",
        "return 1 + total if not scheme.exact else groups + total",
        (f"{HERE}/test_abi.py",),
    ),
    Mutant(
        "models: a last wave that is not full costs nothing",
        "runtime/model/kernel_times.py",
        "math.ceil(tiles / self.chip.multiprocessors) * wave",
        "max(tiles // self.chip.multiprocessors, 1) * wave",
        (f"{HERE}/model",),
    ),
    Mutant(
        "models: a few tiles are given as many thread blocks as there are multiprocessors",
        "runtime/model/tile.py",
        "return Cut(count if tiles > count else tail * split, tail, split)",
        "return Cut(count, tail, split)",
        (f"{HERE}/model/test_tile.py", f"{HERE}/gpu/test_gemm_launch.py"),
    ),
    Mutant(
        "models: tensor cores round sums to nearest",
        "runtime/model/numerics.py",
        "x = ROUND[how.result](x / unit) * unit",
        "x = np.rint(x / unit) * unit",
        (f"{HERE}/model", f"{HERE}/probes/test_numerics.py"),
    ),
    Mutant(
        "models: a group's products are aligned to the first",
        "runtime/model/numerics.py",
        "    for other in found[1:]:\n",
        "    for other in found[:1]:\n",
        (f"{HERE}/model", f"{HERE}/probes/test_numerics.py"),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *SHARED_WITH_CUDA,
    *SPLITS,
    *PACKING_KERNELS,
    *CERTIFICATES,
    *DECISIONS,
    *PRODUCTS,
    *KEPT,
    *OBSERVED,
)
