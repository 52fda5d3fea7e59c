"""The types of numbers that take schemes, by their names."""

from functools import lru_cache
from typing import Any

# The types that take schemes, and of what precision they are.
PRECISION = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}


def is_single(*dtypes: str) -> bool:
    """Whether all of some types are float32 or complex64."""
    return all(PRECISION.get(dtype) == "float32" for dtype in dtypes)


def default_scheme(*dtypes: str) -> str | None:
    """Return the default scheme of products on a GPU, by the dtypes of their operands.

    It is as accurate as the native product. None: the default is the native product.
    """
    if is_single(*dtypes):
        return "faithful"
    return "crt" if all(dtype == "float64" for dtype in dtypes) else None


def is_wide(*names: str) -> bool:
    """Whether any of these types is of float64's precision."""
    return any(PRECISION.get(name) == "float64" for name in names)


def real_products(*names: str) -> int:
    """The number of real products in a product of operands of two such types: 1, 2 or 4."""
    return 1 << sum(name.startswith("complex") for name in names)


def are_whole(*names: str) -> bool:
    """Whether all of some types are of integers or booleans."""
    return all(name.startswith(("int", "uint", "bool")) for name in names)


@lru_cache(maxsize=64)
def name_of(dtype: Any) -> str:
    """A dtype's name, which NumPy composes anew each time; PyTorch's without its module."""
    return str(dtype).rpartition(".")[2]
