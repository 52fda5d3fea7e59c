"""What is kept of a call, and for which later ones it stands."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import api, plan_guard, signatures, worth
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import Context, current, use
from mixpert_py.runtime.gpu import prepared
from mixpert_py.runtime.modules import precision
from mixpert_py.runtime.products.einsum import einops_einsum, einsum
from mixpert_py.runtime.products.inner import tensordot
from mixpert_py.runtime.request import Call, Request, Settings, matmul_shape
from mixpert_py.runtime.signatures import NATIVE, kept_product, signature_of
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.fake import FakeGpu, ndarray, pays_from


class Result(str):
    shape = (64, 64)


class Prepared:
    """Launches that are kept: they make the product, or cannot."""

    def __init__(self, library: str, request: Request, *, is_chosen: bool) -> None:
        self.made: list[tuple[Any, Any]] = []
        self.added = 0
        self.scheme, self.is_chosen, self.works = request.scheme, is_chosen, True

    def add(self, request: Request, a: Any, b: Any) -> bool:
        self.added += 1
        return self.added == 1

    def __call__(self, a: Any, b: Any) -> Any:
        if not self.works:
            return None
        self.made.append((a, b))
        return Result("prepared")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Prepared]:
    """All that is prepared on a GPU that is not there, which gains from 64³ on."""
    FakeGpu().install(monkeypatch)
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(64**3))
    found: list[Prepared] = []

    made: dict[Any, Prepared] = {}

    def prepare(library: str, request: Request, *, is_chosen: bool) -> Prepared:
        """As the real one, which contexts share."""
        a, b = request.a, request.b
        key = request.scheme, is_chosen, a.shape, b.shape, a.dtype, b.dtype
        if key not in made:
            made[key] = Prepared(library, request, is_chosen=is_chosen)
            found.append(made[key])
        return made[key]

    monkeypatch.setattr(prepared, "prepare", prepare)
    return found


def array(*shape: int, dtype: str = "float32") -> ndarray:
    return ndarray(np.ones(shape, dtype))


@pytest.mark.parametrize(
    "other",
    [
        lambda a, b: matmul(a, b, site="other"),
        lambda a, b: matmul(array(64, 65), array(65, 64), site="s"),
        lambda a, b: matmul(array(64, 64, dtype="complex64"), b, site="s"),
        lambda a, b: dot(a, b, site="s"),
        lambda a, b: matmul(a, b, site="s", scheme="int8x6"),
        lambda a, b: matmul(a, b, site="s", backend="cuda"),
    ],
    ids=["site", "shape", "type", "function", "scheme", "backend"],
)
def test_another_signature_is_prepared_apart(
    kept: list[Prepared], other: Callable[[Any, Any], Any]
) -> None:
    a, b = array(64, 64), array(64, 64)
    with use(replace(current())) as context:
        matmul(a, b, site="s")
        assert other(a, b) == "prepared"
        assert sum(one is not NATIVE for one in context.known.values()) == 2
        assert sum(len(one.made) for one in kept) == 2


@pytest.mark.parametrize(
    ("out", "is_made"),
    [
        (ndarray(np.empty((64, 64), np.float32)), True),
        (ndarray(np.empty((64, 64), np.float64)), False),
        (np.empty((64, 64), np.float32), False),
    ],
    ids=["fits", "another type", "on the host"],
)
def test_an_out_takes_what_is_prepared_where_it_fits(
    kept: list[Prepared], monkeypatch: pytest.MonkeyPatch, out: Any, is_made: bool
) -> None:
    a, b = array(64, 64), array(64, 64)
    with use(replace(current())):
        matmul(a, b, site="s")
        made = array(64, 64) * np.float32(7)
        monkeypatch.setattr(Prepared, "__call__", lambda self, a, b: made)
        found = matmul(a, b, site="s", out=out)
    assert found is out
    assert (np.asarray(out) == (7 if is_made else 64)).all()


@pytest.mark.parametrize("n", [4, 32], ids=["small", "known"])
def test_a_native_product_with_an_out_is_not_decided_again(
    kept: list[Prepared], monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setattr(worth, "SMALL_ELEMENTS", 16)
    a, out = array(n, n), array(n, n)
    with use(replace(current(), plan=Plan(site=[Site("m:f:1", "native")]))):
        matmul(array(64, 64), array(64, 64), site="s")  # makes this type known
        matmul(a, a, site="m:f:1")
        monkeypatch.setattr(api, "carry_out", None)
        assert matmul(a, a, site="m:f:1", out=out) is out
    assert (np.asarray(out) == n).all()


def test_a_context_keeps_its_own(kept: list[Prepared]) -> None:
    a, b = array(64, 64), array(64, 64)
    plan = Plan(site=[Site("m:f:1", "native")])
    with use(replace(current())):
        matmul(a, b, site="m:f:1")
        with precision("int8x6"):
            matmul(a, b, site="m:f:1")
            assert kept[-1].scheme == "int8x6"
            assert kept[-1].is_chosen
        with use(replace(current(), plan=plan)):
            for _ in range(2):
                assert isinstance(matmul(a, b, site="m:f:1"), ndarray)
        with use(replace(current(), trace=Trace())):
            assert isinstance(matmul(a, b, site="m:f:1"), ndarray)
        assert matmul(a, b, site="m:f:1") == "prepared"
        assert len(kept) == 2


def test_what_a_training_chose_holds_for_no_other_pass() -> None:
    """Else the bits of an inference would depend on whether a training ran before."""
    a = array(64, 64)
    call = Call(np.matmul, a, a, (), None, matmul_shape)
    found = [
        signature_of(call._replace(is_trained=it), Settings(site="s"), True) for it in (True, False)
    ]
    assert None not in found
    assert found[0] != found[1]


def test_vectors_of_a_gpu_pass_whatever_their_length(kept: list[Prepared]) -> None:
    """As no scheme is faster than reading the operands; unless one has been chosen."""
    matrix, vector = array(64, 64), array(64)
    with use(replace(current())) as context:
        matmul(matrix, matrix, site="s")
        for a, b in ((matrix, vector), (vector, matrix), (vector, vector)):
            assert kept_product(context, "s", matmul_shape, None, a, b) is NATIVE
        assert len(context.known) == 1
        with use(replace(context, scheme="int8x6")) as chosen:
            matmul(matrix, matrix, site="s")
            assert kept_product(chosen, "s", matmul_shape, None, matrix, vector) is None


def test_small_stacks_of_a_gpu_pass_whatever_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a sequence that grows by one at each step; stacks of very many take schemes."""
    FakeGpu().install(monkeypatch)
    monkeypatch.setattr(worth, "SMALL_ELEMENTS", 1 << 17)
    with use(replace(current())) as context:
        matmul(array(1, 4, 8), array(1, 8, 4), site="s")
        for shape in ((1, 5, 8), (999, 4, 8), (3, 333, 2, 4)):
            a, b = array(*shape), array(*shape[:-2], shape[-1], shape[-2])
            assert kept_product(context, "s", matmul_shape, None, a, b) is NATIVE
        for shape in ((1000, 4, 8), (10, 100, 4, 8), (1, 1 << 14, 9)):
            a, b = array(*shape), array(*shape[:-2], shape[-1], shape[-2])
            assert kept_product(context, "s", matmul_shape, None, a, b) is None


