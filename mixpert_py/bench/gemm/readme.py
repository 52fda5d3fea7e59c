"""The parts of the pages that are made from the results of `mixpert bench gemm`."""

import math
from collections.abc import Sequence
from pathlib import Path

from mixpert_py.bench import machine
from mixpert_py.bench.contract import LARGEST, ROUNDINGS
from mixpert_py.bench.gemm import loops, pictures, staircase
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.families import KIND, rows_of, worst
from mixpert_py.bench.gemm.plane import Sections, cubes, is_judged, sizes
from mixpert_py.bench.gemm.result import read
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.bench.pictures import embedded

FILES = {"sizes": "gemm.json", "targets": "gemm-targets.json"}
MADE = "Measured by `mixpert bench gemm --save`."
# The README's rows: the vendor's products, and the levels that a tuning on a GPU may choose.
LEVELS = (
    *("cuBLAS FP64", "cuBLAS FP32", "cuBLAS TF32"),
    *("int8x10", "faithful", loops.ROW, "int8x6", "int8x3"),
)
WORST = "worst of all families over cuBLAS FP32"
FLOOR = f"{ROUNDINGS:g} u ‖√((A∘A)(B∘B))‖F / ‖C‖F, u = 2^-24, where that is more"
JUDGED = (
    "‖E‖F / ‖C‖F against FP64, and in brackets the largest |E| / (|A||B|) in u = 2^-24: each the "
    "worst of {draws} draws of operands. Terms: how many count in a sum, (Σ|ab|)² / Σ(ab)², the "
    f"median of all. Floor: {ROUNDINGS:g} u ‖√((A∘A)(B∘B))‖F / ‖C‖F, about what rounding the "
    "operands to 22 bits leaves. Allowed is cuBLAS FP32's error on the same operands, or where "
    f"that is more the floor, and of the largest {LARGEST:g} u."
)


def saved(suite: str, folder: Path = machine.RESULTS) -> Record | None:
    """The saved result of a suite; None without one."""
    path = folder / FILES[suite]
    return read(path) if path.exists() else None


def sizes_part(docs: str) -> str | None:
    """The part on speeds over sizes, from the saved result. docs: the pictures' folder."""
    found = saved("sizes")
    return sizes_markdown(found, docs) if found and sizes(found["sections"]) else None


def levels_part() -> str | None:
    """The README's table of levels, from the saved result."""
    found = saved("sizes")
    judged = found and sizes(found["sections"]) and rows_of(found["sections"])
    return levels_markdown(found) if found and judged else None


def staircase_part(docs: str) -> str | None:
    """The staircase of accuracy and speed. docs: the pictures' folder."""
    found = saved("sizes")
    if found is None or not staircase.is_known(found["sections"]):
        return None
    said = staircase.alternative(found["sections"], found["machine"]["device"])
    return embedded(staircase.NAME, said, docs)


def families_part() -> str | None:
    """The part that compares `faithful` with the vendor's FP32 product on every family."""
    found = saved("sizes")
    return families_markdown(found) if found and rows_of(found["sections"]) else None


def targets_part() -> str | None:
    """The part on targets and what was measured of them."""
    found = saved("targets")
    return targets_markdown(found) if found else None


def draw(folder: Path) -> None:
    """Draw the pictures of the saved result into a folder."""
    found = saved("sizes")
    if found and sizes(found["sections"]):
        pictures.draw(found["sections"], found["machine"]["device"], folder)


def sizes_markdown(found: Record, docs: str) -> str:
    """A result's pictures, its table, and where it was measured."""
    sections = found["sections"]
    device = found["machine"]["device"]
    shown = embedded(pictures.SPEED, pictures.speed_alternative(sections, device), docs)
    text = (
        "TFLOP/s of n³ products (and how many times cuBLAS FP32's speed), packing and casts "
        "included"
    )
    if is_judged(sections):
        shown += embedded(pictures.PLANE, pictures.plane_alternative(sections, device), docs)
        text += (
            "; relative Frobenius error on normal data; the grades held on every family of operands"
        )
        if rows_of(sections):
            text += f"; the worst error of all families over that of cuBLAS FP32, or over {FLOOR}"
    where = machine_text(found["machine"])
    parts = [f"{shown}\n{speed_table(sections)}\n\n{text}. {where}\n{MADE}\n"]
    if rows := sections.get(loops.SECTION):
        table = gemm_tables.markdown(loops.COLUMNS, loops.table(rows))
        parts.append(f"{table}\n\nThe same machine, by wall clock: a step of a loop, medians.\n")
    return "\n".join(parts)


