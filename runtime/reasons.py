"""Why a call ran natively although a scheme was meant for it."""

from collections.abc import Mapping
from enum import StrEnum

Shape = tuple[int, int, int]  # m, k, n of a product


class Reason(StrEnum):
    """The reasons, each in the words that a profile shows."""

    TOO_SMALL = "too small"
    NOT_AN_ARRAY = "not a NumPy or GPU array"
    SUBCLASS = "array subclass"
    SPARSE = "sparse operand"
    SCALAR = "scalar operand"
    INTEGER = "integer dtype"
    NO_INTEGERS = "no integers"
    DTYPE = "dtype without a scheme"
    SHAPE = "shapes do not match"
    DIMENSIONS = "no product of two matrices"
    OUT = "out= of another kind"
    FUNCTION = "no known product"
    ARGUMENT = "argument without a scheme"
    RANGE = "beyond float32's range"
    LOOP = "made in a loop"
    SPREAD = "exponent spread"
    OUTSIDE_PLAN = "less accurate than planned"
    GRADIENT = "tensor with a gradient"
    REDUCED = "TF32 or the like is allowed"
    AUTOCAST = "under PyTorch's autocast"
    OTHER_DEVICE = "operands on another device"
    NO_TENSOR_CORE = "no tensor core"
    STARTING = "the GPU is starting"
    OLD_GPU = "unsupported GPU"
    OLD_DRIVER = "driver too old"
    FORKED = "forked after CUDA began"
    NO_KERNEL = "no kernel of the scheme"
    KERNEL = "kernel did not compile"
    MEMORY = "out of memory"


# One line for each, which a table of calls has below it.
MEANING: Mapping[str, str] = {
    Reason.TOO_SMALL: "The native product is faster at this size.",
    Reason.NOT_AN_ARRAY: "An operand is an object that only the program's own product takes.",
    Reason.SUBCLASS: "An operand's class may multiply in its own way, as np.matrix does.",
    Reason.SPARSE: "Sparse matrices are multiplied by their own library.",
    Reason.SCALAR: "An operand is a number: nothing is summed.",
    Reason.INTEGER: "On a GPU, only matrices of CuPy's integers take a scheme.",
    Reason.NO_INTEGERS: "`exact` is for products of integers and booleans.",
    Reason.DTYPE: "Schemes are for float32, float64, complex64 and complex128.",
    Reason.SHAPE: "The program's own product decides about such shapes, or raises.",
    Reason.DIMENSIONS: "It is no product of two matrices, or of stacks of them.",
    Reason.OUT: "The array given as out= has another type or lies elsewhere.",
    Reason.FUNCTION: "The function that was called makes no product which can take a scheme here.",
    Reason.ARGUMENT: "The call has an argument that the runtime does not know.",
    Reason.RANGE: "A result of float64 operands overflowed in float32.",
    Reason.LOOP: "NumPy makes it in a loop; `blas` makes it by BLAS, in the same precision.",
    Reason.SPREAD: "The entries of the operands differ too much for the bound that is asked for.",
    Reason.OUTSIDE_PLAN: "The product was off by ten times as much as when the plan was tuned.",
    Reason.GRADIENT: "PyTorch needs its own product to differentiate it.",
    Reason.REDUCED: "The program lets its own product use TF32 or the like here.",
    Reason.AUTOCAST: "PyTorch chooses the precision here.",
    Reason.OTHER_DEVICE: "The operands lie on a GPU that is not the current one.",
    Reason.NO_TENSOR_CORE: "No GPU can be used here; `mixpert doctor` says why.",
    Reason.STARTING: "CUDA starts in a thread; until it has, products of NumPy arrays are native.",
    Reason.OLD_GPU: "Kernels need compute capability 8.0 or later.",
    Reason.OLD_DRIVER: "The driver is too old for CuPy; `mixpert doctor` says more.",
    Reason.FORKED: "A process that was forked after CUDA was started cannot use the GPU.",
    Reason.NO_KERNEL: "Integers on a GPU take `exact` from compute capability 9.0 on.",
    Reason.KERNEL: "The kernel could not be compiled or started on this GPU.",
    Reason.MEMORY: "There is too little memory left for the slices.",
}
