"""Every product means what the program's own function means, whatever its operands are: it returns,
raises and warns the same, under a scheme it differs in value only, and a trace says why it did not
take the scheme.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixpert_py
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner, tensordot
from mixpert_py.runtime.products.multi_dot import matrix_power, multi_dot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import some
from tests.runtime.operands import (
    OPERANDS,
    SPELLINGS,
    Function,
    Matrix,
    assert_differs_in_value_only,
    outcome,
    same,
)
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)
ARRAYS = [x for x in OPERANDS.values() if not isinstance(x, Function)]


def normal(*shape: int, dtype: Any = float) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


Arguments = tuple[Any, ...]


def pairs(operands: Iterable[Any], *before: Any, after: Arguments = ()) -> list[Arguments]:
    return [(*before, a, b, *after) for a, b in some(itertools.product(operands, repeat=2), 7)]


# Shapes of the operands of tensordot, and axes.
TENSORS: list[Any] = [
    ((3, 4), (4, 5), 1),
    ((4,), (4,), 1),
    ((3, 4), (2,), 0),
    ((5, 3, 4), (3, 4, 6), 2),
    ((3, 4, 5), (4, 3, 2), ([1, 0], [0, 1])),
    ((3, 4, 5), (4, 3, 2), ([0, 1], [1, 0])),
    ((3, 4, 5), (2, 4), (1, 1)),
    ((3, 4), (2, 4), [1, 1]),
    ((3, 4, 5), (2, 4), (-2, -1)),
    ((3, 4, 5), (2, 4), (np.array([1]), np.array([1]))),
    ((3, 4), (4, 2), np.array([1, 0])),
    ((3, 4), (4, 2), np.int64(1)),
    ((3, 4), (2,), ([], [])),
    ((2, 3, 4, 5, 2), (5, 4, 3), ([3, 1], [0, 2])),
    ((3, 0), (0, 5), 1),
    ((0, 4), (4, 5), 1),
    # What NumPy refuses:
    ((3, 4), (5, 4), 1),
    ((3, 4), (3, 4), 3),
    ((3, 4), (3, 4), -1),
    ((3, 4), (3, 4), ([0, 1], [0])),
    ((3, 4), (3, 4), (2, 0)),
    ((4, 4), (4, 4), ([0, 0], [0, 1])),
    ((4, 4), (4, 4), ([0, -2], [0, 1])),
    ((4, 4), (4, 4), (0, 1, 0)),
    ((4, 4), (4, 4), 1.0),
    ((4, 4), (4, 4), None),
]
TENSOR_CALLS: list[Arguments] = [(normal(*a), normal(*b), axes) for a, b, axes in TENSORS]
TENSOR_CALLS += [
    (normal(5, 3, 4), normal(3, 4, 6)),
    (normal(4, 3).T, normal(5, 4).T, 1),
    (normal(6, 8, 5)[::2, ::-2], normal(4, 3, 2), ([0, 1], [1, 0])),
    (normal(3, 4, dtype="f"), normal(4, 5), 1),
]

SIZES = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 6, "l": 3, "B": 2}
MATRIX_PRODUCTS = [
    *("ij,jk->ik", "ij,jk", " i j , j k -> i k ", "ij,jk->ki", "ji,jk", "ij,kj->ik", "ji,kj->ki"),
    *("kj,ji", "ij,j", "j,jk->k", "ijk,kl", "ijk,jkl->il", "ijk,kjl->li", "aij,ajk->aik"),
    *("abij,abjk->abik", "abij,bajk->biak", "aij,aj->ai", "ija,jak->aki", "abi,abj->ij", "iB,Bj"),
    *("...ij,...jk->...ik", "ij,j...", "...ij,jk"),
]
OTHER_SUMS = [
    *("i,i", "i,i->", "ij,ij", "ij,ij->i", "i,j->ij", "ij,ij->ij", "ij,k->ijk", "ij,k->i"),
    *("ij,jk->i", "ij,jk->k", "ii,ij->j", "ii,ij", "...i,...i->...", "i...,j", "aij,ajk"),
]
NO_SUMS = [
    *("ij,jk->ikl", "ij,jk->ii", "ij", "ij,jk,kl", "ij,jk-ik", "ij,j1", "", "ij->jk,", "ijk,jk"),
    *("...ij,jk->ik", "..ij,jk", "i...j...,jk", "...ijk,kj->...i", "ij,jk->...ii"),
]
# Lists of indices: those that mean something, and those that NumPy judges.
LISTS: list[Any] = [
    *(([0, 1], [1, 2], [0, 2]), ([0, 1], [1, 2]), ((0, 1), (1, 2), (2, 0)), ([25, 1], [1, 0])),
    *(([0, 26], [26, 2]), ([0, -1], [-1, 2]), ([0, "j"], ["j", 2]), (0, 1), ([0, True], [1, 2])),
    *((np.array([0, 1]), np.array([1, 2])), ([0, 1], [1, 2], [3]), ([0, 1], [1, 2], [0, 0])),
]


def summands(subscripts: str) -> list[Any]:
    """Two arrays, matrices where the subscripts ask for none."""
    inputs = subscripts.replace(" ", "").partition("->")[0].replace("...", "").split(",")
    shapes = [[SIZES.get(index, 2) for index in part] for part in (*inputs, "ij", "jk")[:2]]
    return [normal(*shape) for shape in shapes]


SUMS = [(words, *summands(words)) for words in (*MATRIX_PRODUCTS, *OTHER_SUMS, *NO_SUMS)]
SUMS += [("...i,...ij->...j", normal(3, 4), normal(2, 3, 4, 5))]
SUMS += [(normal(5, 5), one[0], normal(5, 5), *one[1:]) for one in LISTS]


def chain(*shapes: Sequence[int], dtype: str = "float64") -> list[Any]:
    return [normal(*shape, dtype=dtype) for shape in shapes]


CHAINS: list[Any] = [
    chain((3, 4), (4, 5)),
    chain((4,), (4,)),
    chain((4,), (4, 5)),
    chain((2, 3, 4), (4, 5)),
    [np.array(2.0), *chain((4, 5))],
    chain((4,), (4, 5), (5,)),
    chain((4,), (4, 5), (5, 6)),
    chain((3, 4), (4, 5), (5,)),
    chain((4,), (4, 9), (9, 5), (5,)),
    chain((3, 5), (5, 2), (2, 4), (4, 1), (1, 3), (3, 2)),
    chain((3, 4), (4, 5), (5, 6), dtype="float32"),
    [*chain((3, 4), dtype="float32"), *chain((4, 5), (5, 6))],
    tuple(chain((3, 4), (4, 5), (5, 6))),
    chain((3, 0), (0, 5), (5, 6)),
    chain((0, 4), (4, 5), (5, 6)),
    # What NumPy refuses:
    chain((3, 4), (4,), (4, 5)),
    chain((3, 4), (4, 5), (2, 5, 6)),
    chain((3, 4), (5, 6), (6, 7)),
    chain((3, 4), (5, 6)),
    chain((3,), (4, 6), (6, 7)),
    chain((3, 4)),
    [],
    5,
    np.ones((3, 4, 4)),
    [[[1.0, 2.0]], [[1.0], [2.0]], [[3.0]]],
    *([np.eye(4), x, np.eye(4)] for x in OPERANDS.values()),
]

A, B = normal(4, 4), normal(4, 4)


class Row(NamedTuple):
    """A product of ours, the program's own, and arguments of calls."""

    ours: Callable[..., Any]
    native: Callable[..., Any]
    calls: list[Arguments]


