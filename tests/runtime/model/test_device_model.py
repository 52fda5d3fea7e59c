"""Device models: what their files hold, what is said of others, and which one a name stands for."""

import os
from pathlib import Path

import msgspec
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model import device_model
from mixpert_py.runtime.model.device_model import (
    SHIPPED,
    Accumulation,
    Accumulations,
    DeviceModel,
    Instruction,
    IntegerAccumulation,
    dumps,
    find,
    keep,
    load,
    loads,
    names,
    path_of,
)

T4 = (SHIPPED / "tesla-t4.toml").read_text(encoding="utf-8")


def shipped() -> dict[str, DeviceModel]:
    return {
        file.name.removesuffix(".toml"): loads(file.read_text(encoding="utf-8"), file.name)
        for file in SHIPPED.iterdir()
    }


@pytest.mark.parametrize("name", shipped())
def test_what_is_shipped_can_be_read_and_written(name: str) -> None:
    model = shipped()[name]
    assert loads(dumps(model)) == model


def test_shipped_figures_are_of_chips() -> None:
    """Units: a figure in the wrong one is off by thousands."""
    for model in shipped().values():
        assert 1e9 < model.chip.clock < 3e9
        assert 16 <= model.chip.multiprocessors <= 200
        assert 2e11 < model.dram.bandwidth < 1e13
        assert 48 * 1024 <= model.shared.per_block < 1 << 18
        rates = model.rates
        assert rates.float16 is not None
        assert rates.float32 is not None
        assert 1e13 < rates.float16 < 3e15
        assert rates.float16 > 1.9 * rates.float32 > 1e13
        assert rates.int8 is None or rates.int8 >= 2 * rates.float16
        # 2 · 128 a cycle and multiprocessor is what CUDA cores reach.
        assert rates.float32 <= 2 * 128 * model.chip.multiprocessors * model.chip.clock * 1.01


def test_shipped_figures_that_are_published_have_sources() -> None:
    for name, model in shipped().items():
        tables = msgspec.to_builtins(model) if model.origin == "published" else {}
        for table in tables.keys() & {"chip", "shared", "l2", "dram", "rates", "accumulation"}:
            wanted = {table, *(f"{table}.{key}" for key in tables[table])}
            own = wanted & model.sources.keys()
            assert table in own or own == wanted - {table}, (name, table)
        assert "instruction" not in tables or "instruction" in model.sources, name


def test_numbers_tables_and_lists_come_back() -> None:
    model = msgspec.structs.replace(
        loads(T4),
        device='An "odd" \\ name',
        instruction=[Instruction("mma.sync m16n8k8 float16", 14.0), Instruction("b", None, 8.25)],
        accumulation=Accumulations(
            Accumulation(group=4, fraction=23, floor=-132), int8=IntegerAccumulation("wraps")
        ),
        sources={**loads(T4).sources, "instruction": "a paper", "accumulation": "another"},
    )
    assert loads(dumps(model)) == model


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("clock = 1.59e9", "clock = -1.0", r"t4:9: key 'chip\.clock': Expected `float` > 0"),
        ("clock = 1.59e9", 'clock = "fast"', r"t4:9: key 'chip\.clock': Expected `float`"),
        ("clock = 1.59e9\n", "", r"t4:7: key 'chip\.clock': missing"),
        ("clock = 1.59e9", "speed = 1.59e9", r"t4:9: key 'chip\.speed': unknown key"),
        ("format = 1", "format = 2", r"t4:1: key 'format': 2; this version reads 1"),
        ("format = 1", "format = ", r"t4: not valid TOML"),
        ('origin = "published"', 'origin = "guessed"', r"t4:5: key 'origin': Invalid enum value"),
        ("date = 2026-11-22", 'date = "soon"', r"t4:4: key 'date': "),
        ("[sources]", "[sources]\nhost = 3", r"t4:\d+: key 'sources\.host': Expected `str`"),
    ],
)
def test_what_is_wrong_is_named_by_key_and_line(old: str, new: str, said: str) -> None:
    assert old in T4
    with pytest.raises(DeviceError, match=said) as caught:
        loads(T4.replace(old, new, 1), "t4")
    assert "\n" not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(T4)
    assert load(path) == loads(T4)
    path.write_bytes(b"\xff")
    with pytest.raises(DeviceError, match=r"m\.toml: not UTF-8 text"):
        load(path)
    path.write_text(T4.replace('origin = "', 'origin = "' + 5000 * "x", 1))
    with pytest.raises(DeviceError, match="Invalid enum value") as caught:
        load(path)
    assert len(str(caught.value)) < 500
    with pytest.raises(DeviceError, match=r"none\.toml: cannot read the device model: No such"):
        load(tmp_path / "none.toml")
    with pytest.raises(DeviceError, match="larger than 1 MiB"):
        loads("#" * (1 << 21))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("h200", "NVIDIA H200"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("b200", "NVIDIA B200"),
        ("l4", "NVIDIA L4"),
        ("A10", "NVIDIA A10"),
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
        ("NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 5090"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA L40S"),
        ("NVIDIA RTX A6000", "NVIDIA A10"),
        ("NVIDIA A10G", "NVIDIA A10"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H200"),
        ("NVIDIA B100", "NVIDIA B200"),
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