def levels_markdown(found: Record) -> str:
    """A table of LEVELS: speeds by size, the error on normal data and on the worst family of
    operands. It needs a result in which families were judged.
    """
    sections = found["sections"]
    middle, errors = _middle(sections), _errors(sections)
    at = {size: rows for size, rows in _speeds(sections).items() if size <= middle}
    size = max(row["n"] for row in rows_of(sections))
    judged = [*cubes(sections, "accuracy", size), *cubes(sections, KIND, size)]
    families = {row["family"] for row in judged}
    largest = _worst_families(judged)
    looped = loops.cells(sections.get(loops.SECTION, ()))
    rows = [
        [name, *(looped.get(size, "–") for size in at), "", ""]
        if name == loops.ROW
        else [
            name,
            *(_cell(rows.get(name)) for rows in at.values()),
            f"{errors[name]:.1e}" if errors.get(name) else "–",
            largest.get(name, "–"),
        ]
        for name in LEVELS
    ]
    by_size = [f"{size}³" for size in at]
    columns = ["", *by_size, f"error at {middle}³", f"worst family at {size}³"]
    return (
        f"{gemm_tables.markdown(columns, rows)}\n\n"
        "TFLOP/s of n³ products (and how many times cuBLAS FP32's speed), packing and casts "
        "included, on the device alone, and in a loop `x = a @ x` by wall clock; relative "
        "Frobenius error against FP64 on normal data, and the largest on "
        f"{len(families)} families of operands. {_where(found['machine'])}\n"
    )


def families_markdown(found: Record) -> str:
    """A table with a row for each family, what its columns mean, and where they were measured."""
    rows = rows_of(found["sections"])
    draws = max(row["draws"] for row in rows)
    table = gemm_tables.markdown(*gemm_tables.families(rows))
    return f"{table}\n\n{JUDGED.format(draws=draws)} {_where(found['machine'])}\n"


def targets_markdown(found: Record) -> str:
    """A table with a row for each target, and where they were measured."""
    rows = [row for rows in found["sections"].values() for row in rows]
    table = gemm_tables.markdown(gemm_tables.TARGETS, gemm_tables.target_rows(rows))
    return f"{table}\n\n{_where(found['machine'])}\n"


def speed_table(sections: Sections) -> str:
    """Contenders by sizes; where errors were judged, that at the largest size up to 8192, the
    grades, and where families were judged beside the vendor, the worst of them.
    """
    at, middle, errors = _speeds(sections), _middle(sections), _errors(sections)
    names = dict.fromkeys(name for rows in at.values() for name in rows)
    held = _grades(sections)
    columns = ["", *(f"{size}³" for size in at)]
    rows = [[name, *(_cell(rows.get(name)) for rows in at.values())] for name in names]
    if is_judged(sections):
        columns += [f"error at {middle}³", "grades"]
        for row in rows:
            error = errors.get(row[0])
            row += [f"{error:.1e}" if error else "–", held.get(row[0], "–") or "–"]
        if rows_of(sections):
            columns.append(WORST)
            over = worst(sections)
            for row in rows:
                row.append(gemm_tables.times(over.get(row[0])))
    return gemm_tables.markdown(columns, rows)


def machine_text(facts: Record) -> str:
    """Sentences that say where and when a result was measured, and what was not offered there."""
    missing = [f"{name} is {why}" for name, why in facts.get("not offered", {}).items()]
    return " ".join([_where(facts), *(f"{line}." for line in missing)])


def _where(facts: Record) -> str:
    return (
        f"One {facts['device']}, driver for CUDA {facts['driver']}, CUDA {facts['cuda']}, "
        f"cuBLAS {facts['cublas']}, CuPy {facts['cupy']}, {facts['date']}."
    )


def _speeds(sections: Sections) -> dict[int, dict[str, Record]]:
    """Size → contender → its row of times at size³."""
    return {
        size: {row["name"]: row for row in cubes(sections, "speed", size)}
        for size in sizes(sections)
    }


def _middle(sections: Sections) -> int:
    """The size of which errors are shown: the largest up to 8192."""
    found = sizes(sections)
    return max((size for size in found if size <= 8192), default=max(found))


def _errors(sections: Sections) -> dict[str, float]:
    """Contender → its Frobenius error on normal data at the middle size."""
    return {
        row["name"]: float(row["frobenius"])
        for row in cubes(sections, "accuracy", _middle(sections))
        if row["family"] == "normal"
    }


def _worst_families(judged: Sequence[Record]) -> dict[str, str]:
    """Contender → its largest Frobenius error of all rows, and the family of operands.

    A contender without an error, as the reference itself is, is left out.
    """
    found: dict[str, tuple[float, str]] = {}
    for row in judged:
        error = float(row["frobenius"])
        worst = (math.inf if math.isnan(error) else error, row["family"])
        found[row["name"]] = max(found.get(row["name"], (0.0, "")), worst, key=lambda it: it[0])
    return {name: f"{error:.1e} ({family})" for name, (error, family) in found.items() if error}


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
