"""What is measured without a GPU, as a table: a tuned program, a call, the reference backend."""

import json
from pathlib import Path
from typing import Any

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables

NAMES = ("cholesky", "dispatch", "reference")
COLUMNS = ("what", "native", "MixPert-Py", "")

Record = dict[str, Any]


def part(folder: Path = machine.RESULTS) -> str | None:
    """A row a benchmark, of the kept results; None where one of them is missing."""
    paths = [folder / f"{name}.json" for name in NAMES]
    if not all(path.exists() for path in paths):
        return None
    program, calls, emulated = (json.loads(path.read_text("utf-8")) for path in paths)
    rows = [_program(program), _dispatch(calls), _reference(emulated)]
    facts = program["machine"]
    return (
        f"{tables.markdown(COLUMNS, rows)}\n\n"
        f"Medians of runs in turn, quartiles in brackets, on one machine ({facts['cpu']}, "
        f"{facts['cores']} cores, Python {facts['python']}, NumPy {facts['numpy']}, "
        f"{facts['date']}): `mixpert bench … --save`, the first after "
        f"`mixpert tune {program['program']} --error 1e-5`.\n"
    )


def _program(program: Record) -> list[str]:
    before, after = (program["rows"][name]["median"] for name in ("native", "plan"))
    schemes = list(program["schemes"].values())
    lowered = f"{sum(s != 'native' for s in schemes)} of {len(schemes)} products in float32"
    speedup = program["speedup"]
    return [
        f"`mixpert bench program {program['program']}` (float64, budget 1e-5, {lowered})",
        f"{before:.2f} s",
        f"{after:.2f} s",
        f"{speedup['median']:.2f}× as fast ({speedup['lower']:.2f}–{speedup['upper']:.2f})",
    ]


def _dispatch(calls: Record) -> list[str]:
    native, ours = list(calls["rows"].values())[:2]
    return [
        "`mixpert bench dispatch` (8 × 8, no plan)",
        f"{native['median']:.2f} µs",
        f"{ours['median']:.2f} µs",
        f"{calls['overhead']['np.matmul']:.2f} µs more",
    ]


def _reference(emulated: Record) -> list[str]:
    native, ours = list(emulated["rows"].values())[:2]
    return [
        f"`mixpert bench reference` (int8x6 emulated in NumPy, {emulated['size']}³ float32)",
        *(f"{1e3 * it['median']:.0f} ms, error {it['error']:.1e}" for it in (native, ours)),
        f"{ours['ratio']:.1f}× as long",
    ]
