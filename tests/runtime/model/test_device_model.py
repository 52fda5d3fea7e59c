"""Device model files: what they hold, and what is said of those that hold something else."""

from pathlib import Path

import msgspec
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import (
    SHIPPED,
    Accumulation,
    Accumulations,
    DeviceModel,
    Instruction,
    IntegerAccumulation,
    dumps,
    load,
    loads,
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
        ("rates =", "rate =", r"t4:\d+: key 'rates\.int8': published without a source"),
        ('chip = "CUDA', '"chip.clock" = "CUDA', r"key 'chip\.multiprocessors': published without"),
        (
            'origin = "published"',
            'origin = "measured"',
            r"t4:15: key 'dram\.copy': missing from a measured model",
        ),
        ("[sources]", "[sources]\nhost = 3", r"t4:\d+: key 'sources\.host': Expected `str`"),
    ],
)
def test_what_is_wrong_is_named_by_key_and_line(old: str, new: str, said: str) -> None:
    assert old in T4
    with pytest.raises(DeviceError, match=said) as caught:
        loads(T4.replace(old, new, 1), "t4")
    assert "\n" not in str(caught.value)


def test_a_measured_model_of_an_earlier_version_still_loads() -> None:
    text = (SHIPPED / "nvidia-h200.toml").read_text(encoding="utf-8")
    earlier = text.replace("[vendor]\n", "[vendor]\nhost = 9.5e-06\nproduct = 2.4e-05\n", 1)
    assert earlier != text
    assert loads(earlier) == loads(text)
    with pytest.raises(DeviceError, match=r"key 'vendor\.launch': unknown key"):
        loads(text.replace("[vendor]\n", "[vendor]\nlaunch = 3e-06\n", 1))


def test_a_source_may_be_that_of_one_figure() -> None:
    text = T4.replace('\ndram = "', '\n"dram.bandwidth" = "')
    assert loads(text).dram == loads(T4).dram


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
