"""Why a call ran natively although a scheme was meant for it."""

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
    DTYPE = "dtype without a scheme"
    SHAPE = "shapes do not match"
    DIMENSIONS = "no product of two matrices"
    OUT = "out= of another kind"
    ARGUMENT = "argument without a scheme"
    RANGE = "beyond float32's range"
    SPREAD = "exponent spread"
    GRADIENT = "tensor with a gradient"
    REDUCED = "TF32 or the like is allowed"
    AUTOCAST = "under PyTorch's autocast"
    OTHER_DEVICE = "operands on another device"
    NO_TENSOR_CORE = "no tensor core"
    OLD_GPU = "unsupported GPU"
    OLD_DRIVER = "driver too old"
    FORKED = "forked after CUDA began"
    KERNEL = "kernel did not compile"
    MEMORY = "out of memory"
    WORKSPACE = "beyond the workspace limit"
