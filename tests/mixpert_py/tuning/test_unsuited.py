"""The words that say why products can take no lower level on a processor."""

from mixpert_py.execution.worker import SiteResult
from mixpert_py.tuning.baseline import why_all_native, why_native


def site(shape: tuple[int, int, int], calls: int, seconds: float) -> SiteResult:
    """A call site whose products, all of one shape, are too small for `float32`."""
    types, reasons = {"float64": calls}, {"too small": calls}
    return SiteResult(calls, seconds, [(*shape, calls)], {}, {}, types, {}, unsuited=reasons)


def test_the_largest_product_that_is_too_small_is_named() -> None:
    small, other = site((3, 3, 3), 900, 9e-4), site((1500, 1500, 24), 2, 0.02)
    assert why_native(small) == "3 × 3 × 3 is too small or too narrow for a level to be faster"
    said = why_all_native({"a": small, "b": other})
    assert said == (
        "902 products: 1500 × 1500 × 24 is too small or too narrow for a level to be faster"
    )


def test_narrow_types_have_no_faster_level() -> None:
    found = SiteResult(3, 0.1, [(9, 9, 9, 3)], {}, {}, {"float32": 2, "float16": 1}, {})
    assert why_all_native({"a": found}) == (
        "3 products: a processor has no faster level for float32, float16"
    )
    assert (
        why_all_native(
            {"a": found, "b": SiteResult(1, 0.1, [(9, 9, 9, 1)], {}, {}, {"float64": 1}, {})}
        )
        == ""
    )


def test_what_is_no_product_of_arrays_says_of_what_it_is() -> None:
    found = SiteResult(1, 0.1, [(0, 0, 0, 1)], {}, {}, {"list": 1}, {})
    assert why_native(found) == "no product of arrays that a scheme takes (list)"
