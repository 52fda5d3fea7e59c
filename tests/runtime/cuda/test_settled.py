"""What `faithful` is, where a look at the operands decides."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.call import Addend, Made
from mixpert_py.runtime.cuda import panels, several, transfer
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.emulation.reference import multiply
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Reason
from tests.runtime.cuda.fake import FakeGpu, Pointer, Stream, ndarray

K = 1024  # of shorter products int8x10 needs no look


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu(count=2)
    fake.install(monkeypatch)
    monkeypatch.setattr(device_product, "LOOKS", 1)
    return fake


def plain(*shape: int, seed: int = 0, dtype: Any = "f") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def ruled(*shape: int, seed: int = 0, dtype: Any = "f") -> Any:
    """Rows ruled by one entry."""
    x = plain(*shape, seed=seed, dtype=dtype)
    x[..., 7] *= 1000
    return x


def by(scheme: str, a: Any, b: Any) -> Any:
    entry: Any = get(scheme)
    return multiply(a, b, entry.with_block(1024 if scheme == "int8x10" else None)).value


def made(*args: Any, **given: Any) -> Made:
    found = device_product.make(*args, **given)
    assert isinstance(found, Made)
    assert found.scheme == "faithful"
    return found


@pytest.mark.parametrize(
    ("a", "b", "scheme"),
    [
        (plain(5, K), plain(K, 4, seed=1), "int8x8"),
        (ruled(5, K), plain(K, 4, seed=1), "fp16x3"),
        (plain(5, K), ruled(4, K, seed=1).T, "fp16x3"),
        (ruled(5, K, dtype="d"), plain(K, 4, seed=1), "fp16x3"),
        (ruled(5, K - 1), plain(K - 1, 4, seed=1), "int8x10"),
    ],
)
@pytest.mark.parametrize("wanted", ["value", "out", "certificate"])
def test_entries_that_rule_rows(gpu: FakeGpu, a: Any, b: Any, scheme: str, wanted: str) -> None:
    out = ndarray(np.full((5, 4), 3, np.result_type(a, b))) if wanted == "out" else None
    given = {"out": out, "certificate": wanted == "certificate"}
    found = made(ndarray(a), ndarray(b), "faithful", **given)
    np.testing.assert_array_equal(found.value.get(), by(scheme, a, b))
    assert gpu.looks == (scheme != "int8x10")
    if out is not None:
        assert found.value is out


def test_stacks_and_complex_operands(gpu: FakeGpu) -> None:
    a, b = ruled(3, 5, K), plain(K, 4)
    found = made(ndarray(a), ndarray(b), "faithful").value.get()
    np.testing.assert_array_equal(found, [by("fp16x3", x, b) for x in a])
    z = a[0] + 1j * a[1]
    found = made(ndarray(z), ndarray(b), "faithful").value.get()
    np.testing.assert_array_equal(found.real, by("fp16x3", a[0], b))
    np.testing.assert_array_equal(found.imag, by("fp16x3", a[1], b))


def test_other_schemes_do_not_look(gpu: FakeGpu) -> None:
    a, b = ndarray(ruled(5, K)), ndarray(plain(K, 4))
    device_product.make(a, b, "int8x6")
    device_product.make(a, b, "faithful", guarantee="componentwise")
    device_product.make(a, b, "faithful", known=get("int8x8"))
    assert gpu.looks == 0


def test_small_products_do_not_look(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ruled(5, K), plain(K, 4)
    monkeypatch.setattr(device_product, "LOOKS", 5 * K * 4 + 1)
    made(ndarray(a), ndarray(b), "faithful")
    assert gpu.looks == 0
    monkeypatch.setattr(device_product, "LOOKS", 5 * K * 4)
    made(ndarray(a), ndarray(b), "faithful")
    assert gpu.looks == 1


@pytest.mark.parametrize("rows", [plain, ruled])
@pytest.mark.parametrize("wanted", ["value", "out", "in place"])
def test_the_device_multiplies_before_the_host_has_looked(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, rows: Any, wanted: str
) -> None:
    """Long rows that would leave the slices: what was made in vain is made again, and not added."""
    monkeypatch.setattr(device_product, "LOOKS", 5 * K * 4 + 1)
    monkeypatch.setattr(device_product, "LOOKS_AT_LONG", 5 * K * 4)
    a, b, c = rows(5, K), plain(K, 4), plain(5, 4, seed=2)
    made(ndarray(a), ndarray(b), "faithful")
    assert gpu.looks == 0
    monkeypatch.setattr(device_product, "LONG", K - 1)
    made(ndarray(plain(5, K)), ndarray(b), "faithful")  # in place only what has run
    assert gpu.looks == 1
    before = len(gpu.launches)
    target = ndarray(c.copy())
    addend = Addend(c=target, alpha=1.0, beta=1.0, in_place=True) if wanted == "in place" else None
    out = target if wanted == "out" else None
    found = made(ndarray(a), ndarray(b), "faithful", out=out, addend=addend)
    product = by("fp16x3" if rows is ruled else "int8x8", a, b)
    if addend is None:
        np.testing.assert_array_equal(found.value.get(), product)
    else:
        np.testing.assert_allclose(found.value.get(), product + c, rtol=1e-6)
    assert (found.value is target) == (wanted != "value")
    assert gpu.looks == 2
    in_vain = rows is ruled and wanted != "in place"
    assert len(gpu.launches) - before == 1 + in_vain


def test_a_graph_cannot_wait(gpu: FakeGpu) -> None:
    a, b = ruled(5, K), plain(K, 4)
    with Stream(ptr=9) as stream:
        stream.capturing = True
        made(ndarray(a), ndarray(b), "faithful")
        stream.capturing = False
    assert gpu.looks == stream.waits == 0


def test_an_operand_that_is_packed_has_its_scheme(gpu: FakeGpu) -> None:
    a, b = ruled(5, K), plain(K, 4)
    scheme: Any = get("int8x8")
    right = device_product.pack_one(ndarray(b), scheme, "right")
    assert not isinstance(right, Reason)
    made(ndarray(a), ndarray(b), "faithful", right=right)
    assert gpu.looks == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_c_is_added_once(gpu: FakeGpu, in_place: bool) -> None:
    a, b, c = ruled(5, K), plain(K, 4), plain(5, 4, seed=2)
    made(ndarray(plain(5, K)), ndarray(b), "faithful")  # in place only what has run
    target = ndarray(c.copy())
    addend = Addend(c=target, alpha=1.0, beta=1.0, in_place=in_place)
    found = made(ndarray(a), ndarray(b), "faithful", addend=addend)
    value = found.value.get() if found.added else found.value.get() + c
    np.testing.assert_allclose(value, by("fp16x3", a, b) + c, rtol=1e-6)
    assert found.added
    assert (found.value is target) == in_place


def test_where_memory_is_short(gpu: FakeGpu) -> None:
    """Parts that need no other scheme were written before one that does: all are made again."""
    a, b = plain(300, K), plain(K, 4)
    a[256:, 7] *= 1e6
    gpu.memory = 4 * K * 128 * 4
    found = made(ndarray(a), ndarray(b), "faithful").value.get()
    np.testing.assert_array_equal(found, by("fp16x3", a, b))


def test_a_kernel_that_does_not_compile(gpu: FakeGpu) -> None:
    gpu.refuses = ImportError("no compiler")
    found = device_product.make(ndarray(ruled(5, K)), ndarray(plain(K, 4)), "faithful")
    assert found is Reason.KERNEL


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
def test_numpy_arrays_are_looked_at_before_they_are_moved(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(panels, "PANEL_BYTES", 128 * K * 4)
    a, b = ruled(300, K, dtype=dtype), plain(K, 4, dtype=dtype)
    found = transfer.make(a, b, "faithful")
    assert isinstance(found, Made)
    assert gpu.looks == 0
    assert len(gpu.launches) > 1
    known: Any = get("fp16x3")
    wanted = made(ndarray(a), ndarray(b), "faithful", known=known).value.get()
    np.testing.assert_array_equal(found.value, wanted)


def test_several_devices_after_one_look(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "THICKNESS", 0.5)
    monkeypatch.setattr(Pointer, "copies", [])
    a, b = ruled(600, K), plain(K, 90)
    found = several.make(ndarray(a), ndarray(b), "faithful", devices="all", limit=None)
    assert isinstance(found, Made)
    assert Pointer.copies
    assert gpu.looks == 1
    # BLAS, which emulates them here, may sum in another order where a matrix has other rows.
    (_, first, _), (_, _, _) = gpu.launches
    wanted = [by("fp16x3", part, b) for part in (a[:first], a[first:])]
    np.testing.assert_array_equal(found.value.get(), np.concatenate(wanted))


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("scheme", "k"), [("faithful", 4096), ("int8x6", 16384)])
def test_long_rows_that_one_entry_rules(scheme: str, k: int, order: Any) -> None:
    """`faithful` finds another scheme; under a name half of them leave the slices, to be repaired:
    the shorter ones stay, and lose more than an FP32 product.
    """
    import cupy

    n = 2944
    draw = cupy.random.default_rng(0)
    a, b = (draw.standard_normal(shape, dtype=cupy.float32) for shape in ((n, k), (k, n)))
    a[cupy.arange(n), cupy.arange(n)] *= 1e6
    a, b = (cupy.asarray(x, order=order) for x in (a, b))
    assert device_product.looks(a, b)
    exact = a.astype("d") @ b.astype("d")
    native = cupy.linalg.norm(a @ b - exact)
    found = made_on_device(a, b, scheme)
    assert cupy.linalg.norm(found - exact) <= native


def made_on_device(a: Any, b: Any, scheme: str) -> Any:
    found = device_product.make(a, b, scheme)
    assert isinstance(found, Made)
    return found.value
