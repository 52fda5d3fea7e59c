"""Records of searches that took no time."""

from typing import Any

from mixpert_py.tuner.tuning_record import TuningRecord, record
from tests.tuner.table_program import TableProgram, tune

LADDER = (("native",), ("int8x6",), ("int8x3",))
A, B, C = "m:f/matmul~a1#0", "m:f/matmul~b2#0", "m:g/dot~c3#0"


def small(budget: float = 1e-4, **options: Any) -> TuningRecord:
    """Three operators: one lowered twice, one once, one not at all because the program fails."""
    program = TableProgram(
        {
            A: {"native": 3.0, "int8x6": 2.0, "int8x3": 1.0},
            B: {"native": 2.0, "int8x6": 1.5, "int8x3": 1.0},
            C: {"native": 1.0, "int8x6": 0.5, "int8x3": 0.2},
        },
        {A: {"int8x6": 1e-7, "int8x3": 1e-5}, B: {"int8x6": 2e-7, "int8x3": 1e-3}},
        failing={C: "int8x6"},
        overhead=1.0,
    )
    search = {"search": "greedy", "noise": 0.0, **options}
    return record(tune(program, program.operators(), [(A, B)], LADDER, budget, **search))


def many(count: int) -> TuningRecord:
    """So many operators, all alike; none: a program without any."""
    sites = [f"m:f/matmul~{number:x}#0" for number in range(count)]
    program = TableProgram(
        {site: {"native": 1.0, "int8x6": 0.5, "int8x3": 0.2} for site in sites},
        {site: {"int8x6": 1e-8, "int8x3": 1e-7} for site in sites},
    )
    return record(tune(program, program.operators(), [], LADDER, 1e-4, noise=0.0))
