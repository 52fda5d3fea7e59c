"""The estimate of a program: times from the ratios measured, and by the devices' own models."""

from pathlib import Path

from mixpert_py import launch
from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.model import device_model
from mixpert_py.tuning.clock import DeviceCost
from mixpert_py.tuning.estimate import estimate, short_name

PROGRAM = """\
import numpy as np
a = np.ones((200, 300))
b = np.ones((300, 100))
for _ in range(3):
    c = a @ b
d = a.T @ a
"""


def site(seconds: float, *shapes: tuple[int, int, int, int]) -> SiteResult:
    calls = sum(count for *_, count in shapes)
    return SiteResult(calls, seconds, list(shapes), {"native": calls}, {}, {"float64": calls}, {})


def test_predictions_are_those_of_the_devices_models(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_text(PROGRAM)
    found = estimate(launch.script(str(path)), 1e-5)
    assert found is not None
    traces = {5: site(1.0, (200, 300, 100, 3)), 6: site(1.0, (300, 200, 300, 1))}
    assert {one.line for one in found.products} == set(traces)
    devices = [place.device for place in found.places if place.device is not None]
    assert {"H200", "A100"} < set(devices)
    for device in devices:
        cost = DeviceCost.of(device)
        for one in found.products:
            trace = traces[one.line]
            native = cost("s", trace, "native")
            assert one.speeds[device] == {
                scheme: native / cost("s", trace, scheme)
                for scheme in ("int8x10", "faithful", "int8x6", "int8x3", "int8x1")
            }


def test_every_device_is_found_by_its_short_name() -> None:
    for name in device_model.names():
        device = device_model.find(name).device
        assert device_model.find(short_name(device).lower()).device == device
    assert short_name("NVIDIA A100-SXM4-80GB") == "A100"
    assert short_name("NVIDIA GeForce RTX 3090") == "RTX 3090"
