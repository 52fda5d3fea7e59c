"""Times of sites from pairs, and what is not tried for them."""

from math import hypot, log

import pytest

from mixpert_py.execution.products import MeasuredProduct, ProductTimes
from mixpert_py.execution.worker import SiteResult
from mixpert_py.tuner.ratio import Ratio
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.clock import PairedTimes, site_ratio

FAST, SLOW = Ratio(0.5, 0.4, 0.5 / 0.8), Ratio(1.5, 1.4, 1.5 * 15 / 14)
SMALL, LARGE = (10, 10, 10), (20, 10, 10)


def trace(**shapes: int) -> SiteResult:
    """A site's trace: calls of the small and the large shape."""
    known = {"small": SMALL, "large": LARGE}
    rows = [(*known[name], calls) for name, calls in shapes.items()]
    return SiteResult(sum(shapes.values()), 1.0, rows, {}, {}, {}, {})


def product(shape: tuple[int, int, int], ratio: Ratio | None, site: str = "s") -> MeasuredProduct:
    times = None if ratio is None else ProductTimes(1.0, ratio)
    return MeasuredProduct(site, shape, {}, {"float32": times})


def test_a_sites_ratio_is_that_of_its_shapes_by_their_parts_of_its_time() -> None:
    found = site_ratio(
        trace(small=2, large=3), [product(SMALL, FAST), product(LARGE, SLOW)], "float32"
    )
    assert isinstance(found, Ratio)
    # Of eight parts, the large calls make six.
    assert found.mean == pytest.approx((2 * 0.5 + 6 * 1.5) / 8)
    # The errors of both are independent: of 2 · 0.5 parts, and of 6 · 1.5.
    assert found.half_width == pytest.approx(hypot(log(5 / 4), 9 * log(15 / 14)) / 10, rel=0.05)


@pytest.mark.parametrize(("seconds", "saved"), [(0.04, 0.5), (0.08, 0.5 * 5 / 8), (2.0, 0.488)])
def test_what_new_memory_takes_in_the_program_is_saved_by_no_scheme(
    seconds: float, saved: float
) -> None:
    """Of 24 MB a call, at most 24 ms: whatever else the calls take longer is the machine's load."""
    cube = (1000, 1000, 1000)
    found = [MeasuredProduct("s", cube, {}, {"float32": ProductTimes(0.025, FAST)})]
    trace = SiteResult(2, seconds, [(*cube, 2)], {}, {}, {}, {})
    ratio = site_ratio(trace, found, "float32")
    assert isinstance(ratio, Ratio)
    assert ratio.mean == pytest.approx(1 - saved)


def test_a_shape_that_does_not_take_the_scheme_stays_native() -> None:
    found = site_ratio(
        trace(small=2, large=1), [product(SMALL, FAST), product(LARGE, None)], "float32"
    )
    assert isinstance(found, Ratio)
    assert found.mean == pytest.approx(0.75)


def test_why_a_site_has_no_ratio() -> None:
    assert site_ratio(trace(small=1), [], "float32") is StopReason.UNCLEAR
    assert site_ratio(trace(small=1), [product(SMALL, FAST)], "int8x6") is StopReason.UNCLEAR
    assert site_ratio(trace(small=1), [product(SMALL, None)], "float32") is StopReason.NOT_TAKEN


def test_a_site_below_one_percent_is_not_timed() -> None:
    sites = {"s": trace(small=1), "little": trace(small=1), "late": trace(small=1)}
    native = {"s": 2.0, "little": 0.01, "late": 0.1}
    cost = PairedTimes.of(native, sites, [product(SMALL, FAST)], ["float32"])
    slightly = PairedTimes(native, {"late": {"float32": Ratio(0.93, 0.9, 0.97)}})
    assert slightly.excluded("late") == {"float32": StopReason.TOO_LITTLE}  # saves 0.3 %
    assert cost.excluded("little") == {"float32": StopReason.NEGLIGIBLE}
    assert cost.excluded("late") == {"float32": StopReason.UNCLEAR}  # there was no time for it
    assert cost("little", sites["little"], "float32") == 0.01


@pytest.mark.parametrize(
    ("ratio", "seconds", "reason"),
    [
        (FAST, 1.0, None),
        (SLOW, 3.0, StopReason.NOT_FASTER),
        (Ratio(0.9, 0.5, 1.5), 1.8, StopReason.UNCLEAR),
        (Ratio(0.975, 0.95, 1.0), 1.95, StopReason.NOT_FASTER),  # at most a little faster
        (None, 2.0, StopReason.NOT_TAKEN),
    ],
)
def test_times_and_what_is_not_tried(
    ratio: Ratio | None, seconds: float, reason: StopReason | None
) -> None:
    site = trace(small=1)
    cost = PairedTimes.of({"s": 2.0}, {"s": site}, [product(SMALL, ratio)], ["float32"])
    assert cost("s", site, "native") == 2.0
    assert cost("s", site, "float32") == seconds
    assert cost.excluded("s") == ({} if reason is None else {"float32": reason})
