"""`einsum` of several operands and with options, einops's patterns of names, and `multi_dot`."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einops_einsum, einsum
from mixpert_py.runtime.products.multi_dot import multi_dot, steps
from mixpert_py.runtime.products.rearranged import contraction, expand
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.operands import Tagged, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)
SIZES = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 6, "l": 3, "B": 2, " ": 0}


def test_random_subscripts() -> None:
    """Sizes of 0 and 1, repeated and missing indices, outputs of all kinds."""
    choose = random.Random(1)
    products = 0
    for _ in range(3000):
        left, right, output = (choose.choices("abcd", k=choose.randint(0, 4)) for _ in range(3))
        subscripts = f"{''.join(left)},{''.join(right)}"
        if choose.random() < 0.8:
            subscripts += f"->{''.join(dict.fromkeys(output))}"
        sizes = {index: choose.randint(0, 4) for index in "abcd"}
        x, y = (RNG.standard_normal([sizes[index] for index in part]) for part in (left, right))
        wanted, _ = outcome(np.einsum, subscripts, x, y)
        result, _ = outcome(
            partial(einsum, scheme="float64", backend="reference"), subscripts, x, y
        )
        assert type(result) is type(wanted), subscripts
        if isinstance(wanted, tuple):
            assert result == wanted
        else:
            assert result.shape == wanted.shape, subscripts
            np.testing.assert_allclose(result, wanted, atol=1e-12)
            terms = expand(subscripts, (x.ndim, y.ndim))
            products += terms is not None and contraction(terms) is not None
    assert products > 50


def many(subscripts: str) -> list[Any]:
    inputs = subscripts.partition("->")[0].split(",")
    return [RNG.standard_normal([SIZES.get(index, 3) for index in part]) for part in inputs]


CHAINS = [
    # subscripts of several operands, how many of their pairs are products of matrices, of how many
    ("ij,jk,kl->il", 2, 2),
    ("ij,jk,kl,la->ia", 3, 3),
    ("ij,jk,k", 2, 2),
    ("ai,aj,jk->ik", 2, 2),
    ("i,ij,j->", 1, 2),
    ("aij,ajk,kl->ail", 2, 2),
    ("ii,ij,jk->k", 1, 2),
]
NO_CHAINS = ["ij,jk,kl->", "i,j,k->ijk", "i,i,i->i", "ij,ij,ij"]


@pytest.mark.parametrize(("subscripts", "products", "pairs"), CHAINS)
def test_more_operands_take_the_scheme_in_pairs(subscripts: str, products: int, pairs: int) -> None:
    arrays = many(subscripts)
    trace = Trace(keep=[SITE])
    for optimize in (False, True, "optimal", np.einsum_path(subscripts, *arrays)[0]):
        exact = np.einsum(subscripts, *arrays, optimize=optimize)
        with use(Context(scheme="int8x6", backend="reference", trace=trace)):
            result = einsum(subscripts, *arrays, site=SITE, optimize=optimize)
        assert type(result) is type(exact)
        np.testing.assert_allclose(result, exact, atol=1e-4)
        np.testing.assert_array_equal(trace.results.pop(SITE, result), result)
    record = trace.sites[SITE]
    assert record.calls >= 4 * pairs - 4
    assert record.schemes["int8x6"] >= 4 * products - 4
    assert set(record.reasons) <= {Reason.DIMENSIONS}


@pytest.mark.parametrize("subscripts", [*(c[0] for c in CHAINS), *NO_CHAINS])
@pytest.mark.parametrize("context", FORCES)
def test_more_operands_are_one_native_call_where_nobody_chose(
    subscripts: str, context: str
) -> None:
    arrays = many(subscripts)
    for optimize in (False, True):
        wanted = np.einsum(subscripts, *arrays, optimize=optimize)
        with use(FORCES[context]()):
            for _ in range(2):
                result = einsum(subscripts, *arrays, site=SITE, optimize=optimize)
                if context in ("nothing", "trace", "native"):
                    assert same(result, wanted)
                else:  # a scheme that came to nothing: the pairs are native, their order is ours
                    np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)


def _options() -> dict[str, dict[str, Any]]:
    return {
        "out": {"out": np.zeros((4, 6))},
        "out in FORTRAN order": {"out": np.zeros((4, 6), order="F")},
        "out every other": {"out": np.zeros((4, 12))[:, ::2]},
        "out float32": {"out": np.zeros((4, 6), "float32")},
        "out float32, same kind": {"out": np.zeros((4, 6), "float32"), "casting": "same_kind"},
        "out wrong shape": {"out": np.zeros((4, 5))},
        "out longer": {"out": np.zeros((2, 4, 6))},
        "out read-only": {"out": np.broadcast_to(0.0, (4, 6))},
        "out subclass": {"out": np.zeros((4, 6)).view(Tagged)},
        "out list": {"out": [0]},
        "out None": {"out": None},
        "dtype": {"dtype": "float64"},
        "dtype down, same kind": {"dtype": "f", "casting": "same_kind"},
        "order F": {"order": "F"},
        "casting": {"casting": "no"},
        "optimize": {"optimize": "optimal"},
        "optimize with a limit": {"optimize": ("greedy", 7)},
        "optimize wrong": {"optimize": "no such"},
        "optimize None": {"optimize": None},
        "optimize path": {"optimize": ["einsum_path", (0, 1)]},
        "optimize short path": {"optimize": ["einsum_path"]},
        "optimize dictionary": {"optimize": {}},
        "unknown": {"axis": 0},
        "all": {"out": np.zeros((4, 6)), "optimize": True, "dtype": float, "order": "C"},
    }


@pytest.mark.parametrize(
    ("option", "scheme", "subscripts"),
    sweep(
        list(_options()),
        [None, "native", "int8x10", "float64"],
        ["ij,jk", "ij,jl,lk->ik", "ij,kj->ik"],
    ),
)
def test_options_mean_what_they_mean(option: str, scheme: str | None, subscripts: str) -> None:
    arrays = many(subscripts)
    theirs, ours = _options()[option], _options()[option]
    wanted, its_warnings = outcome(partial(np.einsum, **theirs), subscripts, *arrays)
    with use(Context(scheme=scheme, backend="reference")):
        result, our_warnings = outcome(partial(einsum, site=SITE, **ours), subscripts, *arrays)
    assert our_warnings == its_warnings
    if scheme in (None, "native"):
        assert same(result, wanted)
        assert same(ours.get("out"), theirs.get("out"))
        return
    assert type(result) is type(wanted), (result, wanted)
    if isinstance(wanted, tuple):
        assert result == wanted
        return
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, atol=1e-5 if result.itemsize == 4 else 1e-6)
    if ours.get("out") is not None:
        assert result is ours["out"]


def test_an_out_that_is_an_operand_is_for_numpy() -> None:
    a, b = RNG.standard_normal((2, 4, 4))
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = einsum("ij,jk", a, b, out=(mine := a.copy()), site=SITE)
        einsum("ij,jk", mine, b, out=mine.T, site=SITE)
    assert result is mine
    assert trace.sites[SITE].reasons == {Reason.OUT: 1}


A, B, C = np.random.default_rng(0).standard_normal((3, 4, 4))


def einops(*operands: Any) -> Any:
    """Stand for einops.einsum, which makes a compact pattern and calls np.einsum."""
    *arrays, pattern = operands

    names: dict[str, str] = {}
    compact = "".join(
        names.setdefault(word, chr(ord("a") + len(names))) if word.isidentifier() else word
        for word in pattern.replace(",", " , ").split()
    )
    return np.einsum(compact, *arrays)


def test_a_pattern_of_names_takes_the_scheme() -> None:
    for operands in ((A, B, "i k, k j -> i j"), (A, B, C, "i k, k j, j l -> i l")):
        wanted = einops(*operands)
        trace = Trace()
        with use(Context(scheme="int8x3", backend="reference", trace=trace)):
            result = einops_einsum(*operands, native=einops, site=SITE)
        assert trace.sites[SITE].schemes == {"int8x3": len(operands) - 2}
        assert 0 < np.abs(result - wanted).max() < 0.1
        with use(Context()):
            for _ in range(2):
                again = einops_einsum(*operands, native=einops, site=SITE)
                np.testing.assert_array_equal(again, wanted)


def test_other_operands_are_einopss_own() -> None:
    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        result = einops_einsum([[1.0]], B[:1], "i k, k j -> i j", native=einops, site=SITE)
        np.testing.assert_array_equal(result, B[:1])
        with pytest.raises(TypeError):
            einops_einsum(A, B, native=einops_of_two)
    assert not trace.sites


def einops_of_two(a: Any, b: Any) -> Any:
    raise TypeError("no pattern")


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
