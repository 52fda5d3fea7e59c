"""`einsum` means np.einsum, and says why it took no scheme."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.products.contraction import contraction, expand
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.operands import OPERANDS, Tagged, outcome, same
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
    ("...ij,...jk->...ik", (4, 5, 6)),
    ("ij,j...", (4, 5, 1)),
    ("...ij,jk", (4, 5, 6)),
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
    "...i,...i->...",
    "i...,j",
    "aij,ajk",
]
WRONG = ["ij,jk->ikl", "ij,jk->ii", "ij", "ij,jk,kl", "ij,jk-ik", "ij,j1", "", "ij->jk,", "ijk,jk"]
WRONG += ["...ij,jk->ik", "..ij,jk", "i...j...,jk", "...ijk,kj->...i", "ij,jk->...ii"]


def operands(subscripts: str) -> list[Any]:
    """Matrices where the subscripts ask for none that there are."""
    inputs = subscripts.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    shapes = [[SIZES.get(index, 2) for index in part] for part in (*inputs, "ij", "jk")[:2]]
    return [RNG.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("subscripts", "optimize", "context"),
    sweep([*(s for s, _ in PRODUCTS), *OTHERS, *WRONG], [False, True, "greedy"], list(FORCES)),
)
def test_a_call_that_passes_is_the_native_call(
    subscripts: str, optimize: bool | str, context: str
) -> None:
    case = subscripts, *operands(subscripts)
    wanted, _ = outcome(partial(np.einsum, optimize=optimize), *case)
    with use(FORCES[context]()):
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
    with use(Context(scheme=scheme, backend="reference")):
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
            terms = expand(subscripts, (x.ndim, y.ndim))
            products += terms is not None and contraction(terms) is not None
    assert products > 50


@pytest.mark.parametrize(("subscripts", "shape"), PRODUCTS)
def test_products_of_matrices_take_the_scheme(subscripts: str, shape: tuple[int, int, int]) -> None:
    a, b = operands(subscripts)
    trace = Trace(keep=[SITE])
    kept = []
    for scheme in ("int8x6", "native"):
        with use(Context(scheme=scheme, backend="reference", trace=trace)):
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
        ("ij,jk", np.ones((3, 1)), np.ones((4, 5)), Reason.DIMENSIONS),
        ("ij,jk", np.ones((3, 4)), np.ones((1, 5)), Reason.DIMENSIONS),
        (",i->i", np.array(2.0), np.ones(4), Reason.SCALAR),
        ("ij,jk", np.ones((3, 4), int), np.ones((4, 5)), Reason.INTEGER),
        ("ij,jk", np.ones((3, 4)), np.ones((4, 5), "float16"), Reason.DTYPE),
        ("ij,jk", np.ones((3, 4)), np.matrix(np.ones((4, 5))), Reason.SUBCLASS),
        ("ij,jk", [[1.0, 2.0]], np.ones((2, 1)), Reason.NOT_AN_ARRAY),
        (np.ones((3, 4)), [0, 1], [1], Reason.DIMENSIONS),
    ],
)
def test_others_are_native_for_a_reason(subscripts: Any, a: Any, b: Any, reason: Reason) -> None:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
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


LISTS = [
    ("ij,jk->ik", ([0, 1], [1, 2], [0, 2])),
    ("ij,jk", ([0, 1], [1, 2])),
    ("zj,ja", ([25, 1], [1, 0])),
    ("ij,jk->ki", ((0, 1), (1, 2), (2, 0))),
    ("aij,ajk->aik", ([Ellipsis, 0, 1], [..., 1, 2], [..., 0, 2])),
    ("ij,jk,kl->il", ([0, 1], [1, 2], [2, 3], [0, 3])),
]


@pytest.mark.parametrize("scheme", [None, "int8x6"])
@pytest.mark.parametrize(("subscripts", "lists"), LISTS)
def test_lists_of_indices_mean_what_subscripts_mean(
    subscripts: str, lists: Any, scheme: str | None
) -> None:
    arrays = many(subscripts)
    interleaved = [x for pair in zip(arrays, lists, strict=False) for x in pair]
    given = [*interleaved, *lists[len(arrays) :]]
    trace = Trace()
    with use(Context(scheme=scheme, backend="reference", trace=trace)):
        result = einsum(*given, site=SITE)
        wanted = einsum(subscripts, *arrays)
    assert set(trace.sites[SITE].schemes) == {scheme or "native"}
    assert same(result, wanted)
    if scheme is None:
        assert same(result, np.einsum(*given))


@pytest.mark.parametrize(
    "lists",
    [
        ([0, 26], [26, 2]),
        ([0, -1], [-1, 2]),
        ([0, "j"], ["j", 2]),
        (0, 1),
        (np.array([0, 1]), np.array([1, 2])),
        ([0, 1], [1, 2], [3]),
        ([0, 1], [1, 2], [0, 0]),
        ([0, True], [1, 2]),
    ],
)
def test_other_lists_are_for_numpy_to_judge(lists: Any) -> None:
    a, b = RNG.standard_normal((2, 3, 3))
    given = [a, lists[0], b, *lists[1:]]
    with precision("int8x6", backend="reference"):
        result, _ = outcome(einsum, *given)
    assert same(result, outcome(np.einsum, *given)[0])


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


def test_what_is_kept_of_more_operands_does_not_depend_on_who_multiplied() -> None:
    arrays, kept = many("ij,jk,kl->li"), []
    for scheme in ("native", "int8x10", "float64"):
        trace = Trace(keep=[SITE])
        with use(Context(scheme=scheme, backend="reference", trace=trace)):
            einsum("ij,jk,kl->li", *arrays, site=SITE)
        kept.append(trace.results[SITE])
    np.testing.assert_allclose(kept[0], kept[1], atol=1e-6)
    np.testing.assert_allclose(kept[0], kept[2], rtol=1e-12)


def test_more_operands_of_two_dtypes_are_as_accurate_as_the_widest() -> None:
    a, b, c = many("ij,jk,kl")
    a, b = a.astype("float32"), b.astype("float32")
    exact = np.einsum("ij,jk,kl", a, b, c)
    result = einsum("ij,jk,kl", a, b, c, scheme="int8x10", backend="reference")
    assert result.dtype == exact.dtype
    assert np.abs(result - exact).max() < 5e-8


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
        "dtype down": {"dtype": np.float32},
        "dtype down, same kind": {"dtype": "f", "casting": "same_kind"},
        "dtype complex": {"dtype": complex},
        "dtype int": {"dtype": int, "casting": "unsafe"},
        "dtype wrong": {"dtype": "no such"},
        "dtype None": {"dtype": None},
        "order C": {"order": "C"},
        "order F": {"order": "F"},
        "order K": {"order": "K"},
        "order wrong": {"order": "X"},
        "order None": {"order": None},
        "casting": {"casting": "no"},
        "casting wrong": {"casting": "maybe"},
        "casting None": {"casting": None},
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
    if option in ("order C", "order F"):
        assert result.flags.c_contiguous == wanted.flags.c_contiguous
    np.testing.assert_allclose(result, wanted, atol=1e-5 if result.itemsize == 4 else 1e-6)
    if ours.get("out") is not None:
        assert result is ours["out"]


@pytest.mark.parametrize("option", ["out", "out in FORTRAN order", "dtype", "order F", "optimize"])
def test_options_do_not_keep_a_scheme_away(option: str) -> None:
    a, b = many("ij,jk")
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = einsum("ij,jk", a, b, site=SITE, **_options()[option])
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert np.abs(result - a @ b).max() > 1e-8


def test_an_out_that_is_an_operand_is_for_numpy() -> None:
    a, b = RNG.standard_normal((2, 4, 4))
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = einsum("ij,jk", a, b, out=(mine := a.copy()), site=SITE)
        einsum("ij,jk", mine, b, out=mine.T, site=SITE)
    assert result is mine
    assert trace.sites[SITE].reasons == {Reason.OUT: 1}


def test_random_sums_of_several_operands() -> None:
    choose = random.Random(2)
    multiplied = 0
    for _ in range(600):
        parts = ["".join(choose.choices("abcde", k=choose.randint(1, 3))) for _ in range(3)]
        if choose.random() < 0.3:
            parts[choose.randrange(3)] += "..."
        subscripts = ",".join(parts)
        if choose.random() < 0.8:
            letters = "".join(dict.fromkeys(choose.choices("abcde", k=choose.randint(0, 3))))
            subscripts += "->" + "..." * ("." in subscripts) + letters
        sizes = {index: choose.choice([0, 1, 2, 3, 4]) for index in "abcde"}
        shapes = [[sizes[i] for i in part if i != "."] + [2] * ("." in part) for part in parts]
        shapes = [[1 if choose.random() < 0.1 else n for n in shape] for shape in shapes]
        arrays = [RNG.standard_normal(shape) for shape in shapes]
        wanted, _ = outcome(np.einsum, subscripts, *arrays)
        trace = Trace()
        with use(Context(scheme="int8x10", backend="reference", trace=trace)):
            result, _ = outcome(partial(einsum, site=SITE), subscripts, *arrays)
        assert type(result) is type(wanted), (subscripts, shapes, result, wanted)
        if isinstance(wanted, tuple):
            assert result == wanted
            continue
        assert result.shape == wanted.shape, (subscripts, shapes)
        np.testing.assert_allclose(result, wanted, atol=1e-6)
        multiplied += trace.sites[SITE].schemes["int8x10"]
    assert multiplied > 50


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
    with use(Context(scheme="int8x6", trace=trace)):
        result = einsum(subscripts, a, b, site=SITE, native=cupy.einsum)
    assert trace.sites[SITE].schemes == {scheme: 1}
    assert type(result) is cupy.ndarray
    assert (result.dtype, result.shape) == (a.dtype, shape)
    exact = cupy.einsum(subscripts, a.astype(float), b.astype(float))
    assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 2e-6
