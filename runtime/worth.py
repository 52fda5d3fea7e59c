"""The gate: whether a product takes a scheme, moves to a GPU, or stays native because of its size.

Every size from which a product gains stands here, with the costs that it follows from: constants
that were measured, and the times that a device's model predicts. The functions are in the order in
which a product meets them: what its size alone says, what is known without a device, then what the
figures of a device say. `signatures` keeps the answers.
"""

import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
from numpy import ndarray

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.arrays import (
    AnyArray,
    Array,
    Tensor,
    default_scheme,
    is_transposed,
    is_wide,
    name_of,
    real_products,
)
from mixpert_py.runtime.gpu.staging import MOST_COPIERS
from mixpert_py.runtime.kernels.tiny_block import EDGE
from mixpert_py.runtime.model import STANDS_IN
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.reference.emulation import is_transpose
from mixpert_py.runtime.request import Call, broadcast, result_shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import crt, emulation_of

if TYPE_CHECKING:
    from mixpert_py.runtime.model.kernel_times import KernelTimes

Dims = tuple[int, ...]

# Elements of a left operand from which a NumPy product may be worth moving to a GPU.
MIN_ELEMENTS_TO_MOVE: Final = 1 << 20

# Bytes of a matrix on a GPU. Where nobody chose a scheme, matrices of no more are multiplied
# natively on any device: from 512 × 512 float32 on, products may gain where K is short.
SMALL_BYTES: Final = 1 << 20
# The same in elements: of float32, and of the largest type that takes a scheme unasked.
SMALL_FLOAT32: Final = SMALL_BYTES // 4
SMALL_ELEMENTS: Final = SMALL_BYTES // 8

# Matrices from which a stack of tiny ones may gain; a stack of fewer that is as small as above
# never does. `gpu.tiny` makes them in FP32, 1.3 to 4 times as fast as the vendor from so many on,
# and 1.5 to 30 times for hundreds of thousands: measured from 4 × 4 to 32 × 32.
MIN_STACK: Final = 1000

# K from which products that nobody chose a scheme for take one: sums of fewer products of one sign
# may be further off than an FP32 chain's, since tensor cores truncate (see `schemes.fp16x3`), and
# than FP64's bound for them (see `schemes.crt`).
MIN_K = 48

# Rows of A or columns of B up to which `faithful` of real matrices gains nothing: memory limits it,
# and it moves each element of the larger operand three times. With 64 columns of B, 15000 × 5000
# took 307 µs on an H200, natively 221.
THIN: Final = 64

# m·n·k / (mk + kn + mn) from which a float32 product with its casts beats a float64 one: the casts
# move every element once, the product reads each min(m, n, k) times. Measured between 32 and 60.
MIN_THICKNESS: Final = 48

# Seconds of the parts of products of NumPy integers, measured on one core of a server. NumPy's loop
# takes longer where the columns of the right matrix lie apart in memory and leave the processor's
# cache; np.einsum's is quicker for narrow types; that of booleans ends at the first true pair.
INTEGER_LOOP = 0.38e-9  # for each multiplication
INTEGER_LOOP_APART = 0.7e-9
BYTES_APART = 1 << 16  # of the right matrix
EINSUM_BYTE = 0.04e-9  # for each byte of each multiplication
BOOLEAN_RESULT = 5e-9  # for each element of the result
# PyTorch's loops on a CPU, in one thread, for each multiplication and for each byte of it.
TENSOR_LOOP = 0.02e-9
TENSOR_BYTE = 0.006e-9
# Seconds of the parts of a product of integers that is made by floating point.
EXACT_START = 60e-6
EXACT_MATRIX = 0.4e-6  # for each matrix of a stack
EXACT_CAST = 1.5e-9  # for each element of an operand: its range is read, and it is cast
EXACT_RESULT = 1.5e-9  # for each element of a result, or of a partial sum
# The smallest products of integers that floating point may make faster. Smaller ones stay native
# without a look at their elements.
MIN_INTEGERS: Final = 72**3  # multiplications
MIN_BOOLEANS: Final = 240**3  # multiplications, if both operands are boolean
READ_IN_VAIN: Final = 8  # multiplications more for each element, which may be read in vain
MIN_EDGE: Final = 8  # the shortest side of two matrices
MIN_EDGE_OF_STACK: Final = 20  # the same if an operand is a stack of matrices
# A quicker test: elements of one operand times elements (of an einsum: bytes) of the other.
MIN_PAIRS: Final = MIN_EDGE * MIN_INTEGERS
MIN_IN_EINSUM: Final = 1 << 31
# To find that NumPy is faster takes some 40 µs. If it is, for a product of MAX_WORK_TO_REST
# multiplications or fewer, the next RESTED products of that site are native at once.
MAX_WORK_TO_REST: Final = 1 << 26
RESTED: Final = 8
# An einsum of integers is made pair by pair if one loop over all indices needs at least MIN_LOOP
# multiplications more than STEPS_GAIN times those of the pairs: each pair costs 0.1 ms besides.
MIN_LOOP: Final = 1 << 20
STEPS_GAIN: Final = 4
LAST_INTEGER: Final = np.dtype(np.ulonglong).num  # `num` of booleans and integers goes up to this

