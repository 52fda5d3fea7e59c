"""What is made of the cycles that kernels report."""

from itertools import count
from typing import Any

import pytest

from mixpert_py.runtime.model.device_model import Instruction, Rates
from mixpert_py.runtime.probes.instructions import Timer, instructions, timed
from mixpert_py.runtime.probes.specs import SUMS, largest_int8, specs
from tests.runtime.probes.fake_chip import CHAIN, CLOCK, INTERVAL, LATENCY, FakeChip


def test_one_instruction() -> None:
    chip: Any = FakeChip()
    spec = largest_int8(80)
    found = timed(chip, spec)
    assert found.name == "mma.sync m16n8k32 int8"
    assert found.latency == LATENCY
    assert found.chain == pytest.approx(CHAIN)
    assert found.interval == pytest.approx(INTERVAL)
    per_cycle = chip.multiprocessors * 2 * 16 * 8 * 32 / INTERVAL
    assert found.rate == pytest.approx(per_cycle * CLOCK, rel=1e-3)


@pytest.mark.parametrize("first", [True, False])
def test_other_processes_on_the_chip_do_not_show(first: bool) -> None:
    chip: Any = FakeChip(disturbed=(bool(i % 2) != first for i in count()))
    found = timed(chip, largest_int8(80))
    assert (found.latency, found.chain) == (LATENCY, pytest.approx(CHAIN))
    assert found.interval == pytest.approx(INTERVAL)


def test_a_full_chip_is_kept_busy_as_long_as_asked() -> None:
    chip: Any = FakeChip()
    timer = Timer(chip, largest_int8(80))
    steps = timer.steps_of(2e-3)
    assert timer.elapsed(*timer.full, steps).seconds == pytest.approx(2e-3, rel=1e-2)


def test_a_chain_has_one_sum_and_a_full_chip_several() -> None:
    chip: Any = FakeChip()
    timer = Timer(chip, next(spec for spec in specs(80) if spec.name == "fma float32"))
    ran = []
    for grid, threads in ((1, timer.spec.group), timer.full):
        timer.launch(grid, threads, 1)
        ran.append(chip.constants["SUMS"])
    assert ran == [1, SUMS]


def test_the_tables_are_those_of_a_device_model() -> None:
    chip: Any = FakeChip()
    found = instructions(chip)
    rows = [Instruction(**row) for row in found.tables["instruction"]]
    assert [row.name for row in rows] == [spec.name for spec in specs(80)]
    rates = Rates(**found.tables["rates"])
    assert rates.int8 == max(row.rate or 0 for row in rows if row.name.endswith("int8"))
    assert rates.float32 == rows[0].rate
    assert len(found.text.splitlines()) == len(rows) + 1
    assert "mma.sync m16n8k32 int8" in found.text
