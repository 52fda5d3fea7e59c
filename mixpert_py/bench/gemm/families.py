"""Compares the default's errors with the vendor's FP32 product's, for each family of operands."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from statistics import median

from mixpert_py.bench.contract import Errors, Sums, errors
from mixpert_py.bench.gemm import ours
from mixpert_py.bench.gemm.plane import Sections
from mixpert_py.bench.gemm.sizes import BASE, Bench, Section, error_line, plain
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.bench.judgement import Exact, in_json

KIND = "families"  # what the names of such sections begin with
JUDGED = (BASE, "faithful", "fp16x3", "bf16x6", "int8x6")
DRAWS = 3


def sections(bench: Bench, families: Sequence[str], size: int) -> dict[str, Section]:
    """A section for each family at size³."""
    shape = (size, size, size)
    return {
        f"{KIND} {family} {plain(shape)}": partial(section, bench, family, *shape)
        for family in families
    }


def section(bench: Bench, family: str, m: int, k: int, n: int, draws: int = DRAWS) -> list[Record]:
    """A row for each contender: its largest errors over draws, absolute and over what is allowed.

    Every contender multiplies the same operands, and each draw is compared by itself. Raises
    KeyError where the vendor's FP32 product is not among the contenders.
    """
    vendor = bench.contenders[BASE]
    judged = [bench.contenders[name] for name in JUDGED if name in bench.contenders]
    found: dict[str, list[tuple[Errors, Errors]]] = {one.name: [] for one in judged}
    ran: dict[str, dict[str, None]] = {one.name: {} for one in judged}
    failed: dict[str, str] = {}
    sums = []
    for draw in range(draws):
        a, b = bench.operands(m, k, n, family, draw)
        exact = Exact.of(a, b)
        sums.append(Sums.of(exact))
        allowed = errors(exact, vendor.prepare(a, b).whole())
        for one in judged:
            try:
                own = errors(exact, one.prepare(a, b).whole()) if one is not vendor else allowed
                found[one.name].append((own, own.over(allowed, sums[-1].floor)))
                if one.kind == "scheme":
                    ran[one.name][ours.ran(a, b, one.name)] = None
            except Exception as error:  # whatever one of them meets, the others are judged
                failed[one.name] = error_line(error)
    middle = Sums(median(one.terms for one in sums), median(one.floor for one in sums))
    rows = []
    for one in judged:
        row: Record = {"name": one.name, "kind": one.kind, "family": family}
        row |= {"m": m, "k": k, "n": n, "draws": draws}
        row |= in_json(asdict(middle))
        rows.append(row)
        if one.name in failed:
            row["failed"] = failed[one.name]
            continue
        own, over = (_largest(pair) for pair in zip(*found[one.name], strict=True))
        row |= in_json(asdict(own))
        row |= {f"{name}_over": ratio for name, ratio in in_json(asdict(over)).items()}
        if one.kind == "scheme":
            row["ran"] = list(ran[one.name])
    return rows


def rows_of(sections: Sections) -> list[Record]:
    """The rows of all sections of families, in their order."""
    return [row for name, rows in sections.items() if name.startswith(KIND) for row in rows]


def worst(sections: Sections) -> Mapping[str, float]:
    """Contender → its worst Frobenius error of all families, over the vendor's FP32 product's.

    Where the vendor's error is less than the floor (see contract.py), over the floor. A contender
    that failed on a family is left out.
    """
    rows = rows_of(sections)
    failed = {row["name"] for row in rows if "failed" in row}
    found: dict[str, float] = {}
    for row in rows:
        name = row["name"]
        if name not in failed:
            found[name] = max(found.get(name, 0.0), float(row["frobenius_over"]))
    return found


def _largest(found: Sequence[Errors]) -> Errors:
    return Errors(max(e.frobenius for e in found), max(e.componentwise for e in found))