# A GPU multiplies CuPy's integers as digits from MIN_DIGITS multiplications on, and from a K that
# depends on the bytes of an element; 64-bit ones below TOO_LONG_FOR_DIGITS, where sums reach 2^31.
MIN_DIGITS: Final = 1 << 20
MIN_K_OF_DIGITS: Final = {1: 256, 2: 256, 4: 256, 8: 512}
TOO_LONG_FOR_DIGITS: Final = 1 << 15

# Multiplications from which a GPU makes `faithful` of fp16x3, and watches whether operands stay in
# its slices (see `gpu.guard`). Below, that gains nothing over the wider scheme: 32 and 34 µs at
# 1024³ on an H200, 72 and 107 at 1536³; and where rows leave, 53 and 34 µs.
MIN_GUARDED: Final = (1 << 30) + 1

# Multiply-adds of a sample from which a profile moves NumPy operands to a GPU to measure errors:
# NumPy emulates smaller products in less than a second or so, and takes minutes for large ones.
MIN_SAMPLE_TO_MOVE = 1 << 27

SHIPPED = STANDS_IN  # the device whose figures are used before a GPU has been looked for
# Seconds that a GPU would have saved, from which CUDA starts in a thread. Beside an H200 that takes
# 0.6 to 1 s, 2.5 s with files from the disk, and 0.2 s more at the end of the process.
STARTING = 0.5
SAFETY = 1.2  # by how much moving must be faster: the host may be busier than when measured
STAGING = 5e9  # bytes/s where a model does not say
HOST = 65e9  # operations/s of a NumPy product by each core, where a model does not say
LATENCY = 1e-3  # seconds: memory, streams, launches, and the host's steps between them
# Seconds that a complex product keeps the host for each real one, where its launches are not
# prepared: beside an H200 0.12e-3 of CuPy's, 0.19e-3 of tensors.
PART = 0.19e-3
# Seconds that launches take which split complex operands and join products of their parts, besides
# what they move: `faithful` of 512³ takes 46 µs on an H200, of 1024³ 92.
JOINING = 25e-6
# Seconds by which the device must be faster for a scheme that nobody chose. GUARDED_GAIN: where the
# device also watches the operands, which takes nine launches. These took the host 80 µs longer for
# a product of NMF, of which the device saved 15 to 31. TRAINED_GAIN: in training, where the host is
# slower than in a loop of one product: a step of LoRA with 113 products by `faithful` took it 12 ms
# longer than natively, one of these products in a loop 10 to 30 µs.
LEAST_GAIN = 5e-6
GUARDED_GAIN = 6e-5
TRAINED_GAIN = 1e-4
# Seconds that PyTorch takes on the host for one layer, in training (both passes and the step) and
# without: 0.45e-3 and 40e-6 for a layer of a GPT, beside an H200. If products take the device less,
# by the mean over a model's weights, then the host sets the pace, and no scheme helps. HOOK: by how
# much each of PyTorch's products takes the host longer while the hook is in place.
LAYER_TRAINED = 4e-4
LAYER = 5e-5
HOOK = 1e-5
# How much faster `crt` must be, with 14 moduli, to be taken by default: with 15, which log-normal
# data needs, it takes 1/14 longer.
CRT_MARGIN = 1.07