def by_name(native: Any, *calls: Arguments, **options: Any) -> Row:
    """A product that the runtime knows by the function itself."""
    ours = partial(xp_product, native=native, **options)
    return Row(ours, partial(native, **options), [*calls])


PRODUCTS = {
    **{name: Row(ours, own, pairs(OPERANDS.values())) for name, (own, ours) in SPELLINGS.items()},
    "inner": Row(inner, np.inner, pairs(OPERANDS.values())),
    "tensordot": Row(tensordot, np.tensordot, TENSOR_CALLS + pairs(ARRAYS, after=(1,))),
    "einsum": Row(einsum, np.einsum, SUMS + pairs(OPERANDS.values(), "ij,jk")),
    "multi_dot": Row(multi_dot, np.linalg.multi_dot, [(one,) for one in CHAINS]),
    "matrix_power": Row(
        matrix_power,
        np.linalg.matrix_power,
        [
            *((A / 4, n) for n in (-1, 0, 1, 2, 3, 4, 7, 12, True, np.int8(6), 2.0, None)),
            *((x, 2) for x in (*OPERANDS.values(), normal(2, 3, 3), normal(3, 4), np.array(2.0))),
        ],
    ),
    "matmul, by name": by_name(np.matmul, *pairs(OPERANDS.values()), (A,)),
    "dot, by name": by_name(np.dot, (A, B), (A, B, None, None)),
    "method, by name": by_name(A.dot, (B,)),
    "tensordot, by name": by_name(np.tensordot, (A, B), (A, B, 1), axes=1),
    "einsum, by name": by_name(np.einsum, ("ij,jk", A, B), ("ij",), optimize=True),
    "multi_dot, by name": by_name(np.linalg.multi_dot, ([A, B],)),
    "inner, out, by name": by_name(np.inner, (A, B), out=None),
    "matmul to float32, by name": by_name(np.matmul, (A, B), dtype="f", casting="same_kind"),
    "matmul of axes, by name": by_name(np.matmul, (A, B), axes=[(0, 1), (0, 1), (0, 1)]),
}


