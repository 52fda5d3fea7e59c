"""The parts of the README that are made from the results of `mixpert bench gemm`."""

import re
from collections.abc import Mapping
from pathlib import Path

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.plane import Sections, cubes, sizes
from mixpert_py.bench.gemm.result import read
from mixpert_py.bench.gemm.target import Record
from mixpert_py.errors import MixPertError

FILES = {"sizes": "gemm.json", "targets": "gemm-targets.json"}
PICTURES = "docs"
MADE = (
    "Measured by `mixpert bench gemm --save`, put here by `mixpert bench readme --into README.md`."
)
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def results(folder: Path = machine.RESULTS) -> dict[str, Record]:
    """The results that are kept, by suite."""
    return {suite: read(folder / name) for suite, name in FILES.items() if (folder / name).exists()}


def parts(found: Mapping[str, Record]) -> dict[str, str]:
    """Markdown by the name of the part: `gemm` of the sizes, `targets` of the targets."""
    made = {}
    if "sizes" in found:
        sections, where = found["sizes"]["sections"], machine_text(found["sizes"]["machine"])
        made["gemm"] = (
            f"![Speed over size]({PICTURES}/gemm-speed.svg)\n"
            f"![Accuracy against speed]({PICTURES}/gemm-accuracy.svg)\n\n"
            f"{speed_table(sections)}\n\n"
            f"TFLOP/s of n³ products (and how many times cuBLAS FP32's speed), packing and casts "
            f"included; relative Frobenius error on normal data; the grades held on every family "
            f"of operands. {where}\n{MADE}\n"
        )
    if "targets" in found:
        rows = [row for rows in found["targets"]["sections"].values() for row in rows]
        table = gemm_tables.markdown(gemm_tables.TARGETS, gemm_tables.target_rows(rows))
        made["targets"] = f"{table}\n\n{machine_text(found['targets']['machine'])}\n"
    return made


def updated(text: str, made: Mapping[str, str]) -> str:
    """The README with its marked parts replaced. Raises MixPertError where a part has no place."""
    missing = set(made) - {name for _, name, _ in MARKED.findall(text)}
    if missing:
        raise MixPertError(f"no <!-- bench {min(missing)} --> … <!-- end --> to put a part into")
    return MARKED.sub(
        lambda match: f"{match[1]}{made[match[2]]}{match[3]}" if match[2] in made else match[0],
        text,
    )


def speed_table(sections: Sections) -> str:
    """Contenders by sizes, the error at the largest size up to 8192, and the grades."""
    found = sizes(sections)
    middle = max((size for size in found if size <= 8192), default=max(found))
    errors = {
        row["name"]: float(row["frobenius"])
        for row in cubes(sections, "accuracy", middle)
        if row["family"] == "normal"
    }
    at = {size: {row["name"]: row for row in cubes(sections, "speed", size)} for size in found}
    names = dict.fromkeys(name for rows in at.values() for name in rows)
    held = _grades(sections)
    columns = ["", *(f"{size}³" for size in found), f"error at {middle}³", "grades"]
    return gemm_tables.markdown(
        columns,
        [
            [
                name,
                *(_cell(at[size].get(name)) for size in found),
                f"{errors[name]:.1e}" if errors.get(name) else "–",
                held.get(name, "–") or "–",
            ]
            for name in names
        ],
    )


def machine_text(facts: Record) -> str:
    """Where a result was measured, and when."""
    said = (
        f"One {facts['device']}, driver for CUDA {facts['driver']}, CUDA {facts['cuda']}, "
        f"cuBLAS {facts['cublas']}, CuPy {facts['cupy']}, {facts['date']}."
    )
    missing = [f"{name} is {why}" for name, why in facts.get("not offered", {}).items()]
    return " ".join([said, *(f"{line}." for line in missing)])


def _cell(row: Record | None) -> str:
    if row is None:
        return "–"
    times = f" ({row['speedup']['median']:.1f}×)" if "speedup" in row else ""
    native = "" if row.get("ran", row["name"]) == row["name"] else " native"
    return f"{row['tflops']:.0f}{times}{native}"


def _grades(sections: Sections) -> dict[str, str]:
    """The grades that a contender earned wherever it was judged."""
    held: dict[str, set[str]] = {}
    for name, rows in sections.items():
        if name.startswith("accuracy"):
            for row in rows:
                earned = set(row.get("grade", ""))
                held[row["name"]] = held.get(row["name"], earned) & earned
    return {name: "".join(sorted(grades)) for name, grades in held.items()}