# How to ask an array that may be on a GPU for the number of its elements, by the types that have
# been multiplied. Sparse tensors cannot say how many bytes they have.
size_of: dict[type, Callable[[Any], int]] = {}

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=size_of.clear)  # CUDA does not survive a fork


def is_small(a: Any, b: Any) -> bool:
    """Whether two operands are too small for their product to take a scheme unasked.

    `api.matmul` and its like, and `signatures.kept_product`, repeat this without a call of it.
    """
    if type(a) is type(b) is ndarray:
        return a.size < MIN_ELEMENTS_TO_MOVE and not may_be_exact(a, b)
    return is_small_on_device(a) and is_small_on_device(b)


def integers_gain(shape: Shape, dtype: "np.dtype[Any]") -> bool:
    """Whether INT8 tensor cores make a product of CuPy's integers sooner than CuPy's own loop."""
    m, k, n = shape
    holds = dtype.itemsize < 8 or k < TOO_LONG_FOR_DIGITS
    return holds and m * k * n >= MIN_DIGITS and k >= MIN_K_OF_DIGITS[dtype.itemsize]


def may_be_exact(a: Array, b: Array) -> bool:
    """Whether floating point may make the product of two NumPy arrays of integers sooner."""
    if b.ndim < 2 or (multiplications := a.size * b.shape[-1]) < MIN_INTEGERS or a.ndim < 2:
        return False  # first of all: what most calls wait for
    if a.dtype.num > LAST_INTEGER or b.dtype.num > LAST_INTEGER:
        return False
    least = MIN_BOOLEANS if a.dtype.num == 0 == b.dtype.num else MIN_INTEGERS
    if multiplications < least + READ_IN_VAIN * (a.size + b.size):
        return False
    edge = MIN_EDGE if a.ndim == 2 == b.ndim else MIN_EDGE_OF_STACK
    return bool(min(*a.shape[-2:], *b.shape[-2:]) >= edge)


def exact_seconds(
    multiplications: int, cast: int, results: int, matrices: int, *, is_double: bool
) -> float:
    """Predicted seconds of a product of integers by floating point. cast: elements of operands that
    are cast; results: elements of results and partial sums; matrices: products of two matrices.
    """
    return (
        EXACT_START
        + multiplications * ((4 if is_double else 2) / HOST)
        + cast * EXACT_CAST
        + results * EXACT_RESULT
        + matrices * EXACT_MATRIX
    )


def integer_seconds(
    multiplications: int, b: Array, dtype: "np.dtype[Any]", *, is_einsum: bool
) -> float:
    """Predicted seconds of a product of integers by NumPy, and no more. b: its right operand."""
    if is_einsum and dtype.kind != "b":  # np.einsum needs no matrices, which take as long again
        each = min(EINSUM_BYTE * dtype.itemsize, INTEGER_LOOP)
        return multiplications * each - EXACT_START
    k, n = b.shape[-2:]
    is_apart = abs(b.strides[-2]) > b.itemsize and k * n * dtype.itemsize >= BYTES_APART
    return multiplications * (INTEGER_LOOP_APART if is_apart else INTEGER_LOOP)


def tensor_seconds(multiplications: int, dtype: "np.dtype[Any]") -> float:
    """Predicted seconds of a product of integer tensors by PyTorch on a CPU."""
    return multiplications * (TENSOR_LOOP + TENSOR_BYTE * dtype.itemsize)


def boolean_seconds(results: int, length: float) -> float:
    """NumPy's seconds for booleans. length: mean number of pairs up to the first pair of trues."""
    return results * (BOOLEAN_RESULT + length * INTEGER_LOOP)


def are_small(operands: Iterable[Any], min_product: int = 0) -> bool:
    """Whether all arrays among some operands are too small for products of them to take a scheme
    unasked. On a GPU only matrices are.

    min_product: elements of one array of integers times bytes of the next, from which their
    product may gain.
    """
    last = None
    for x in operands:
        if type(x) is ndarray:
            if x.size >= MIN_ELEMENTS_TO_MOVE:
                return False
            if last is not None and last.size * x.nbytes >= min_product and may_be_exact(last, x):
                return False
            last = x
        elif type(x) not in (str, list, tuple) and not (is_small_on_device(x) and x.ndim < 3):
            return False
    return True


