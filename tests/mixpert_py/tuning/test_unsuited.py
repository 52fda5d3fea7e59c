"""The words that say why products can take no lower level on a processor."""

import pytest

from mixpert_py.execution.worker import SiteResult
from mixpert_py.tuning.baseline import why_all_native, why_native


def site(shape: tuple[int, int, int], calls: int, seconds: float) -> SiteResult:
    """A call site whose products, all of one shape, are too small for `float32`."""
    types, reasons = {"float64": calls}, {"too small": calls}
    return SiteResult(calls, seconds, [(*shape, calls)], {}, {}, types, {}, unsuited=reasons)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((6, 6, 6), "6 × 6 × 6 is too small for float32 to be faster"),
        ((96, 96, 96), "96 × 96 × 96 is too small for float32 to be faster"),
        ((1500, 1500, 24), "1500 × 1500 × 24 is too narrow for float32 to be faster"),
    ],
)
def test_a_large_product_with_a_short_side_is_not_called_small(
    shape: tuple[int, int, int], said: str
) -> None:
    assert why_native(site(shape, 1, 1e-3)) == said


def test_products_that_take_alike_have_one_time_and_others_a_range() -> None:
    small, other, long = site((3, 3, 3), 900, 9e-4), site((6, 6, 6), 100, 3e-4), (2000, 3, 2000)
    alike = why_all_native({"a": small, "b": other})
    assert alike == "1,000 products of about 1 µs: too small for any level"
    found = why_all_native({"a": small, "b": site(long, 2, 0.02)})
    assert found == "902 products of 1 µs to 10.0 ms: too small or too narrow for any level"


def test_what_is_no_product_of_arrays_says_of_what_it_is() -> None:
    found = SiteResult(1, 0.1, [(0, 0, 0, 1)], {}, {}, {"list": 1}, {})
    assert why_native(found) == "no product of arrays that a scheme takes (list)"
