"""The README's table of measurements, made from the committed results."""

import json
from typing import Any

from mixpert_py.bench.machine import RESULTS


def table() -> str:
    """The table in Markdown, one row a benchmark."""
    rows = ["| what | native | MixPert-Py | |", "|---|---|---|---|"]
    program = _load("cholesky")
    before, after = (program["rows"][name]["median"] for name in ("native", "plan"))
    rows.append(
        f"| `mixpert bench program {program['program']}` (float64, budget 1e-5, "
        f"{_lowered(program)}) | {before:.2f} s | {after:.2f} s | "
        f"{program['speedup']['median']:.2f}× as fast "
        f"({program['speedup']['lower']:.2f}–{program['speedup']['upper']:.2f}) |"
    )
    calls = _load("dispatch")
    native, ours = list(calls["rows"].values())[:2]
    rows.append(
        f"| `mixpert bench dispatch` (8 × 8, no plan) | {native['median']:.2f} µs | "
        f"{ours['median']:.2f} µs | {calls['overhead']['np.matmul']:.2f} µs more |"
    )
    emulated = _load("reference")
    native, ours = list(emulated["rows"].values())[:2]
    rows.append(
        f"| `mixpert bench reference` (int8x6 emulated in NumPy, {emulated['size']}³ float32) | "
        f"{1e3 * native['median']:.0f} ms, error {native['error']:.1e} | "
        f"{1e3 * ours['median']:.0f} ms, error {ours['error']:.1e} | "
        f"{ours['ratio']:.1f}× as long |"
    )
    return "\n".join(rows)


def where() -> str:
    """The machine of the measurements, in words."""
    machine = _load("cholesky")["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"NumPy {machine['numpy']}, {machine['date']}"
    )


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return loaded


def _lowered(program: dict[str, Any]) -> str:
    schemes = list(program["schemes"].values())
    return f"{sum(s != 'native' for s in schemes)} of {len(schemes)} products in float32"


if __name__ == "__main__":
    print(table())
    print()
    print(where())
