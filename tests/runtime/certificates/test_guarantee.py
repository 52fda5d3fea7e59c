"""The componentwise guarantee: what it promises holds in every element, whatever the operands."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.certificates import guarantee
from mixpert_py.runtime.certificates.guarantee import (
    DEEPEST,
    FAITHFUL_LEAST_K,
    LADDER,
    Bounds,
    componentwise,
    factor,
    moduli_needed,
    spread,
)
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import UNIT32, UNIT64
from mixpert_py.runtime.splitter import Digits
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.emulations import RESIDUES
from tests.runtime.families import FAMILIES


def _operands() -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape)

    k = 600
    sparse = np.where(rng.random((9, k)) < 0.7, 0, rng.integers(1, 50, (9, k)))
    diagonal = np.diag(rng.uniform(1, 4, 64))
    steps = np.exp2(rng.integers(-4, 4, (1, k)))
    return {
        "normal": (normal(9, 4096), normal(4096, 8)),
        "uniform": (rng.random((9, 700)), rng.random((700, 8))),
        "short": (normal(9, 40), normal(40, 8)),
        "very short": (normal(9, 3), normal(3, 8)),
        "small integers": (sparse, rng.integers(-9, 9, (k, 8))),
        "a diagonal": (diagonal, rng.uniform(1, 3, (64, 8))),
        "scaled rows": (normal(9, k) * np.exp2(np.arange(9) * 4 - 20)[:, None], normal(k, 8)),
        "scaled along K": (normal(9, k) * steps, normal(k, 8) / steps.T),
        "far apart": (normal(9, k) * steps**6, normal(k, 8) / steps.T**6),
        "one rules": (np.where(np.arange(k) == 3, 1e6, normal(9, k)), normal(k, 8)),
        "halves apart": (np.repeat([[1.0, 2.0**-20]], k // 2, 1) * normal(9, k), normal(k, 8)),
        "zero rows": (np.where(np.arange(9)[:, None] == 2, 0, normal(9, 2048)), normal(2048, 8)),
    }


OPERANDS = _operands()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", OPERANDS)
def test_grade_a_in_every_element(kind: str, dtype: Any) -> None:
    a, b = (x.astype(dtype) for x in OPERANDS[kind])
    k = a.shape[1]
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    allowed = k * UNIT32 * (np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble))
    result = matmul(a, b, scheme="int8x6", guarantee="componentwise", backend="reference")
    assert (np.abs(result - exact) <= allowed).all()
    for scheme in LADDER:
        unit = UNIT32 if dtype == np.float32 else UNIT64
        bound = factor(scheme, k, spread(np, a, -1), spread(np, b, -2), unit)
        value = multiply(a, b, scheme, rule="none").value
        assert (np.abs(value - exact) <= bound / (k * UNIT32) * allowed).all()


@pytest.mark.parametrize(
    ("kind", "dtype", "scheme", "ran"),
    [
        ("normal", "d", "int8x6", "int8x6"),
        ("short", "d", "int8x6", "int8x10"),
        ("scaled rows", "d", "int8x6", "int8x8"),
        ("far apart", "d", "int8x6", "native"),
        ("halves apart", "d", "int8x6", "int8x10"),
        ("short", "f", None, "native"),
        ("very short", "f", None, "native"),
        ("a diagonal", "f", None, "int8x6"),
        ("normal", "f", None, "faithful"),
        ("normal", "f", "fp16", "faithful"),
        ("normal", "f", "fp16x3", "fp16x3"),
        ("normal", "f", "int8x6", "int8x6"),
        ("scaled rows", "f", "int8x6", "faithful"),
        ("scaled rows", "f", "int8x8", "int8x8"),
        ("far apart", "f", None, "faithful"),
        ("far apart", "f", "int8x6", "faithful"),
    ],
)
def test_what_keeps_it(kind: str, dtype: str, scheme: str | None, ran: str) -> None:
    a, b = (x.astype(dtype) for x in OPERANDS[kind])
    trace = Trace()
    with use(Context(backend="reference", trace=trace)):
        matmul(a, b, scheme=scheme, guarantee="componentwise", site="s")
    record = trace.sites["s"]
    assert dict(record.schemes) == {ran: 1}
    assert list(record.reasons) == ([Reason.SPREAD] if ran == "native" else [])


@pytest.mark.parametrize("backend", ["reference", "reference:h200", "reference:a100"])
@pytest.mark.parametrize("family", FAMILIES)
def test_faithful_keeps_it_unmeasured(
    monkeypatch: pytest.MonkeyPatch, family: str, backend: str
) -> None:
    monkeypatch.delattr(guarantee, "spread")
    k = FAITHFUL_LEAST_K
    a, b = (x.astype(np.float32) for x in FAMILIES[family](np.random.default_rng(1), 9, k, 8))
    value = matmul(a, b, guarantee="componentwise", backend=backend)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    size = np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble)
    assert (np.abs(value - exact) <= k * UNIT32 * size + k * 2.0**-149).all()


def test_it_begins_where_the_scheme_is() -> None:
    a, b = OPERANDS["normal"]
    for name in ("int8x6", "int8x8", "int8x10"):
        assert componentwise(np, a, b, name) == name
    assert componentwise(np, a, b, "fp16") == "int8x6"


def test_it_holds_with_a_certificate_and_for_stacks() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 1, 5, 2048)), rng.standard_normal((3, 2048, 4))
    given: dict[str, Any] = {"guarantee": "componentwise", "return_certificate": True}
    value, certificate = matmul(a, b, scheme="faithful", backend="reference", **given)
    exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    assert value.shape == certificate.bound().shape == (2, 3, 5, 4)
    assert (np.abs(value - exact) <= certificate.bound()).all()
    assert (np.abs(value - exact) <= 2048 * UNIT32 * np.matmul(np.abs(a), np.abs(b))).all()


def test_an_unknown_guarantee_is_an_error() -> None:
    with pytest.raises(PlanError, match="unknown guarantee 'relative'; known: componentwise"):
        matmul(np.eye(2), np.eye(2), guarantee="relative")


def test_what_is_measured() -> None:
    x = np.array([[8.0, 4.0, 3.9, 0.0], [0.0, 0.0, 0.0, 0.0], [np.nan, 1e-9, 1.0, 1.0]])
    found = spread(np, x, -1)
    assert found.below[:3] == (0.75, 0.5, 0.25)
    assert found.below[DEEPEST] == 0.25
    assert found.mean == pytest.approx(15.9 / 32)
    assert found.ratio == pytest.approx(8 / 3.9)
    assert spread(np, x.T, -2) == found


def test_rows_that_underflow_are_not_judged() -> None:
    x = np.full((2, 3), 1e-40, np.float32)
    assert componentwise(np, x, np.ones((3, 2), np.float32), "int8x6") is None


@pytest.mark.parametrize("digits", [Digits(3, fitted=True, block=None), Digits(4, block=64)])
def test_the_bounds_of_digits_hold(digits: Digits) -> None:
    from mixpert_py.runtime.reference.digits import split

    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal((40, 256)), rng.random((40, 256))]).astype(np.float32)
    x[:, 0] = np.linspace(4, 8.1, 80)  # every place of the largest between powers of two
    blocks = 256 // (digits.block or 256)
    packed = split(x, digits, 256 // blocks, 256 // blocks, rule="none")
    largest = np.abs(x).max(axis=1).astype(float)
    bounds = Bounds.of(digits, 256)
    unit = (packed.significands * np.ldexp(1.0, packed.exponents)).astype(float)
    unit = np.repeat(unit, 256 // blocks, axis=1)
    pieces = [
        np.concatenate(list(packed.slices[:, :, p]), axis=1) * unit * 2.0 ** (-8 * p)
        for p in range(digits.count)
    ]
    for piece, bound in zip(pieces, bounds.slices, strict=True):
        assert (np.abs(piece).max(axis=1) <= bound * largest).all()
    assert (np.abs(x - sum(pieces)).max(axis=1) <= bounds.loss * largest).all()
    lower = sum(np.abs(piece) for piece in pieces) - np.abs(x)
    assert (lower.max(axis=1) <= bounds.lower * largest).all()


def test_more_moduli_take_the_place_of_too_few() -> None:
    a, b = OPERANDS["scaled along K"]
    assert componentwise(np, a, b, "crt8") == "crt9"
    assert componentwise(np, *OPERANDS["normal"], "crt8") == "crt8"
    assert componentwise(np, *OPERANDS["far apart"], "crt8") is None


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("normal", 14),
        ("uniform", 14),
        ("short", 16),
        ("very short", 15),
        ("a diagonal", 14),
        ("scaled along K", 16),
        ("far apart", None),
        ("one rules", None),
        ("halves apart", 15),
        ("zero rows", 15),
    ],
)
def test_moduli_that_keep_the_bound_of_float64(kind: str, count: int | None) -> None:
    a, b = OPERANDS[kind]
    k = a.shape[1]
    found = moduli_needed(k, spread(np, a, -1), spread(np, b, -2))
    assert found == count
    if found is None:
        return
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    allowed = k * UNIT64 * (np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble))
    value = multiply(a, b, RESIDUES[f"crt{found}"]).value
    assert (np.abs(value - exact) <= allowed).all()
