"""The probe of numerics: on chips that are simulated, and on the GPU that is here."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.gpu.device import Absent, find
from mixpert_py.runtime.model.device_model import Accumulations
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.model.numerics import (
    Accumulation,
    AnyAccumulation,
    Array,
    accumulate,
)
from mixpert_py.runtime.probes import numerics
from mixpert_py.runtime.probes.gpu import Gpu
from mixpert_py.runtime.probes.numerics import (
    INSTRUCTIONS,
    Instruction,
    Multiply,
    Shape,
    determine,
    multiply_on_gpu,
    same,
)
from tests.runtime.probes.random_matrices import FLOATS, INTEGERS

SHAPES = {
    "float16": Shape(16, 8, 16, "float16"),
    "bfloat16": Shape(16, 8, 16, "bfloat16"),
    "tf32": Shape(16, 8, 8, "tf32"),
    "int8": Shape(16, 8, 32, "int8"),
}
KNOWN = [
    *(Accumulation(8, bits) for bits in (23, 24, 25, 26, 30, 40)),
    *(Accumulation(4, 24, floor) for floor in (-148, -133, -126)),
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


@pytest.mark.parametrize("how", KNOWN, ids=repr)
@pytest.mark.parametrize("element", ["float16", "bfloat16", "tf32"])
def test_every_feature_is_found(how: Accumulation, element: str) -> None:
    if element == "float16" and how.floor is not None:
        pytest.skip("half precision has no products that small")
    assert determine(simulated(how), SHAPES[element]) == how


def chain(a: Array, b: Array, c: Array) -> Array:
    """FP32 multiply-adds, one after the other, as a CUDA core makes them."""
    total = c.astype(np.float32)
    for position in range(a.shape[2]):
        products = a[:, :, position, None].astype(float) * b[:, position, None, :].astype(float)
        total = (total + products).astype(np.float32)
    return total


def nearest(a: Array, b: Array, c: Array) -> Array:
    """A sum that is rounded as IEEE 754 asks."""
    return (c + a.astype(float) @ b.astype(float)).astype(np.float32)


UNKNOWN: dict[str, Multiply] = {
    "negative zero": lambda a, b, c: np.where(
        np.signbit(c) & (c == 0), c, accumulate(a, b, c, Accumulation(16, 25))
    ),
    "flushed": lambda a, b, c: accumulate(
        a, b, np.where(np.abs(c) < 2.0**-126, np.float32(0), c), Accumulation(16, 25)
    ),
    "all bits": nearest,
    "saturates": lambda a, b, c: np.full_like(c, (1 << 31) - 1),
}


@pytest.mark.parametrize("chip", UNKNOWN)
def test_what_the_model_does_not_know_is_refused(chip: str) -> None:
    with pytest.raises(DeviceError, match="none of what the model knows"):
        determine(UNKNOWN[chip], SHAPES["int8" if chip == "saturates" else "float16"])


def differing(multiply: Multiply, how: AnyAccumulation, shape: Shape, count: int) -> list[str]:
    """The families of random matrices on which an instruction does not do what the model says."""
    families = INTEGERS if shape.element == "int8" else FLOATS
    found = []
    for name, family in families.items():
        random = np.random.default_rng(20210210)
        a, b, c = family(random, count, shape)
        if not same(multiply(a, b, c), accumulate(a, b, c, how)).all():
            found.append(name)
    return found


def like_an_h200(gpu: Any, instruction: Instruction, a: Array, b: Array, c: Array) -> Array:
    how = dict(published("h200"))[instruction.shape.element]
    return accumulate(a, b, c, how)


@pytest.mark.parametrize(("capability", "count"), [(80, 4), (90, 8)])
def test_the_probe(capability: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "multiply_on_gpu", like_an_h200)
    gpu = SimpleNamespace(device=SimpleNamespace(capability=capability))
    found = numerics.numerics(gpu)  # type: ignore[arg-type]
    table = msgspec.convert(found.tables["accumulation"], Accumulations)
    assert table == model_of("h200").accumulation
    heads = found.text.splitlines()
    assert len(heads) == count
    assert heads[0] == "mma.sync m16n8k16 float16: 16 products at once, 25 fraction bits"
    assert heads[1].endswith(", floor -133")
    assert heads[3] == "mma.sync m16n8k32 int8: exact, wraps"


def test_the_probe_says_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        numerics, "multiply_on_gpu", lambda gpu, instruction, a, b, c: chain(a, b, c)
    )
    gpu = SimpleNamespace(device=SimpleNamespace(capability=80))
    head = numerics.numerics(gpu).text.splitlines()[0]  # type: ignore[arg-type]
    assert head.endswith("it adds 1 products at once; tensor cores add 4 or more")


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda row: row.name)
def test_the_model_is_the_chip(instruction: Instruction) -> None:
    """Bit for bit, on 10⁴ matrices of each family; the shipped model says the same."""
    gpu = Gpu.current()
    if instruction.scales and gpu.device.capability != 90:
        pytest.skip("wgmma is of compute capability 9.0")
    multiply = partial(multiply_on_gpu, gpu, instruction)
    how = determine(multiply, instruction.shape)
    assert differing(multiply, how, instruction.shape, 10_000) == []
    try:
        shipped = getattr(model_of(gpu.device.name).accumulation, instruction.shape.element)
    except DeviceError:
        pytest.skip(f"no model of {gpu.device.name} is shipped")
    assert how == shipped


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
