"""The parts of the README that are made from the results of `mixpert bench gemm`."""

import re
from collections.abc import Mapping
from pathlib import Path

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.plane import Sections, cubes, is_judged, sizes
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
        pictures = f"![Speed over size]({PICTURES}/gemm-speed.svg)\n"
        said = (
            "TFLOP/s of n³ products (and how many times cuBLAS FP32's speed), packing and casts "
            "included"
        )
        if is_judged(sections):
            pictures += f"![Accuracy against speed]({PICTURES}/gemm-accuracy.svg)\n"
            said += (
                "; relative Frobenius error on normal data; the grades held on every family of "
                "operands"
            )
        made["gemm"] = f"{pictures}\n{speed_table(sections)}\n\n{said}. {where}\n{MADE}\n"
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
    """Contenders by sizes; where errors were judged, that at the largest size up to 8192, and the
    grades.
    """
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
    columns = ["", *(f"{size}³" for size in found)]
    rows = [[name, *(_cell(at[size].get(name)) for size in found)] for name in names]
    if is_judged(sections):
        columns += [f"error at {middle}³", "grades"]
        for row in rows:
            error = errors.get(row[0])
            row += [f"{error:.1e}" if error else "–", held.get(row[0], "–") or "–"]
    return gemm_tables.markdown(columns, rows)


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