def test_launches_of_a_plan_are_watched(
    kept: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a product was found to be off, calls of its site are native."""
    errors = [0.0, 1.0, 1.0]
    monkeypatch.setattr(plan_guard, "sampled_error", lambda *given: errors.pop(0))
    monkeypatch.setattr(plan_guard, "whole_error", lambda *given: 1.0)
    a, b = array(64, 64), array(64, 64)
    with use(Context(plan=Plan(site=[Site("m:f:1", "int8x6", error=1e-9)]))):
        assert matmul(a, b, site="m:f:1") == "prepared"
        with pytest.warns(UserWarning, match=r"off by 1\.0e\+00") as heard:
            assert isinstance(matmul(a, b, site="m:f:1"), ndarray)
        assert heard[0].filename == __file__
        assert isinstance(matmul(a, b, site="m:f:1"), ndarray)
        assert len(kept[0].made) == 2


def test_what_cannot_be_for_once_is_made_the_direct_way(kept: list[Prepared]) -> None:
    a, b = array(64, 64), array(64, 64)
    with use(replace(current())):
        matmul(a, b, site="s")
        kept[0].works = False
        assert isinstance(matmul(a, b, site="s"), ndarray)
        assert kept[0].added == 2  # operands of another layout may have come
        kept[0].works = True
        assert matmul(a, b, site="s") == "prepared"


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bij,bkj->ikb", [(2, 3, 4), (2, 5, 4)]),
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
        ("ijk,kl", [(2, 3, 4), (4, 5)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]),
        ("bij,bjk,k->b", [(2, 3, 4), (2, 4, 5), (5,)]),
    ],
    ids=["matrices", "transposed", "broadcast", "rows of a stack", "three", "a vector"],
)
def test_contractions_of_cupys_arrays_are_products_of_matrices(
    kept: list[Prepared], subscripts: str, shapes: list[tuple[int, ...]]
) -> None:
    """CuPy's own function takes longer than the products; it makes what is no product."""
    arrays = [ndarray(x) for x in whole(shapes)]
    called: list[str] = []

    def native(subscripts: str, *given: ndarray) -> ndarray:
        called.append(subscripts)
        return ndarray(np.einsum(subscripts, *(getattr(x, "x", x) for x in given)))

    with use(replace(current())):
        matmul(array(8, 8), array(8, 8), site="s")
        for _ in range(4):
            found = einsum(subscripts, *arrays, site="s", native=native)
            np.testing.assert_array_equal(found.x, np.einsum(subscripts, *whole(shapes)))
        assert all("->b" in it for it in called)
        first, *others = arrays  # CuPy's function moves NumPy's arrays
        found = einsum(subscripts, first.x, *others, site="s", native=native)
        np.testing.assert_array_equal(found.x, np.einsum(subscripts, *whole(shapes)))


@pytest.mark.usefixtures("kept")
def test_calls_of_einops_have_one_signature() -> None:
    with use(replace(current())) as context:
        matmul(array(8, 8), array(8, 8), site="s")
        for _ in range(9):
            einops_einsum(array(3, 4), array(4, 5), "a b, b c -> a c", native=max, site="s")
        assert len(context.known) < 9


def whole(shapes: list[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    return [np.arange(np.prod(shape), dtype="f").reshape(shape) for shape in shapes]


def test_a_contraction_of_float64_has_the_librarys_order(kept: list[Prepared]) -> None:
    called: list[int] = []

    def native(subscripts: str, *arrays: Any) -> Any:
        called.append(len(arrays))
        return arrays[0]

    with use(replace(current())):
        matmul(array(8, 8), array(8, 8), site="s")
        for _ in range(3):
            wide = [array(64, 64, dtype="float64")] * 3
            einsum("ij,jk,kl->il", *wide, site="s", native=native)
    assert called == [3, 3, 3]


@pytest.mark.parametrize("axes", [1, 2, ([2, 0], [1, 2]), (0, 0)], ids=str)
def test_a_tensordot_of_cupys_arrays_is_a_product_of_matrices(
    kept: list[Prepared], axes: Any
) -> None:
    a, b = whole([(4, 3, 4), (4, 4, 4)] if axes != 2 else [(3, 4, 4), (4, 4, 5)])
    with use(replace(current())):
        matmul(array(8, 8), array(8, 8), site="s")
        for _ in range(4):
            found = tensordot(ndarray(a), ndarray(b), axes, site="s", native=np.tensordot)
            np.testing.assert_array_equal(found.x, np.tensordot(a, b, axes))
        with pytest.raises(TypeError, match="axis"):
            tensordot(ndarray(a), ndarray(b), axes, axis=1, site="s", native=np.tensordot)


def test_signatures_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "MOST", 10)
    with use(replace(current())) as context:
        for number in range(100):
            signatures.keep(context, number, NATIVE)
        assert len(context.known) <= 10
