"""`multi_dot` means np.linalg.multi_dot, product by product, and says why it took no scheme."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.multi_dot import multi_dot, steps
from tests.runtime.operands import outcome, same
from tests.runtime.without_gpu import SITE
from tests.runtime.without_gpu import no_gpu as no_gpu


def chain(*shapes: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


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
    ("matrices", "shape"),
    [
        (chain((3, 4), (4, 5)), (3, 5)),
        (chain((2, 30), (30, 3), (3, 40)), (2, 40)),
        (chain((4,), (4, 5), (5, 6)), (1, 6)),
        (chain((4,), (4, 5), (5,)), (1, 1)),
        (chain((4, 4), (4, 4), (4, 4), dtype="int"), (4, 4)),
    ],
)
def test_out_takes_the_last_product(
    matrices: Any, shape: tuple[int, ...], kind: str, scheme: str | None
) -> None:
    theirs, ours = OUTS[kind](shape), OUTS[kind](shape)
    wanted, _ = outcome(partial(np.linalg.multi_dot, out=theirs), matrices)
    with use(Context(scheme=scheme)):
        for _ in range(2):
            result, _ = outcome(partial(multi_dot, site=SITE, out=ours), matrices)
            assert same(result, wanted), (result, wanted)
            assert same(ours, theirs)
            assert not isinstance(result, np.ndarray) or np.shares_memory(result, ours)
