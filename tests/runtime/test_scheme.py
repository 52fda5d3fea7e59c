"""What a scheme derives from its declaration: runs, lengths, rounding."""

import pytest

from mixpert_py.runtime.scheme import UNIT32, Scheme, Term, TermRun, triangle
from mixpert_py.runtime.splitter import FP16, FloatSlices
from tests.runtime.emulations import EMULATIONS


@pytest.mark.parametrize(
    ("order", "left", "right", "pairs"),
    [
        (2, 3, 3, {(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)}),
        (3, 2, 3, {(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)}),
        (0, 1, 1, {(0, 0)}),
    ],
)
def test_triangle(order: int, left: int, right: int, pairs: set[tuple[int, int]]) -> None:
    terms = triangle(order, left, right, 8)
    assert {(term.left, term.right) for term in terms} == pairs
    assert all(term.weight == -8 * (term.left + term.right) for term in terms)
    assert all(term.accumulator == term.left + term.right for term in terms)


def test_terms_of_one_order_are_one_run() -> None:
    assert EMULATIONS["int8x6"].accumulators() == (
        (-16, (TermRun(0, 2, 3),)),
        (-8, (TermRun(0, 1, 2),)),
        (0, (TermRun(0, 0, 1),)),
    )


def test_terms_keep_their_order() -> None:
    assert EMULATIONS["egemm"].accumulators() == (
        (0, (TermRun(1, 1, 1), TermRun(1, 0, 1), TermRun(0, 1, 1), TermRun(0, 0, 1))),
    )
    assert EMULATIONS["legemm"].accumulators() == (
        (-10, (TermRun(0, 1, 2),)),
        (0, (TermRun(0, 0, 1),)),
    )


@pytest.mark.parametrize(
    ("name", "block", "k", "lengths"),
    [
        ("int8x6", None, 1000, (256, 1024, 1024)),
        ("int8x6", None, 40, (40, 40, 40)),
        ("int8x6", None, 40_000, (256, 40_192, 32_512)),
        ("int8x6", 128, 1000, (128, 128, 128)),
        ("int8x10", None, 1000, (128, 128, 128)),
        ("int8x6", 300, 1000, (256, 512, 512)),
        ("int8x6", 10**6, 1000, (256, 1024, 1024)),
        ("int8x10", 10**6, 70_000, (256, 70_144, 32_512)),
        ("mixpert-IV", None, 1000, (32, 32, 32)),
        ("fp16x3", None, 1000, (32, 1024, 1024)),
        ("fp16", None, 0, (1, 1, 1)),
    ],
)
def test_lengths(name: str, block: int | None, k: int, lengths: tuple[int, int, int]) -> None:
    assert EMULATIONS[name].with_block(block).lengths(k) == lengths


@pytest.mark.parametrize("name", ["int8x10", "mixpert-full"])
def test_sums_stay_exact(name: str) -> None:
    """Four terms of an accumulator within 2^24 per chunk, and within INT32 per segment.

    A digit is at most 2^7 in size: −128.
    """
    chunk, _, k_segment = EMULATIONS[name].with_block(None).lengths(10**6)
    if name == "int8x10":
        chunk, _, k_segment = EMULATIONS[name].with_block(10**6).lengths(10**6)
    assert 4 * chunk * 2**14 <= 2**24
    assert 4 * k_segment * 2**14 < 2**31


def test_rounding_of_integers_grows_with_promotions_only() -> None:
    long, short = EMULATIONS["int8x6"], EMULATIONS["int8x6"].with_block(128)
    assert short.rounding(4096)[0, 0] == pytest.approx((32 + 3 + 1 + 2) * UNIT32, rel=1e-4)
    assert long.rounding(4096)[0, 0] == pytest.approx((1 + 3 + 1 + 2) * UNIT32, rel=1e-4)
    plain = EMULATIONS["int8x10"]  # no significands
    assert plain.rounding(4096)[0, 0] == pytest.approx((32 + 4 + 2) * UNIT32, rel=1e-4)
    assert set(short.rounding(4096)) == {(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)}


def test_rounding_of_floats_counts_every_addition() -> None:
    half = FloatSlices(FP16, 2)
    two = Scheme("two", FP16, half, half, (Term(1, 0), Term(0, 0)), error=0.0, promotion=32)
    assert two.rounding(128)[0, 0] == pytest.approx((32 + 2 * 4 + 1 + 2) * UNIT32, rel=1e-4)
