"""`einops_einsum`: einops.einsum, as the np.einsum that it stands for."""

from functools import lru_cache
from string import ascii_letters
from typing import Any

import numpy as np

from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.rearranged import as_arrays
from mixpert_py.runtime.products.replaced import EINSUM
from mixpert_py.runtime.request import Native


def einops_einsum(*operands: Any, native: Native, site: str | None = None, **given: Any) -> Any:
    """einops.einsum(*arrays, pattern): products of arrays whose axes have names.

    operands: anything `native` takes. NumPy and CuPy arrays under a pattern of plain names are
    multiplied as in `einsum`. Other arguments, result and errors as in `matmul`.
    """
    *arrays, pattern = operands
    compact = subscripts(pattern) if arrays and type(pattern) is str else None
    if compact is None or as_arrays(*arrays) is None:
        return native(*operands)

    def contract(letters: str, *factors: Any, **options: Any) -> Any:
        if letters == compact and not options:
            return native(*factors, pattern)
        library = np if isinstance(factors[0], np.ndarray) else _cupy()
        return library.einsum(letters, *factors, **options)

    contract.fun = EINSUM  # type: ignore[attr-defined]  # which it stands for
    return einsum(compact, *arrays, native=contract, site=site, **given)


def _cupy() -> Any:
    import cupy

    return cupy


@lru_cache
def subscripts(pattern: str) -> str | None:
    """The subscripts of np.einsum that a pattern of einops means; None for any but plain names."""
    left, arrow, right = pattern.partition("->")
    letters: dict[str, str] = {}
    terms = []
    for term in (*left.split(","), right):
        axes = term.split()
        if not all(axis.isidentifier() for axis in axes):
            return None
        for axis in axes:
            if axis not in letters and len(letters) == len(ascii_letters):
                return None
            letters.setdefault(axis, ascii_letters[len(letters) % len(ascii_letters)])
        terms.append("".join(letters[axis] for axis in axes))
    return f"{','.join(terms[:-1])}->{terms[-1]}" if arrow else None
