"""`mixpert probe`: what it runs, prints and writes."""

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mixpert_py.commands import probe as command
from mixpert_py.commands.probe import measured_model, probe
from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model import device_model
from mixpert_py.runtime.model.device_model import KernelCost, load
from mixpert_py.runtime.probes.gpu import Gpu
from tests.mixpert_py.command import Mixpert

TODAY = datetime.date(2026, 11, 22)
NAME = "NVIDIA Nothing 100"

FOUND: dict[str, Any] = {
    "resources": {
        "device": NAME,
        "capability": 90,
        "driver": "580.1",
        "cuda": "13.0",
        "chip": {"multiprocessors": 132, "clock": 1.8e9},
        "shared": {"per_block": 232448},
    },
    "memory": {"dram": {"bandwidth": 4.5e12, "copy": 4.2e12}},
    "transfer": {"transfer": {"staged": 5e9}, "host": {"float32": 1e12}},
    "products": {
        "kernel": [
            {"scheme": "int8x6", "m": 128, "n": 64, "base": 0.0, "tile": 2e-6, "step": 1e-6}
        ],
        "packing": [
            {"scheme": "int8x6", "base": 1e-5, "rate": 3e12, "small": 1e-5, "length": 4e-9}
        ],
        "vendor": {"float32": 5e13, "float64": 6e13},
        "rates": dict.fromkeys(("int8", "float16", "bfloat16", "tf32", "float32", "float64"), 6e13)
        | {"int8": 1.9e15},
    },
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Probes that find what they are said to find, and the names of those that ran."""
    names: list[str] = []

    def found(name: str) -> Any:
        return lambda gpu: names.append(name) or FOUND[name]

    monkeypatch.setattr(command, "probes", lambda: {name: found(name) for name in FOUND})
    monkeypatch.setattr(Gpu, "current", lambda: SimpleNamespace())
    return names


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(probe, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_without_a_gpu_it_is_one_line(mixpert: Mixpert) -> None:
    said = mixpert("probe", CUDA_VISIBLE_DEVICES="")
    assert said.code == 2
    assert said.one_clear_line().startswith("mixpert: nothing to probe: ")
    assert said.out == ""


def test_all_of_them_make_a_model_that_is_found_again(ran: list[str]) -> None:
    result = call()
    assert ran == list(FOUND)
    path = device_model.path_of(NAME)
    assert str(path) in result.output
    assert "dram.bandwidth = 4.5e+12\n" in result.output
    assert "kernel: 1 rows\n" in result.output
    model = device_model.find(NAME)
    assert model == load(path)
    assert (model.origin, model.device, model.cuda) == ("measured", NAME, "13.0")
    assert model.date == datetime.date.today()
    assert model.chip.multiprocessors == 132
    assert model.chip.clock == 1.8e9
    assert model.shared.per_block == 232448
    assert model.dram.copy == 4.2e12
    assert model.rates.int8 == 1.9e15
    assert model.accumulation == device_model.find("h200").accumulation  # of one capability
    assert model.kernel == [KernelCost("int8x6", 128, 64, 0.0, 2e-6, 1e-6)]


def test_a_file_instead(ran: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    assert call("-o", str(path)).exit_code == 0
    assert load(path).device == NAME
    assert not device_model.path_of(NAME).exists()


def test_json_is_all_that_stands_on_stdout(ran: list[str], tmp_path: Path) -> None:
    result = call("--json")
    found = json.loads(result.stdout)
    assert list(found) == list(FOUND)
    assert found["transfer"] == FOUND["transfer"]
    assert "device model written to" in result.stderr


def test_what_is_missing_is_named() -> None:
    found = [one for name, one in FOUND.items() if name != "resources"]
    with pytest.raises(DeviceError, match=r"no device model: .* missing required field `device`"):
        measured_model(found, TODAY)
    broken = {"transfer": {"staged": -1.0}}
    with pytest.raises(DeviceError, match=r"no device model: Expected `float` > 0.*transfer"):
        measured_model([*FOUND.values(), broken], TODAY)
