"""Devices of an estimate go by short names."""

from mixpert_py.runtime.model import device_model
from mixpert_py.tuning.estimate import short_name


def test_every_device_is_found_by_its_short_name() -> None:
    for name in device_model.names():
        device = device_model.find(name).device
        assert device_model.find(short_name(device).lower()).device == device
    assert short_name("NVIDIA A100-SXM4-80GB") == "A100"
    assert short_name("NVIDIA GeForce RTX 3090") == "RTX 3090"
