"""`multi_dot` means np.linalg.multi_dot, product by product, and says why it took no scheme."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.multi_dot import multi_dot, steps
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import SITE
from tests.runtime.without_gpu import no_gpu as no_gpu


def chain(*shapes: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


CHAINS: dict[str, Any] = {
    "two": chain((3, 4), (4, 5)),
    "two vectors": chain((4,), (4,)),
    "vector and matrix": chain((4,), (4, 5)),
    "two of three dimensions": chain((2, 3, 4), (4, 5)),
    "number and matrix": [np.array(2.0), *chain((4, 5))],
    "three, first two first": chain((2, 30), (30, 3), (3, 40)),
    "three, last two first": chain((40, 30), (30, 3), (3, 2)),
    "vectors at the ends": chain((4,), (4, 5), (5,)),
    "vector first": chain((4,), (4, 5), (5, 6)),
    "vector last": chain((3, 4), (4, 5), (5,)),
    "vectors around four": chain((4,), (4, 9), (9, 5), (5,)),
    "six": chain((30, 35), (35, 15), (15, 5), (5, 10), (10, 20), (20, 25)),
    "float32": chain((3, 4), (4, 5), (5, 6), dtype="float32"),
    "both dtypes": [*chain((3, 4), dtype="float32"), *chain((4, 5), (5, 6))],
    "tuple": tuple(chain((3, 4), (4, 5), (5, 6))),
    "empty sum": chain((3, 0), (0, 5), (5, 6)),
    "no rows": chain((0, 4), (4, 5), (5, 6)),
    "vector in the middle": chain((3, 4), (4,), (4, 5)),
    "three dimensions": chain((3, 4), (4, 5), (2, 5, 6)),
    "no match": chain((3, 4), (5, 6), (6, 7)),
    "no match of two": chain((3, 4), (5, 6)),
    "no match at a vector": chain((3,), (4, 6), (6, 7)),
    "one": chain((3, 4)),
    "none": [],
    "no sequence": 5,
    "array of matrices": np.ones((3, 4, 4)),
    "lists": [[[1.0, 2.0]], [[1.0], [2.0]], [[3.0]]],
    "generator": "made anew",
    **{name: [np.eye(4), x, np.eye(4)] for name, x in OPERANDS.items()},
}


def given(name: str) -> Any:
    return (x for x in CHAINS["two"]) if name == "generator" else CHAINS[name]


def test_the_order_is_the_textbooks() -> None:
    # Cormen et al., figure 15.5: ((A1 (A2 A3)) ((A4 A5) A6)).
    order = steps((30, 35, 15, 5, 10, 20, 25))
    assert set(order) == {(1, 1, 2), (0, 0, 2), (3, 3, 4), (3, 4, 5), (0, 2, 5)}
    assert order[-1] == (0, 2, 5)
    assert order.index((1, 1, 2)) < order.index((0, 0, 2))


def test_equal_costs_are_split_where_numpy_splits_them() -> None:
    assert steps((4, 4, 4, 4)) == ((1, 1, 2), (0, 0, 2))


OUTS: dict[str, Any] = {
    "fits": lambda shape: np.full(shape, 7.0),
    "Fortran": lambda shape: np.zeros(shape, order="F"),
    "float32": lambda shape: np.zeros(shape, np.float32),
    "dimensions": lambda shape: np.zeros((*shape, 1)),
    "number": lambda shape: 5,
}


@pytest.mark.parametrize("scheme", [None, "native", "float64"])
@pytest.mark.parametrize("kind", OUTS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("two", (3, 5)),
        ("three, first two first", (2, 40)),
        ("six", (30, 25)),
        ("vector first", (1, 6)),
        ("vectors at the ends", (1, 1)),
        ("int", (4, 4)),
    ],
)
def test_out_takes_the_last_product(
    name: str, shape: tuple[int, ...], kind: str, scheme: str | None
) -> None:
    theirs, ours = OUTS[kind](shape), OUTS[kind](shape)
    wanted, _ = outcome(partial(np.linalg.multi_dot, out=theirs), given(name))
    with use(Context(scheme=scheme)):
        for _ in range(2):
            result, _ = outcome(partial(multi_dot, site=SITE, out=ours), given(name))
            assert same(result, wanted), (result, wanted)
            assert same(ours, theirs)
            assert not isinstance(result, np.ndarray) or np.shares_memory(result, ours)
