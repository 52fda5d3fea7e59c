"""`einsum` means np.einsum of two operands, and says why it took no scheme."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.einsum import contraction, einsum
from mixpert_py.runtime.in_force import InForce, precision, use
from mixpert_py.runtime.trace import Reason, Trace
from tests.runtime.test_dispatch import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)
SIZES = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 6, "l": 3, "B": 2, " ": 0}

PRODUCTS = [
    # subscripts, (m, k, n) with a stack counted in m
    ("ij,jk->ik", (4, 5, 6)),
    ("ij,jk", (4, 5, 6)),
    (" i j , j k -> i k ", (4, 5, 6)),
    ("ij,jk->ki", (4, 5, 6)),
    ("ji,jk", (4, 5, 6)),
    ("ij,kj->ik", (4, 5, 6)),
    ("ji,kj->ki", (4, 5, 6)),
    ("kj,ji", (6, 5, 4)),
    ("ij,j", (4, 5, 1)),
    ("j,jk->k", (1, 5, 6)),
    ("ijk,kl", (20, 6, 3)),
    ("ijk,jkl->il", (4, 30, 3)),
    ("ijk,kjl->li", (4, 30, 3)),
    ("aij,ajk->aik", (8, 5, 6)),
    ("abij,abjk->abik", (24, 5, 6)),
    ("abij,bajk->biak", (24, 5, 6)),
    ("aij,aj->ai", (8, 5, 1)),
    ("ija,jak->aki", (8, 5, 6)),
    ("abi,abj->ij", (4, 6, 5)),
    ("iB,Bj", (4, 2, 5)),
]
OTHERS = [
    "i,i",
    "i,i->",
    "ij,ij",
    "ij,ij->i",
    "i,j->ij",
    "ij,ij->ij",
    "ij,k->ijk",
    "ij,k->i",
    "ij,jk->i",
    "ij,jk->k",
    "ii,ij->j",
    "ii,ij",
    "...ij,...jk->...ik",
    "ij,j...",
    "aij,ajk",
]
WRONG = ["ij,jk->ikl", "ij,jk->ii", "ij", "ij,jk,kl", "ij,jk-ik", "ij,j1", "", "ij->jk,", "ijk,jk"]


def operands(subscripts: str) -> list[Any]:
    """Matrices where the subscripts ask for none that there are."""
    inputs = subscripts.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    shapes = [[SIZES.get(index, 2) for index in part] for part in (*inputs, "ij", "jk")[:2]]
    return [RNG.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("force", FORCES)
@pytest.mark.parametrize("optimize", [False, True, "greedy"])
@pytest.mark.parametrize("subscripts", [*(s for s, _ in PRODUCTS), *OTHERS, *WRONG])
def test_a_call_that_passes_is_the_native_call(
    subscripts: str, optimize: bool | str, force: str
) -> None:
    case = subscripts, *operands(subscripts)
    wanted, _ = outcome(partial(np.einsum, optimize=optimize), *case)
    with use(FORCES[force]()):
        for _ in range(2):  # the first call of a site takes another way
            result, _ = outcome(partial(einsum, site=SITE, optimize=optimize), *case)
            assert same(result, wanted), (result, wanted)


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "float32"])
@pytest.mark.parametrize("subscripts", [*(s for s, _ in PRODUCTS), *OTHERS, *WRONG])
def test_an_emulated_call_differs_in_value_only(subscripts: str, scheme: str) -> None:
    case = subscripts, *operands(subscripts)
    wanted, _ = outcome(np.einsum, *case)
    with precision(scheme, backend="reference"):
        result, _ = outcome(einsum, *case)
    if not same(result, wanted):
        assert type(result) is type(wanted), (result, wanted)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("scheme", [None, "int8x6"])
def test_whatever_the_operands_are(scheme: str | None) -> None:
    with use(InForce(scheme=scheme, backend="reference")):
        for left, a in OPERANDS.items():
            for right, b in OPERANDS.items():
                wanted, _ = outcome(np.einsum, "ij,jk", a, b)
                result, _ = outcome(partial(einsum, site=SITE), "ij,jk", a, b)
                if not same(result, wanted):
                    assert scheme
                    assert type(result) is type(wanted), (left, right, result, wanted)
                    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
                    np.testing.assert_allclose(result, wanted, rtol=0, atol=3e-5)


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
            products += contraction(subscripts) is not None
    assert products > 50


@pytest.mark.parametrize(("subscripts", "shape"), PRODUCTS)
def test_products_of_matrices_take_the_scheme(subscripts: str, shape: tuple[int, int, int]) -> None:
    a, b = operands(subscripts)
    trace = Trace(keep=[SITE])
    kept = []
    for scheme in ("int8x6", "native"):
        with use(InForce(scheme=scheme, backend="reference", trace=trace)):
            result = einsum(subscripts, a, b, site=SITE)
        assert np.array_equal(result, np.einsum(subscripts, a, b)) == (scheme == "native")
        kept.append(trace.results[SITE])
    record = trace.sites[SITE]
    assert record.schemes == {"int8x6": 1, "native": 1}
    assert record.shapes == {shape: 2}
    assert not record.reasons
    assert kept[0].shape == kept[1].shape
    np.testing.assert_allclose(kept[0], kept[1], atol=2e-5)


@pytest.mark.parametrize(
    ("subscripts", "a", "b", "reason"),
    [
        ("ij,ij->i", np.ones((3, 4)), np.ones((3, 4)), Reason.DIMENSIONS),
        ("i,i", np.ones(4), np.ones(4), Reason.DIMENSIONS),
        ("ij,jk", np.ones((3, 1)), np.ones((4, 5)), Reason.SHAPE),
        ("ij,jk", np.ones((3, 4)), np.ones((1, 5)), Reason.SHAPE),
        (",i->i", np.array(2.0), np.ones(4), Reason.SCALAR),
        ("ij,jk", np.ones((3, 4), int), np.ones((4, 5)), Reason.INTEGER),
        ("ij,jk", np.ones((3, 4)), np.ones((4, 5), complex), Reason.COMPLEX),
        ("ij,jk", np.ones((3, 4)), np.ones((4, 5), "float16"), Reason.DTYPE),
        ("ij,jk", np.ones((3, 4)), np.matrix(np.ones((4, 5))), Reason.SUBCLASS),
        ("ij,jk", [[1.0, 2.0]], np.ones((2, 1)), Reason.NOT_AN_ARRAY),
        (np.ones((3, 4)), [0, 1], [1], Reason.NOT_AN_ARRAY),
    ],
)
def test_others_are_native_for_a_reason(subscripts: Any, a: Any, b: Any, reason: Reason) -> None:
    trace = Trace()
    with use(InForce(scheme="int8x6", backend="reference", trace=trace)):
        assert same(einsum(subscripts, a, b, site=SITE), np.einsum(subscripts, a, b))
    assert trace.sites[SITE].schemes == {"native": 1}
    assert trace.sites[SITE].reasons == {reason: 1}


@pytest.mark.parametrize("scheme", [None, "native", "int8x6"])
@pytest.mark.parametrize("subscripts", ["ij,jk", "ij,ij"])
def test_the_programs_own_function_is_called(subscripts: str, scheme: str | None) -> None:
    calls = []

    def native(*arguments: Any, **options: Any) -> Any:
        calls.append((*arguments, options))
        return np.einsum(*arguments, **options)

    a, b = np.ones((4, 4)), np.ones((4, 4))
    for options in ({}, {"optimize": True}):
        einsum(subscripts, a, b, scheme=scheme, site=SITE, native=native, **options)  # type: ignore[arg-type]
    for (letters, x, y, given), options in zip(calls, ({}, {"optimize": True}), strict=True):
        assert letters is subscripts
        assert x is a
        assert y is b
        assert given == options


@pytest.mark.gpu
@pytest.mark.parametrize(("edge", "scheme"), [(2048, "int8x6"), (32, "native")])
@pytest.mark.parametrize("subscripts", ["ij,jk->ki", "aij,akj->aik"])
def test_cupy_arrays(
    subscripts: str, edge: int, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # there is a GPU
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = cupy.random.default_rng(0)
    shape = (2,) * ("a" in subscripts) + (edge, edge)
    a, b = (rng.standard_normal(shape, dtype="float32") for _ in range(2))
    trace = Trace()
    with use(InForce(scheme="int8x6", trace=trace)):
        result = einsum(subscripts, a, b, site=SITE, native=cupy.einsum)
    assert trace.sites[SITE].schemes == {scheme: 1}
    assert type(result) is cupy.ndarray
    assert (result.dtype, result.shape) == (a.dtype, shape)
    exact = cupy.einsum(subscripts, a.astype(float), b.astype(float))
    assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 2e-6
