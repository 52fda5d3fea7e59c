"""Predicted costs of call sites, in seconds of a device that is not here."""

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.execution.worker import SiteResult
from mixpert_py.tuning.clock import DeviceCost, int8_products

H200 = DeviceCost.of("h200")


def site(*shapes: tuple[int, int, int, int], dtype: str = "float32") -> SiteResult:
    calls = sum(shape[3] for shape in shapes)
    return SiteResult(calls, 1.0, list(shapes), {"native": calls}, {}, {dtype: calls}, {})


def cost(scheme: str, *shapes: tuple[int, int, int, int], dtype: str = "float32") -> float:
    return H200("s", site(*shapes, dtype=dtype), scheme)


def test_lower_levels_cost_less_where_products_are_large() -> None:
    large = (8192, 8192, 8192, 1)
    levels = [cost(s, large) for s in ("native", "faithful", "int8x3", "int8x1")]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] / levels[1] > 3
    assert len(set(levels)) == 4


def test_a_complex_product_costs_four_and_what_joins_them() -> None:
    shape = (4096, 4096, 4096, 1)
    for scheme in ("native", "int8x6"):
        ratio = cost(scheme, shape, dtype="complex64") / cost(scheme, shape)
        assert 3.8 < ratio < 4.4
    assert cost("native", shape, dtype="complex128") < cost("native", shape, dtype="complex64")
    a_little = (512, 512, 512, 1)  # pays the device, and not the host that launches so much
    assert cost("int8x6", a_little, dtype="complex64") == cost(
        "native", a_little, dtype="complex64"
    )
    counted = int8_products("s", site(shape, dtype="complex64"), "int8x6")
    assert counted == 4 * int8_products("s", site(shape), "int8x6")
    counted = int8_products("s", site(shape, dtype="complex128"), "crt14")
    assert counted == 30 / 14 * int8_products("s", site(shape, dtype="float64"), "crt14")
    complex_, real = (cost("crt14", shape, dtype=dtype) for dtype in ("complex128", "float64"))
    assert 2 < complex_ / real < 2.5


def test_empty_products_cost_nothing() -> None:
    assert cost("native", (0, 5, 5, 4)) == cost("int8x6", (5, 0, 5, 4)) == 0


def test_a_device_that_is_not_known_or_has_no_kernels_is_named() -> None:
    with pytest.raises(
        DeviceError, match=r"no device model is known for 'z9000'; choose from: .*h200"
    ):
        DeviceCost.of("z9000")
    with pytest.raises(DeviceError, match=r"Tesla T4 has compute capability 7\.5"):
        DeviceCost.of("t4")
