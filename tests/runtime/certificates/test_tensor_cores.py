"""What tensor cores round: counted, never exceeded, and not far from what they really lose."""

import math

import msgspec
import numpy as np
import pytest

from mixpert_py.runtime.certificates.tensor_cores import rounding
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.model.numerics import Accumulation, Array
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import UNIT32
from tests.runtime.certificates.test_certificate import is_covered
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES

FLOATING = [name for name, scheme in EMULATIONS.items() if not scheme.exact]
CHIPS = {name: model_of(name).accumulation for name in ("h200", "a100")}
H200 = Accumulation(group=16, fraction=25)
ONE = 10.5  # of an H200's instructions for 16 of K: 17 cuts at 2^-25, and 2 u
TF32 = 6.5  # of those for 8 of K


def counts(name: str, k: int, how: Accumulation, *, hopper: bool) -> dict[tuple[int, int], float]:
    """The bounds in units of u."""
    found = rounding(EMULATIONS[name], k, how, hopper=hopper)
    return {term: bound / UNIT32 for term, bound in found.items()}


@pytest.mark.parametrize(
    ("name", "k", "hopper", "count"),
    [
        ("fp16", 16, True, ONE + 1),
        ("fp16", 4096, True, 2 * ONE + 128),
        ("fp16", 40, True, 2 * ONE + 2),
        # As fp16x3 below: the other five terms are in another accumulator.
        ("bf16x6", 16, True, ONE + 2),
        ("bf16x6", 64, True, 2 * ONE + 2 + 1),
        ("bf16x6", 4096, False, 2 * ONE + 128 + 1),
        # The last of two terms, and two more instructions.
        ("tf32x3", 8, True, TF32 + 1),
        # Promoted after two instructions, and another accumulator in the end.
        ("fp16x3", 64, True, 2 * ONE + 2 + 1),
        ("fp16x3", 4096, True, 2 * ONE + 128 + 1),
        ("fp16x3", 4096, False, 2 * ONE + 128 + 1),
        # Two accumulators, each added by itself, or both combined before.
        ("legemm", 64, True, 2 * ONE + 4),
        ("legemm", 64, False, 2 * ONE + 3),
        ("ootomo", 64, True, ONE + 8),
    ],
)
def test_instructions_and_additions_are_counted(
    name: str, k: int, hopper: bool, count: float
) -> None:
    assert counts(name, k, H200, hopper=hopper)[0, 0] == pytest.approx(count, rel=1e-4)


def test_a_deferred_accumulator_is_one_chain() -> None:
    found = counts("fp16x3", 1024, H200, hopper=True)
    assert found[0, 1] == pytest.approx(2 * 64 * ONE + 32 + 1, rel=2e-4)
    assert counts("fp16x3", 1024, H200, hopper=False)[0, 1] < found[0, 1] / 10


def test_negligible_terms_pay_for_their_own_cut() -> None:
    """Of lo · lo a chain pays but for its sum, cut at 2^-25, and for truncation."""
    found = counts("egemm", 32, H200, hopper=True)
    assert found[0, 0] == pytest.approx(4 * ONE + 2.5 + 1, rel=1e-4)
    assert found[1, 1] == pytest.approx(2**24 + 6 * ONE + 5 + 1, rel=1e-7)


def test_what_a_chip_does_decides() -> None:
    count = counts("fp16", 16, Accumulation(group=8, fraction=24), hopper=False)[0, 0]
    assert count == pytest.approx(2 * (9 + 2) + 1, rel=1e-4)
    after = msgspec.structs.replace(H200, addend="after")
    assert counts("fp16", 16, after, hopper=True)[0, 0] == pytest.approx(ONE + 2 + 1, rel=1e-4)
    assert counts("fp16", 3, H200, hopper=True)[0, 0] == pytest.approx(2 + 2 + 1, rel=1e-4)


def test_chains_too_long_for_a_bound_have_none() -> None:
    long = EMULATIONS["fp16x3"]
    assert math.isinf(rounding(long, 1 << 24, H200, hopper=True)[0, 1])
    assert rounding(long, 1 << 22, H200, hopper=True)[0, 0] < 0.01


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("family", ["normal", "spread 4", "half's low range", "subnormal"])
@pytest.mark.parametrize("name", FLOATING)
def test_what_a_chip_loses_is_covered(name: str, family: str, chip: str) -> None:
    for seed, k in enumerate((1, 3, 16, 40)):
        pair = FAMILIES[family](np.random.default_rng(seed), 4, k, 3)
        assert is_covered(*(x.astype(np.float32) for x in pair), name, CHIPS[chip])


def ratios(a: Array, b: Array, name: str, chip: str) -> Array:
    """|C − Ĉ| over its bound."""
    product = multiply(a, b, EMULATIONS[name], like=CHIPS[chip])
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    return np.asarray(np.abs(product.value - exact) / product.certificate.bound(), np.float64)


@pytest.mark.parametrize("name", FLOATING)
def test_constant_operands_come_near_the_bound(name: str) -> None:
    """All sums are cut and truncated the same way, and Cauchy–Schwarz loses nothing. The slices of
    `bf16x6` lose nothing either, and of its sums what the bound allows for is mostly the first's.
    """
    least = 0.05 if name == "bf16x6" else 0.1
    rng = np.random.default_rng(0)
    for k in (1, 16, 32, 64):
        sides = ((1 + rng.integers(0, 1 << 23, 100) / 2**23).astype(np.float32) for _ in range(2))
        a, b = (np.repeat(side[:, np.newaxis], k, axis=1) for side in sides)
        found = ratios(a, b.T, name, "h200")
        assert least < found.max() <= 1


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", FLOATING)
def test_small_products_beside_a_large_one_are_covered(name: str, chip: str) -> None:
    """They are cut off instruction by instruction, all the same way."""
    rng = np.random.default_rng(1)
    for k in (16, 32, 64):
        for power in range(0, 15, 3):
            a = 2 - 2.0 ** -rng.integers(5, 24, (30, k))
            b = 2 - 2.0 ** -rng.integers(5, 24, (k, 30))
            a[:, 1:] *= 2.0**-power
            b[1:] *= rng.choice([-1.0, 1.0]) * 2.0 ** -rng.integers(0, 15)
            assert ratios(a.astype(np.float32), b.astype(np.float32), name, chip).max() <= 1
