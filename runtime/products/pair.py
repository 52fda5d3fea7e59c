"""Pair: a contraction of two arrays that is a product of (stacks of) matrices."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from mixpert_py.runtime.products.contraction import Sum, contraction
from mixpert_py.runtime.products.rearranged import rearranged
from mixpert_py.runtime.request import Call


class Pair:
    """Two arrays as stacks of matrices.

    run: their contraction as the program makes it. made: its result, once it has run.
    """

    def __init__(self, terms: Sum, arrays: Sequence[Any], run: Callable[[], Any]) -> None:
        found = contraction(terms)
        assert found is not None
        a, b = arrays
        size = dict(zip(found.left + found.right, a.shape + b.shape, strict=True))
        stack = [size[index] for index in found.stack]
        m, k, n = (prod(size[i] for i in part) for part in (found.rows, found.sum, found.columns))
        self.output = found.output
        self.letters = found.stack + found.rows + found.columns
        self.shape = tuple(size[index] for index in self.letters)
        self.made: list[Any] = []

        def made() -> Any:
            self.made[:] = [run()]
            return _moved(self.made[0], self.output, self.letters).reshape(*stack, m, n)

        rows = _moved(a, found.left, found.stack + found.rows + found.sum)
        columns = _moved(b, found.right, found.stack + found.sum + found.columns)
        self.call: Call = rearranged(
            made, rows.reshape(*stack, m, k), columns.reshape(*stack, k, n)
        )

    def restored(self, product: Any) -> Any:
        """A product of the matrices as what the contraction gives."""
        return _moved(product.reshape(self.shape), self.letters, self.output)


def _moved(x: Any, indices: str, wanted: str) -> Any:
    return x.transpose(*(indices.index(index) for index in wanted))
