"""`mixpert bench gemm`: a suite measured section by section, into a file and a table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import families, loops, targets, vendor
from mixpert_py.bench.gemm import sizes as gemm
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.result import Result
from mixpert_py.bench.gemm.sizes import Section, Shape
from mixpert_py.errors import PlanError
from mixpert_py.runtime.schemes import get


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; an empty tuple stands for the suite's own."""

    suite: str
    shapes: tuple[Shape, ...] = ()
    schemes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    error_size: int = gemm.ERROR_SIZE
    samples: int = 20


def check(options: Options) -> None:
    """Raise PlanError where a scheme, a mode or a family is none."""
    for name in options.schemes:
        get(name)
    for word, names, known in (
        ("mode", options.modes, vendor.MODES),
        ("family", options.families, gemm.KNOWN),
    ):
        for name in names:
            if name not in known:
                raise PlanError(f"unknown {word} {name!r}; known: {', '.join(known)}")


def saved_path(suite: str) -> Path:
    """The file of the results that the pages are made of."""
    return machine.RESULTS / ("gemm.json" if suite == "sizes" else "gemm-targets.json")


def run(options: Options, path: Path | None, only: Collection[str], resume: bool) -> int:
    """Measure on the current GPU, write, print; the exit code. Raises DeviceError without one."""
    cupy = machine.gpu()
    bench, missing = gemm.standard(
        cupy, options.samples, options.schemes or gemm.SCHEMES, options.modes or tuple(vendor.MODES)
    )
    sections = chosen(bench, options)
    if "list" in only:
        click.echo("\n".join(sections))
        return 0
    for word in only:
        if not any(name.startswith(word) for name in sections):
            raise PlanError(f"unknown section {word!r}; `--only list` names them")
    if only:
        sections = {name: s for name, s in sections.items() if name.startswith(tuple(only))}
    facts = {**machine.machine(), **machine.device(cupy), "not offered": missing}
    result = Result(options.suite, facts, path, resume)
    result.run(sections, lambda line: click.echo(line, err=True))
    show(result.record["suite"], result.sections)
    for name, why in missing.items():
        click.echo(f"{name}: {why}")
    return 0 if result.sections.keys() >= sections.keys() else 1


def chosen(bench: gemm.Bench, options: Options) -> Mapping[str, Section]:
    """The sections of a suite, by name."""
    if options.suite == "targets":
        return targets.sections(bench)
    shapes = options.shapes or tuple((n, n, n) for n in gemm.SIZES)
    names = options.families or tuple(gemm.KNOWN)
    size = options.error_size
    is_whole = not (options.shapes or options.families)
    return {
        **({loops.SECTION: lambda: loops.measure(bench.xp)} if is_whole else {}),
        **gemm.sections(bench, shapes, names, size),
        **families.sections(bench, names, size),
    }


def show(suite: str, sections: Mapping[str, list[dict[str, object]]]) -> None:
    """Print the tables of a suite."""
    rows = {
        kind: [row for name, found in sections.items() if name.startswith(kind) for row in found]
        for kind in ("speed", "accuracy", "families")
    }
    if suite == "targets":
        rows = {"targets": [row for found in sections.values() for row in found]}
        lines = gemm_tables.target_rows(rows["targets"])
        for line, row in zip(lines, rows["targets"], strict=True):
            line.append(str(row["detail"]) if row["measured"] else "")
        gemm_tables.show((*gemm_tables.TARGETS, "how"), lines)
        return
    gemm_tables.show(gemm_tables.SPEED, gemm_tables.speed_rows(rows["speed"]))
    gemm_tables.show(gemm_tables.ACCURACY, gemm_tables.accuracy_rows(rows["accuracy"]))
    if loops.SECTION in sections:
        gemm_tables.show(loops.COLUMNS, loops.table(sections[loops.SECTION]))
    if rows["families"]:
        gemm_tables.show(*gemm_tables.families(rows["families"]))
