"""Which tensor cores a certificate of the GPU is for."""

import pytest

from mixpert_py.runtime.certificates import tensor_cores
from mixpert_py.runtime.gpu.certificate import rounding
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.scheme import UNIT32, UNIT64
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import FakeGpu


@pytest.mark.parametrize("scheme", ["fp16x3", "bf16x6", "tf32x3"])
@pytest.mark.parametrize(
    ("name", "capability", "chip"),
    [
        ("NVIDIA H200", (9, 0), "h200"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "h200"),
        ("NVIDIA GeForce RTX 3090", (8, 6), "rtx 3090"),
        ("NVIDIA L40S", (8, 9), "a100"),
        ("NVIDIA B200", (10, 0), "a100"),
    ],
)
def test_sums_are_rounded_as_the_device_rounds_them(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capability: tuple[int, int],
    chip: str,
    scheme: str,
) -> None:
    FakeGpu(name, capability).install(monkeypatch)
    emulation = EMULATIONS[scheme]
    how = getattr(model_of(chip).accumulation, emulation.element.name)
    wanted = tensor_cores.rounding(emulation, 500, how, hopper=capability == (9, 0))
    assert rounding(emulation, 500, UNIT32, 0) == wanted


def test_integers_are_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    emulation = EMULATIONS["int8x6"]
    for unit in (UNIT32, UNIT64):
        assert rounding(emulation, 500, unit, 0) == emulation.rounding(500, unit)
