"""The probe of numerics: on chips that are simulated, and on the GPU that is here."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.gpu.device import Absent, find
from mixpert_py.runtime.model.device_model import Accumulations
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.model.numerics import (
    Accumulation,
    AnyAccumulation,
    Array,
    IntegerAccumulation,
    accumulate,
)
from mixpert_py.runtime.probes import numerics
from mixpert_py.runtime.probes.gpu import Gpu
from mixpert_py.runtime.probes.numerics import (
    INSTRUCTIONS,
    Instruction,
    agree,
    examine,
    multiply_on_gpu,
)
from mixpert_py.runtime.probes.numerics_families import FLOATS
from mixpert_py.runtime.probes.numerics_features import Multiply, Shape, determine
from tests.every_check import sweep

SHAPES = {
    "float16": Shape(16, 8, 16, "float16"),
    "bfloat16": Shape(16, 8, 16, "bfloat16"),
    "tf32": Shape(16, 8, 8, "tf32"),
    "int8": Shape(16, 8, 32, "int8"),
}
USUAL = Accumulation(4, 24)
CHANGES: list[dict[str, Any]] = [
    {"group": 8},
    {"order": "descending"},
    {"order": "interleaved"},
    {"addend": "after"},
    *({"fraction": bits} for bits in (23, 25, 26, 30, 40)),
    {"alignment": "nearest"},
    {"alignment": "down"},
    {"result": "nearest"},
    {"result": "down"},
    {"normalized": True},
    {"subnormal_operands": False},
    {"subnormal_sums": False},
    {"signed_zero": True},
    {"floor": -133},
    {"floor": -126},
]


def simulated(how: AnyAccumulation) -> Multiply:
    return lambda a, b, c: accumulate(a, b, c, how)


def published(name: str) -> list[tuple[str, AnyAccumulation]]:
    table = model_of(name).accumulation
    rows = ((element, getattr(table, element)) for element in SHAPES)
    return [(element, how) for element, how in rows if how is not None]


@pytest.mark.parametrize("device", ["v100", "t4", "a100", "h200", "rtx 3090"])
def test_published_chips_are_recognized(device: str) -> None:
    chips = published(device)
    assert chips
    for element, how in chips:
        assert determine(simulated(how), SHAPES[element]) == how


@pytest.mark.parametrize("change", [*CHANGES, {"floor": -148}], ids=str)
@pytest.mark.parametrize("other", [{}, {"alignment": "nearest", "result": "nearest"}], ids=str)
@pytest.mark.parametrize("element", ["float16", "bfloat16", "tf32"])
def test_every_feature_is_found(
    change: dict[str, Any], other: dict[str, Any], element: str
) -> None:
    if element == "float16" and "floor" in change:
        pytest.skip("half precision has no products that small")
    how = replace(replace(USUAL, **other), **change)
    assert determine(simulated(how), SHAPES[element]) == how


@pytest.mark.parametrize("overflow", ["wraps", "saturates"])
def test_integer_overflow_is_found(overflow: str) -> None:
    how = msgspec.convert({"overflow": overflow}, IntegerAccumulation)
    assert determine(simulated(how), SHAPES["int8"]) == how


def chain(a: Array, b: Array, c: Array) -> Array:
    """FP32 multiply-adds, one after the other, as a CUDA core makes them."""
    total = c.astype(np.float32)
    for position in range(a.shape[2]):
        products = a[:, :, position, None].astype(float) * b[:, position, None, :].astype(float)
        total = (total + products).astype(np.float32)
    return total


def test_what_is_no_tensor_core_is_refused() -> None:
    with pytest.raises(DeviceError, match="tensor cores add 4 or more"):
        determine(chain, SHAPES["float16"])


def test_what_the_model_does_not_know_is_refused() -> None:
    def upwards(a: Array, b: Array, c: Array) -> Array:
        return 0 - accumulate(-a, b, -c, Accumulation(16, 25, result="down"))

    with pytest.raises(DeviceError, match="'result'"):
        determine(upwards, SHAPES["float16"])


@pytest.mark.parametrize(
    ("change", "element"), sweep(CHANGES, ["bfloat16", "float16", "tf32"], together=1), ids=str
)
def test_random_matrices_tell_every_feature(change: dict[str, Any], element: str) -> None:
    if element == "float16" and "floor" in change:
        pytest.skip("half precision has no products that small")
    how = replace(USUAL, floor=-140)
    chip = simulated(replace(how, **change))
    rows = list(agree(chip, how, SHAPES[element], 4000))
    assert [row.family for row in rows] == list(FLOATS)
    assert sum(row.matrices for row in rows) >= 4000
    differing = [row for row in rows if row.differing]
    assert differing
    assert all(row.first is not None for row in differing)


@pytest.mark.parametrize(("element", "how"), published("h200"), ids=str)
def test_a_chip_agrees_with_its_own_model(element: str, how: AnyAccumulation) -> None:
    for row in agree(simulated(how), how, SHAPES[element], 800):
        assert row.elements == row.matrices * 128
        assert (row.differing, row.zeros, row.first) == (0, 0, None), row.family


def test_the_first_difference_is_a_sum_that_can_be_made_again() -> None:
    how, shape = Accumulation(16, 25), SHAPES["float16"]

    def chip(a: Array, b: Array, c: Array) -> Array:
        value = accumulate(a, b, c, how)
        value[30:, 3, 1] += 1
        return value

    first = next(agree(chip, how, shape, 100, {"close": FLOATS["close"]})).first
    assert first is not None
    row, column = np.array([first.row], np.float16), np.array([first.column], np.float16).T
    c = np.full((1, 1), first.addend, np.float32)
    assert accumulate(row, column, c, how)[0, 0] == first.model
    assert first.chip == np.float32(first.model) + 1


def test_signs_of_zero_are_counted_apart() -> None:
    how = Accumulation(16, 25)
    chip = simulated(replace(how, signed_zero=True))
    row = next(agree(chip, how, SHAPES["float16"], 1000, {"zeros": FLOATS["zeros"]}))
    assert row.zeros == row.differing > 0
    less = simulated(replace(how, fraction=24))
    row = next(agree(less, how, SHAPES["float16"], 1000, {"cancelling": FLOATS["cancelling"]}))
    assert row.differing
    assert not row.zeros


def like_an_h200(gpu: Any, instruction: Instruction, a: Array, b: Array, c: Array) -> Array:
    how = dict(published("h200"))[instruction.shape.element]
    return accumulate(a, b, c, how)


@pytest.mark.parametrize(("capability", "count"), [(80, 4), (90, 8)])
def test_the_probe(capability: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "multiply_on_gpu", like_an_h200)
    gpu = SimpleNamespace(device=SimpleNamespace(capability=capability))
    found = numerics.numerics(gpu, 64)  # type: ignore[arg-type]
    table = msgspec.convert(found.tables["accumulation"], Accumulations)
    assert table == model_of("h200").accumulation
    heads = [line for line in found.text.splitlines() if not line.startswith(" ")]
    assert len(heads) == count
    assert heads[0] == "mma.sync m16n8k16 float16: 16 products at once, 25 fraction bits"
    assert heads[1].endswith(", floor -133")
    for name, matrices in (("mma.sync", 8), ("wgmma", 2)):
        start = found.text.find(f"{name} m")
        assert start < 0 or f" {matrices} matrices" in found.text[start:][:400]
    assert heads[3] == "mma.sync m16n8k32 int8: exact, wraps"
    assert "differ" not in found.text


def test_the_probe_says_where_the_model_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike(gpu: Any, instruction: Instruction, a: Array, b: Array, c: Array) -> Array:
        value = like_an_h200(gpu, instruction, a, b, c)
        return np.where(np.isnan(value), np.float32(np.nan), value)

    monkeypatch.setattr(numerics, "multiply_on_gpu", unlike)
    text = "\n".join(numerics.lines(examine(SimpleNamespace(), INSTRUCTIONS[0], 64)))  # type: ignore[arg-type]
    assert "elements differ; first: Difference(" in text.splitlines()[-1]
    assert text.count("differ") == 1


def test_the_probe_says_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        numerics, "multiply_on_gpu", lambda gpu, instruction, a, b, c: chain(a, b, c)
    )
    findings = examine(SimpleNamespace(), INSTRUCTIONS[0], 64)  # type: ignore[arg-type]
    assert findings.how is None
    head = next(iter(numerics.lines(findings)))
    assert head.endswith("it adds 1 products at once; tensor cores add 4 or more")


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda row: row.name)
def test_the_model_is_the_chip(instruction: Instruction) -> None:
    """Bit for bit, on 10⁵ matrices: as determined here, and as the shipped model has it."""
    gpu = Gpu.current()
    if instruction.scales and gpu.device.capability != 90:
        pytest.skip("wgmma is of compute capability 9.0")
    findings = examine(gpu, instruction, 100_000)
    text = "\n".join(numerics.lines(findings))
    assert findings.how is not None, text
    assert not any(row.differing for row in findings.agreement), text
    try:
        shipped = getattr(model_of(gpu.device.name).accumulation, instruction.shape.element)
    except DeviceError:
        pytest.skip(f"no model of {gpu.device.name} is shipped")
    assert findings.how == shipped


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda row: row.name)
def test_an_instruction_multiplies_whole_matrices(instruction: Instruction) -> None:
    """Every element in its place: integers that any accumulation adds exactly."""
    gpu = Gpu.current()
    if instruction.scales and gpu.device.capability != 90:
        pytest.skip("wgmma is of compute capability 9.0")
    shape, random = instruction.shape, np.random.default_rng(11)
    dtype, single = (np.int8, np.int32) if shape.element == "int8" else (np.float32, np.float32)
    if shape.element == "float16":
        dtype = np.float16
    a = random.integers(-8, 9, (5, shape.m, shape.k)).astype(dtype)
    b = random.integers(-8, 9, (5, shape.k, shape.n)).astype(dtype)
    c = random.integers(-999, 1000, (5, shape.m, shape.n)).astype(single)
    found = partial(multiply_on_gpu, gpu, instruction)(a, b, c)
    np.testing.assert_array_equal(found, a.astype(float) @ b.astype(float) + c)


def test_without_a_gpu_it_says_so() -> None:
    if not isinstance(find(), Absent):
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="nothing to probe"):
        Gpu.current()