@pytest.mark.parametrize("context", FORCES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_call_that_passes_is_the_native_call(name: str, context: str) -> None:
    ours, native, calls = PRODUCTS[name]
    with use(FORCES[context]()):
        for call in calls:
            wanted, its_warnings = outcome(native, *call)
            for _ in range(2):  # the first call of a site takes another way
                result, our_warnings = outcome(partial(ours, site=SITE), *call)
                assert same(result, wanted), (call, result, wanted)
                assert our_warnings == its_warnings, call


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "float32"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_an_emulated_call_differs_in_value_only(name: str, scheme: str) -> None:
    ours, native, calls = PRODUCTS[name]
    with use(Context(scheme=scheme, backend="reference")), np.errstate(all="warn"):
        for call in calls:
            wanted, its_warnings = outcome(native, *call)
            result, our_warnings = outcome(partial(ours, site=SITE), *call)
            # NumPy multiplies in np.einsum without a look at what is not finite.
            assert name == "einsum" or set(our_warnings) <= set(its_warnings), call
            if not same(result, wanted):
                assert_differs_in_value_only(result, wanted, ("left", "right"))


# Arguments, and the shapes (m, k, n) of the products that are made, each once.
SHAPES: list[tuple[str, Arguments, list[tuple[int, int, int]]]] = [
    ("inner", (normal(5, 4), normal(3, 4)), [(5, 4, 3)]),
    ("inner", (normal(5, 4), normal(4)), [(5, 4, 1)]),
    ("inner", (normal(4), normal(3, 4)), [(1, 4, 3)]),
    ("tensordot", (normal(3, 4), normal(2), 0), [(12, 1, 2)]),
    ("tensordot", (normal(3, 4, 5), normal(4, 3, 2), ([1, 0], [0, 1])), [(5, 12, 2)]),
    ("tensordot", TENSOR_CALLS[13], [(16, 15, 4)]),
    ("einsum", ("ji,kj->ki", *summands("ji,kj")), [(4, 5, 6)]),
    ("einsum", ("ijk,kjl->li", *summands("ijk,kjl")), [(4, 30, 3)]),
    ("einsum", ("abij,bajk->biak", *summands("abij,bajk")), [(24, 5, 6)]),
    ("einsum", ("aij,aj->ai", *summands("aij,aj")), [(8, 5, 1)]),
    ("einsum", ("j,jk->k", *summands("j,jk")), [(1, 5, 6)]),
    ("einsum", ("...i,...ij->...j", normal(3, 4), normal(2, 3, 4, 5)), [(3, 4, 10)]),
    ("einsum", (normal(4, 5), [0, 1], normal(5, 6), [1, 2]), [(4, 5, 6)]),
    ("multi_dot", (chain((2, 30), (30, 3), (3, 40)),), [(2, 30, 3), (2, 3, 40)]),
    ("multi_dot", (chain((40, 30), (30, 3), (3, 2)),), [(30, 3, 2), (40, 30, 2)]),
    ("multi_dot", (chain((4,), (4, 5), (5,)),), [(4, 5, 1), (1, 4, 1)]),
    ("matrix_power", (normal(6, 6), 2), [(6, 6, 6)]),
    ("matrix_power", (normal(2, 6, 6), 2), [(12, 6, 6)]),
    ("dot, by name", (A, B), [(4, 4, 4)]),
    ("method, by name", (B,), [(4, 4, 4)]),
    ("tensordot, by name", (A, B), [(4, 4, 4)]),
    ("einsum, by name", ("ij,jk", A, B), [(4, 4, 4)]),
    ("multi_dot, by name", ([A, B],), [(4, 4, 4)]),
]


@pytest.mark.parametrize(("name", "arguments", "shapes"), SHAPES)
def test_matrices_take_the_scheme(name: str, arguments: Arguments, shapes: Any) -> None:
    ours, native, _ = PRODUCTS[name]
    trace = Trace(levels=["float32"], keep=[SITE])
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = ours(*arguments, site=SITE)
    record = trace.sites[SITE]
    assert record.schemes == {"int8x3": len(shapes)}
    assert record.shapes == dict.fromkeys(shapes, 1)
    assert not record.reasons
    assert 0 < record.errors["float32"] < 1e-6
    assert not np.array_equal(result, native(*arguments))
    assert trace.results[SITE].size == result.size


ONES = np.ones((4, 4))
REASONS: list[tuple[str, Arguments, Reason]] = [
    ("inner", (np.ones((2, 3, 4)), ONES), Reason.DIMENSIONS),
    ("inner", (np.array(2.0), np.ones(3)), Reason.SCALAR),
    ("inner", (ONES.astype(object), ONES), Reason.DTYPE),
    ("inner", ([1.0, 2.0], np.ones(2)), Reason.NOT_AN_ARRAY),
    ("tensordot", (ONES.astype(int), ONES, 1), Reason.INTEGER),
    ("tensordot", (ONES, np.matrix(ONES), 1), Reason.SUBCLASS),
    ("tensordot", ([[1.0, 2.0]], np.ones((2, 1)), 1), Reason.NOT_AN_ARRAY),
    ("einsum", ("ij,ij->i", ONES, ONES), Reason.DIMENSIONS),
    ("einsum", ("ij,jk", np.ones((3, 1)), ONES), Reason.DIMENSIONS),
    ("einsum", ("ij,jk", ONES, np.ones((1, 5))), Reason.DIMENSIONS),
    ("einsum", (",i->i", np.array(2.0), np.ones(4)), Reason.SCALAR),
    ("einsum", ("ij,jk", ONES, ONES.astype("float16")), Reason.DTYPE),
    ("einsum", ("ij,jk", [[1.0, 2.0]], np.ones((2, 1))), Reason.NOT_AN_ARRAY),
    ("multi_dot", ([ONES, np.matrix(ONES), ONES],), Reason.SUBCLASS),
    ("multi_dot", ([np.ones((2, 4, 4)), ONES],), Reason.DIMENSIONS),
    ("multi_dot", ([np.array(2.0), ONES],), Reason.SCALAR),
]


@pytest.mark.parametrize(("name", "arguments", "reason"), REASONS)
def test_others_are_native_for_a_reason(name: str, arguments: Arguments, reason: Reason) -> None:
    ours, native, _ = PRODUCTS[name]
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        assert same(ours(*arguments, site=SITE), native(*arguments))
    assert trace.sites[SITE].schemes == {"native": 1}
    assert trace.sites[SITE].reasons == {reason: 1}


@pytest.mark.parametrize("scheme", [None, "native", "int8x6"])
@pytest.mark.parametrize(
    ("ours", "own", "arguments", "options"),
    [
        (matmul, np.matmul, (A, B), {}),
        (dot, np.dot, (A, B), {}),
        (inner, np.inner, (A, B), {}),
        (tensordot, np.tensordot, (A, B, (1, 0)), {}),
        (einsum, np.einsum, ("ij,jk", A, B), {"optimize": True}),
        (einsum, np.einsum, ("ij,ij", A, B), {}),
        (xp_product, np.matmul, (A, B), {"more": 3}),
    ],
)
def test_the_programs_own_function_gets_the_arguments(
    ours: Any, own: Any, arguments: Arguments, options: Any, scheme: str | None
) -> None:
    calls: list[Any] = []

    def native(*given: Any, **named: Any) -> Any:
        calls.append((given, named))
        named.pop("more", None)
        return own(*given, **named)

    result = ours(*arguments, scheme=scheme, site=SITE, native=native, **options)
    np.testing.assert_allclose(result, own(*arguments))
    ((given, named),) = calls
    assert all(one is other for one, other in zip(given, arguments, strict=True))
    assert named.keys() <= options.keys()


def test_a_users_method_gets_its_arguments_as_written() -> None:
    ours = SPELLINGS["x.dot"][1]
    with use(Context(scheme="int8x6")):
        assert ours(Matrix(), 1, 2) == ("dot", 2)


@pytest.mark.gpu
@pytest.mark.parametrize(("edge", "scheme"), [(2048, "int8x6"), (32, "native")])
@pytest.mark.parametrize("name", ["inner", "tensordot", "ij,jk->ki", "aij,akj->aik"])
def test_cupy_arrays(name: str, edge: int, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # there is a GPU
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    shape = (2,) * name.startswith("a") + (edge, edge)
    rng = cupy.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype="float32") for _ in range(2))
    ours, own = {
        "inner": (inner, cupy.inner),
        "tensordot": (lambda *x, **to: tensordot(*x, ([1], [1]), **to), cupy.tensordot),
    }.get(name, (partial(einsum, name), partial(cupy.einsum, name)))
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)):
        result = ours(a, b, site=SITE, native=cupy.einsum if "," in name else own)
    assert trace.sites[SITE].schemes == {scheme: 1}
    assert type(result) is cupy.ndarray
    wide = a.astype(float), b.astype(float)
    exact = own(*wide, ([1], [1])) if name == "tensordot" else own(*wide)
    assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 2e-6