def is_small_on_device(x: Any) -> bool:
    """Whether an array is on a GPU, and too small for its products to take a scheme unasked."""
    count = size_of.get(type(x))
    if count is None or count(x) > SMALL_ELEMENTS:
        return False
    return x.ndim < 3 or is_short_stack(x.shape)


def is_short_stack(shape: Dims) -> bool:
    """Whether an array of this shape is a stack of too few matrices for small ones to gain."""
    return math.prod(shape[:-2]) < MIN_STACK


def is_thin(a: AnyArray | Tensor, b: AnyArray | Tensor) -> bool:
    """Whether two arrays on a GPU have a product by which no default gains: of float32 matrices of
    few rows or columns, or of stacks of such, but no tiny ones.
    """
    left, right = a.shape, b.shape
    m, n = left[-2] if len(left) > 1 else 1, right[-1] if len(right) > 1 else 1
    if (m > THIN and n > THIN) or not name_of(a.dtype) == name_of(b.dtype) == "float32":
        return False
    return max(m, n, right[-2] if len(right) > 1 else EDGE + 1) > EDGE


def may_gain(operand: Any) -> bool:
    """Whether products that PyTorch makes of an operand may take a scheme unasked: one of more
    than SMALL_BYTES.
    """
    if isinstance(operand, (list, tuple)):
        return True
    try:
        size = operand.nbytes
    except Exception:  # sparse and traced tensors, and objects of users, raise what they like
        return False
    return isinstance(size, int) and size > SMALL_BYTES


def is_too_short(scheme: str, k: int) -> bool:
    """Whether a default's bound for sums of this length is weaker than the native product's.

    Short sums of `faithful` are made by an FP32 chain where they are made at all.
    """
    return scheme == "crt" and k < MIN_K


def why_not_cast(a: Array, b: Array, shape: Shape) -> Reason | None:
    """Why the native product of NumPy arrays is faster than one in float32 with its casts; None: it
    is not, or it is one of float32 already.
    """
    dtypes = name_of(a.dtype), name_of(b.dtype)
    if not is_wide(*dtypes):
        return None
    m, k, n = shape
    products = real_products(*dtypes)
    cast = (a.size + b.size + m * n) * math.isqrt(products)
    return Reason.TOO_SMALL if m * k * n * products < MIN_THICKNESS * cast else None


def is_small_anywhere(call: Call) -> bool:
    """Whether arrays on a GPU are multiplied natively by default, without a look at the device."""
    return is_thin(call.a, call.b) or all(
        math.prod(x.shape) * np.dtype(name_of(x.dtype)).itemsize <= SMALL_BYTES
        and is_short_stack(x.shape)
        for x in (call.a, call.b)
    )


def why_not_on_device(
    call: Call, scheme: str, device_name: str, *, by_default: bool
) -> Reason | None:
    """Why the native product of arrays on such a GPU is faster than a scheme's; None: it is not.

    by_default: whether nobody has chosen the scheme. Then sums of few products take only the FP32
    chain of stacks of tiny matrices.
    """
    a, b = call.a.shape, call.b.shape
    dtypes = name_of(call.a.dtype), name_of(call.b.dtype)
    if dtypes == ("float32", "float32") and tiny_pays(scheme, a, b):
        return None
    if by_default and (a[-1] < MIN_K or min(len(a), len(b)) == 1):
        return Reason.TOO_SMALL
    try:
        kind = is_wide(*dtypes), real_products(*dtypes)
        half = kind[1] == 1 and is_transposed(call.a, call.b)
        size = math.prod(broadcast(a[:-2], b[:-2])) * math.prod(a[-2:]) * b[-1]
        least = _least_gain(scheme, size, is_trained=call.is_trained)
        is_faster = figures(device_name).faster(
            scheme, a, b, *kind, least_gain=least if by_default else 0.0, symmetric=half
        )
    except DeviceError:  # no tile holds the scheme's sums
        return Reason.KERNEL
    return None if is_faster else Reason.TOO_SMALL


