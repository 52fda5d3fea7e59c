"""The parts of the pages that are made from the results of `mixpert bench gemm`."""

from pathlib import Path

from mixpert_py.bench import machine
from mixpert_py.bench.contract import LARGEST, ROUNDINGS
from mixpert_py.bench.gemm import pictures, staircase
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.families import rows_of, worst
from mixpert_py.bench.gemm.plane import Sections, cubes, is_judged, sizes
from mixpert_py.bench.gemm.result import read
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.bench.pictures import embedded

FILES = {"sizes": "gemm.json", "targets": "gemm-targets.json"}
MADE = (
    "Measured by `mixpert bench gemm --save`, put here by `mixpert bench readme --into README.md`."
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
    return f"{shown}\n{speed_table(sections)}\n\n{text}. {where}\n{MADE}\n"


def families_markdown(found: Record) -> str:
    """A table with a row for each family, what its columns mean, and where they were measured."""
    rows = rows_of(found["sections"])
    draws = max(row["draws"] for row in rows)
    table = gemm_tables.markdown(*gemm_tables.families(rows))
    return f"{table}\n\n{JUDGED.format(draws=draws)} {machine_text(found['machine'])}\n"


def targets_markdown(found: Record) -> str:
    """A table with a row for each target, and where they were measured."""
    rows = [row for rows in found["sections"].values() for row in rows]
    table = gemm_tables.markdown(gemm_tables.TARGETS, gemm_tables.target_rows(rows))
    return f"{table}\n\n{machine_text(found['machine'])}\n"


def speed_table(sections: Sections) -> str:
    """Contenders by sizes; where errors were judged, that at the largest size up to 8192, the
    grades, and where families were judged beside the vendor, the worst of them.
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
        if rows_of(sections):
            columns.append(WORST)
            over = worst(sections)
            for row in rows:
                row.append(gemm_tables.times(over.get(row[0])))
    return gemm_tables.markdown(columns, rows)


def machine_text(facts: Record) -> str:
    """A sentence that says where and when a result was measured."""
    text = (
        f"One {facts['device']}, driver for CUDA {facts['driver']}, CUDA {facts['cuda']}, "
        f"cuBLAS {facts['cublas']}, CuPy {facts['cupy']}, {facts['date']}."
    )
    missing = [f"{name} is {why}" for name, why in facts.get("not offered", {}).items()]
    return " ".join([text, *(f"{line}." for line in missing)])


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