SQUARE = np.random.default_rng(0).standard_normal((6, 6))

REARRANGED: dict[str, Callable[..., Any]] = {
    "inner": lambda **given: inner(SQUARE, SQUARE, **given),
    "multi_dot": lambda **given: multi_dot([SQUARE, SQUARE, SQUARE], **given),
    "tensordot": lambda **given: tensordot(SQUARE, SQUARE, 1, **given),
    "einsum": lambda **given: einsum("ij,jk", SQUARE, SQUARE, **given),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_a_stale_plan_is_told_at_the_products_own_line(name: str) -> None:
    with (
        use(Context(plan=Plan(site=[Site(id="m:f/x~aa#0", scheme="native")]))),
        pytest.warns(UserWarning, match="stale") as caught,
    ):
        REARRANGED[name](site="m:f/y~bb#0")
    assert [warning.filename for warning in caught] == [__file__]


EYE = np.eye(3)
REPLACED: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...]]] = {
    "einsum": (einsum, "einsum", ("ij,jk", EYE, EYE)),
    "einsum of three": (einsum, "einsum", ("ij,jk,kl", EYE, EYE, EYE)),
    "tensordot": (tensordot, "tensordot", (EYE, EYE, 1)),
    "inner": (inner, "inner", (EYE, EYE)),
    "multi_dot": (multi_dot, "multi_dot", ([EYE, EYE, EYE],)),
    "any": (xp_product, "einsum", ("ij,jk", EYE, EYE)),
}