def _least_gain(scheme: str, multiplications: int, *, is_trained: bool) -> float:
    """The seconds by which a default must be faster."""
    if is_trained:
        return TRAINED_GAIN
    is_guarded = scheme == "faithful" and multiplications >= MIN_GUARDED
    return GUARDED_GAIN if is_guarded else LEAST_GAIN


@lru_cache(maxsize=4096)
def layer_gains(
    device_name: str, dtype: str, shape: Shape, *, is_trained: bool
) -> tuple[float, float]:
    """The seconds that the default scheme saves such a GPU in the products of a weight, 0.0 if none
    takes it, and the seconds of the native products.

    shape: m rows of the other operand, and the two extents of the weight. is_trained: in training,
    with the two products of the backward pass.
    """
    m, k, n = shape
    scheme = default_scheme(dtype)
    least = _least_gain(scheme or "", m * k * n, is_trained=is_trained)
    known, kind = figures(device_name), (is_wide(dtype), real_products(dtype, dtype))
    gain, seconds = 0.0, 0.0
    for rows, length, columns in (shape, (m, n, k), (k, m, n))[: 3 if is_trained else 1]:
        a, b = (rows, length), (length, columns)
        with suppress(DeviceError):  # no tile holds the scheme's sums
            ours, native = known.times(scheme or "crt", a, b, *kind)
            seconds += native
            is_short = length < MIN_K or (dtype == "float32" and min(rows, columns) <= THIN)
            if scheme and not is_short and known.faster(scheme, a, b, *kind, least_gain=least):
                gain += native - ours
    return gain, seconds


class Times(Protocol):
    """Predicted seconds of a scheme, and of the native product, on a device that holds both
    operands.

    a, b: shapes. wide: for float64, or complex128. products: the number of real ones, 2 or 4 for
    complex operands. symmetric: whether B is A transposed in the same memory, so that the scheme
    makes half of C.
    """

    def __call__(
        self, scheme: str, a: Dims, b: Dims, wide: bool, products: int = 1, symmetric: bool = False
    ) -> tuple[float, float]: ...


class Figures(NamedTuple):
    """The break-even figures of one device.

    staging: bytes/s between NumPy arrays and the device. latency: seconds for the smallest product
    of NumPy arrays there. host: operations/s of a float32 product of NumPy arrays.
    """

    staging: float
    latency: float
    host: float
    times: Times

    def faster(
        self,
        scheme: str,
        a: Dims,
        b: Dims,
        wide: bool,
        products: int = 1,
        *,
        least_gain: float = 0.0,
        symmetric: bool = False,
    ) -> bool:
        """Return whether a scheme beats the native product. Arguments as in Times.

        least_gain: seconds by which it must be faster, if nobody has chosen it; `crt` must then be
        so by CRT_MARGIN as well.
        """
        ours, native = self.times(scheme, a, b, wide, products, symmetric)
        if least_gain:
            ours = ours * (CRT_MARGIN if scheme == "crt" else 1.0) + least_gain
        return ours < native


@cache
def figures(device: str) -> Figures:
    """Break-even figures of a device; a device without a model uses the nearest known one.

    The known device may be in another machine, so the host's figures follow the cores of this one.
    """
    # Not at the start: only who multiplies something large needs a model.
    from mixpert_py.runtime.model.device_model import model_of

    model = model_of(device)
    cores = processor.cores()
    measured_on = model.host.cores or cores
    copying = min(cores, MOST_COPIERS) / min(measured_on, MOST_COPIERS)
    rate = model.host.float32
    return Figures(
        model.transfer.staged * copying if model.transfer.staged else STAGING,
        LATENCY,
        HOST * cores if rate is None else rate * cores / measured_on,
        partial(_times, device),
    )


