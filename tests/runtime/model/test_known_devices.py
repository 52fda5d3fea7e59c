"""Which device model a name stands for."""

import os
from pathlib import Path

import msgspec
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model import device_model
from mixpert_py.runtime.model.device_model import find, keep, names, path_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("nvidia-h200", "NVIDIA H200"),
        ("h200", "NVIDIA H200"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("b200", "NVIDIA B200"),
        ("GB10", "NVIDIA GB10"),
        ("l40s", "NVIDIA L40S"),
        ("l4", "NVIDIA L4"),
        ("A10", "NVIDIA A10"),
        ("t4", "Tesla T4"),
        ("v100", "Tesla V100-SXM2-16GB"),
    ],
)
def test_names(name: str, device: str) -> None:
    assert find(name).device == device


@pytest.mark.parametrize("name", ["h20", "3090 rtx", "", "NVIDIA B100"])
def test_others_are_not_known(name: str) -> None:
    with pytest.raises(
        DeviceError, match=r"no device model is known for .*: nvidia-a10, nvidia-a100"
    ):
        find(name)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 5090"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA L40S"),
        ("NVIDIA L40", "NVIDIA L40S"),
        ("NVIDIA RTX A6000", "NVIDIA A10"),
        ("NVIDIA A10G", "NVIDIA A10"),
        ("NVIDIA A40", "NVIDIA A10"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A30", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H200"),
        ("NVIDIA B100", "NVIDIA B200"),
        ("NVIDIA GB200", "NVIDIA B200"),
    ],
)
def test_an_unknown_device_goes_by_the_nearest(name: str, device: str) -> None:
    assert device_model.model_of(name).device == device


def test_words_of_several_devices() -> None:
    with pytest.raises(DeviceError, match=r"several .* match 'tesla'.*: tesla-t4, tesla-v100"):
        find("tesla")


def test_the_users_own_come_first() -> None:
    shipped = find("t4")
    own = msgspec.structs.replace(shipped, cuda="99.9")
    assert keep(own) == path_of("Tesla T4")
    assert find("t4") == own
    other = msgspec.structs.replace(own, device="Tesla P4")
    keep(other)
    assert find("p4") == other
    assert names()[-3:] == ["tesla-p4", "tesla-t4", "tesla-v100-sxm2-16gb"]


def test_a_file_that_is_no_model_is_named(home: Path) -> None:
    path = keep(find("h200"))
    path.write_text("format = 1\n")
    assert home in path.parents
    with pytest.raises(DeviceError, match=r"nvidia-h200\.toml:1: key 'device': missing"):
        find("h200")


def test_a_file_that_others_could_have_written_is_none() -> None:
    shipped = find("t4")
    path = keep(msgspec.structs.replace(shipped, cuda="99.9"))
    path.chmod(0o622)
    assert find("t4") == shipped


def test_a_folder_that_others_can_write_to_gets_no_model(home: Path) -> None:
    folder = path_of("Tesla T4").parent
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(DeviceError, match=r"tesla-t4\.toml: cannot write .* others than you can"):
        keep(find("t4"))
    assert not list(folder.iterdir())


def test_exact_names_are_not_taken_for_words_of_others() -> None:
    keep(msgspec.structs.replace(find("h200"), device="NVIDIA H200 NVL"))
    assert find("NVIDIA H200").device == "NVIDIA H200"
    with pytest.raises(DeviceError, match="several"):
        find("h200")
    assert device_model.slug("NVIDIA H200 NVL") in names()


def test_a_user_without_a_home_has_the_shipped_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where none is known
    model = find("h200")
    with pytest.raises(DeviceError, match="cannot write the device model"):
        keep(model)