@pytest.mark.parametrize("scheme", [None, "native", "float32"])
@pytest.mark.parametrize("name", REPLACED)
def test_a_function_in_numpys_place_is_called(
    monkeypatch: pytest.MonkeyPatch, name: str, scheme: str | None
) -> None:
    product, word, operands = REPLACED[name]
    called: list[tuple[Any, ...]] = []

    def theirs(*given: Any, **options: Any) -> object:
        called.append(given)
        return "theirs"

    monkeypatch.setattr(np.linalg if word == "multi_dot" else np, word, theirs)
    with use(Context(scheme=scheme)):
        for _ in range(2):
            assert product(*operands, site=SITE, native=theirs) == "theirs"
    assert len(called) == 2
    assert [len(given) for given in called] == [len(operands)] * 2


class Duck:
    """An operand whose `__array_function__` returns the arguments that it is given."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function.__name__, args, kwargs


DUCK = Duck()
WRITTEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("tensordot", (EYE, DUCK), {}),
    ("tensordot", (EYE, DUCK, 1), {}),
    ("tensordot", (DUCK, EYE), {"axes": 1}),
    ("tensordot", (DUCK, EYE), {"axes": 2}),
    ("dot", (EYE, DUCK), {}),
    ("dot", (EYE, DUCK, None), {}),
    ("dot", (EYE, DUCK), {"out": None}),
    ("inner", (EYE, DUCK), {}),
    ("einsum", ("ij,jk", EYE, DUCK), {}),
    ("einsum", ("ij,jk", EYE, DUCK), {"optimize": False, "out": None}),
    ("linalg.multi_dot", ([EYE, DUCK],), {}),
    ("linalg.multi_dot", ([EYE, DUCK],), {"out": None}),
]


@pytest.mark.parametrize("scheme", [None, "float32", "int8x6"])
@pytest.mark.parametrize("asked", [False, True], ids=["by name", "by function"])
@pytest.mark.parametrize(("name", "operands", "named"), WRITTEN)
def test_a_type_with_products_of_its_own_gets_the_call_as_it_is_written(
    name: str, operands: Any, named: dict[str, Any], asked: bool, scheme: str | None
) -> None:
    native = attrgetter(name)(np)
    product = xp_product if asked else getattr(mixpert_py, name.rpartition(".")[2])
    with use(Context(scheme=scheme)):
        for _ in range(2):
            result = product(*operands, **named, site=SITE, native=native)
            assert result == native(*operands, **named)