@lru_cache(maxsize=4096)
def _times(
    name: str, scheme: str, a: Dims, b: Dims, wide: bool, products: int = 1, symmetric: bool = False
) -> tuple[float, float]:
    # Not at the start: only who has a device, or may have one, needs this.
    from mixpert_py.runtime.model import prediction

    a, b = (1, *a)[-max(len(a), 2) :], b if len(b) > 1 else (*b, 1)
    if 0 in (*a, *b):
        return 0.0, 0.0
    m, k, n = *a[-2:], b[-1]
    times = _kernel_times(name)
    batch = math.prod(broadcast(a[:-2], b[:-2])) * products
    more = {"wide": wide, "shares_b": len(b) < 3 and products == 1, "symmetric": symmetric}
    made = emulation_on_gpu(scheme, batch * m * k * n)
    native = prediction.native(times, m, k, n, batch, wide=wide)
    if products == 4 and made.moduli:
        joined = prediction.joined(times, made, (m, k, n), batch // products, wide=wide)
        return joined.seconds, native
    ours = prediction.product(times, made, (m, k, n), batch, **more).seconds
    if products > 1:
        ours += JOINING + prediction.joining(times, m, n, batch, products, wide=wide)
    if products == 2:  # of two types, which are not prepared
        ours = max(ours, products * PART)
    return ours, native


@cache
def _kernel_times(device: str) -> "KernelTimes":
    from mixpert_py.runtime.model.device_model import model_of
    from mixpert_py.runtime.model.kernel_times import KernelTimes

    return KernelTimes(model_of(device))


def emulation_on_gpu(name: str, multiplications: int) -> Scheme:
    """The emulation by which a GPU makes products of so many multiplications under a name."""
    # What any operands may need, so that it pays whatever these do.
    scheme = emulation_of(f"crt{crt.MOST}" if name == "crt" else name)
    is_unguarded = name == "faithful" and multiplications < MIN_GUARDED
    return scheme.wider or scheme if is_unguarded else scheme


def tiny_pays(scheme: str, a: Dims, b: Dims) -> bool:
    """Whether a stack of tiny float32 products beats the native one. Each operand has as many
    matrices, or one for all.
    """
    if scheme != "faithful" or min(len(a), len(b)) < 2 or 0 in (*a, *b):
        return False
    if max(*a[-2:], b[-1]) > EDGE:
        return False
    count = math.prod(broadcast(a[:-2], b[:-2]))
    return count >= MIN_STACK and {math.prod(x[:-2]) for x in (a, b)} <= {1, count}


def moving_saves(a: Array, b: Array, shape: Shape, scheme: str, known: Figures) -> float:
    """The seconds that a product of NumPy arrays gains on the device, transfers included; 0 if it
    loses.

    The device computes while arrays move. For AᵀA and AAᵀ the host computes half, and one operand
    is moved.
    """
    m, k, n = shape
    dtypes, itemsize = (name_of(a.dtype), name_of(b.dtype)), np.result_type(a, b).itemsize
    wide, products = is_wide(*dtypes), real_products(*dtypes)
    result = m * n * itemsize
    operands = a.size + (0 if is_transpose(a, b) else b.size)
    moved = operands * itemsize + result  # all go as the result's type
    here = _here(a, b, m * n * k, known)
    there = moved / known.staging + known.latency
    if here <= there * SAFETY:
        return 0.0
    ours, _ = known.times(scheme, a.shape, b.shape, wide, products)
    return max(here - max(there, ours) * SAFETY, 0.0)


def _here(a: Array, b: Array, size: int, known: Figures) -> float:
    """Return the seconds of NumPy's product. size: m · n · k, for a whole stack."""
    dtypes = name_of(a.dtype), name_of(b.dtype)
    products = real_products(*dtypes)
    # BLAS makes half of AᵀA where A is in order; NumPy copies other arrays, and makes all.
    half = products == 1 and is_transpose(a, b) and min(a.strides) == a.itemsize
    return 2 * size * products * (2 if is_wide(*dtypes) else 1) / known.host / (2 if half else 1)


def native_pays(a: Array, b: Array, known: Figures) -> bool:
    """Return whether a product of float64 arrays takes longer on the host than on the device.

    The device makes it in its own FP64, from arrays that were moved there, and sends it back.
    """
    size = math.prod(result_shape(a, b))
    products = real_products(name_of(a.dtype), name_of(b.dtype))
    here = _here(a, b, size * a.shape[-1], known)
    _, native = known.times("crt", a.shape, b.shape, True, products)
    back = size * np.result_type(a, b).itemsize / known.staging
    return bool(native + back < here)
