"""The tables and pictures of README.md and docs/measured.md, made from the kept results."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.bench import dispatch, float64, machine
from mixpert_py.bench.apps import readme as apps
from mixpert_py.bench.gemm import readme as gemm
from mixpert_py.bench.gemm import tables
from mixpert_py.errors import MixPertError

DOCS = "docs"  # the folder beside the README that holds the pictures, and the page of long tables
MEASURED = "measured.md"
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
WITHOUT_GPU = ("what", "native", "MixPert-Py", "")
GATES = ("gate", "on", "what was done", "what was found", "")

Record = dict[str, Any]


def parts(docs: str = DOCS) -> dict[str, str]:
    """The Markdown of every part whose results are kept, by the name of its mark.

    docs: the link to the folder of pictures. Raises MixPertError where no result is kept at all.
    """
    made = {name: part for name, make in PARTS.items() if (part := make(docs)) is not None}
    if not made:
        raise MixPertError("no results are kept; `mixpert bench gemm --save` makes them")
    return made


def update(readme: Path) -> None:
    """Put each part between its marks, in the README or in docs/measured.md beside it, and draw the
    pictures that the parts link to. Raises MixPertError, and changes nothing, where a part has no
    mark.
    """
    docs = readme.parent / DOCS
    pages = [page for page in (readme, docs / MEASURED) if page == readme or page.exists()]
    texts = {page: page.read_text("utf-8") for page in pages}
    made = {page: parts(os.path.relpath(docs, page.parent)) for page in pages}
    marked = {name for text in texts.values() for _, name, _ in MARKED.findall(text)}
    missing = made[readme].keys() - marked
    if missing:
        raise MixPertError(f"no <!-- bench {min(missing)} --> … <!-- end --> to put a part into")
    for draw in PICTURES:
        draw(docs)
    for page, text in texts.items():
        files.replace(page, filled(text, made[page]).encode())


def filled(text: str, made: Mapping[str, str]) -> str:
    """A page with the parts that were made between their marks."""
    return MARKED.sub(
        lambda match: f"{match[1]}{made[match[2]]}{match[3]}" if match[2] in made else match[0],
        text,
    )


def saved(name: str, folder: Path = machine.RESULTS) -> Record | None:
    """A kept result; None where there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found: Record = json.loads(path.read_text("utf-8"))
    return found


def written_table(name: str, folder: Path = machine.RESULTS) -> str | None:
    """The table that the script which measured a result has put into it."""
    found = saved(name, folder)
    if found is None:
        return None
    table = found["table"]
    return f"{tables.markdown(table['columns'], table['rows'])}\n\n{table['text']}\n"


def programs(folder: Path = machine.RESULTS) -> str | None:
    """The tables of small programs, of each machine that they are kept of."""
    found = [written_table(name, folder) for name in ("programs", "programs-gpu")]
    return "\n".join(table for table in found if table is not None) or None


def without_gpu(folder: Path = machine.RESULTS) -> str | None:
    """The table of what is measured on a processor: a tuned program, a call, the emulation."""
    program, calls, emulated = (
        saved(name, folder) for name in ("cholesky", "dispatch", "reference")
    )
    if program is None or calls is None or emulated is None:
        return None
    facts = program["machine"]
    rows = [_program_row(program), _dispatch_row(calls), _reference_row(emulated)]
    return (
        f"{tables.markdown(WITHOUT_GPU, rows)}\n\n"
        f"Medians of runs in turn, quartiles in brackets, on one machine ({facts['cpu']}, "
        f"{facts['cores']} cores, Python {facts['python']}, NumPy {facts['numpy']}, "
        f"{facts['date']}): each command with `--save`, the first after "
        f"`mixpert tune {program['program']} --error 1e-5`.\n"
    )


def _program_row(program: Record) -> list[str]:
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


def _dispatch_row(calls: Record) -> list[str]:
    native, ours = (calls["passing"][0][name]["median"] for name in ("native", "ours"))
    return [
        "`mixpert bench dispatch` (`a @ b`, 8 × 8, no plan)",
        f"{native:.2f} µs",
        f"{ours:.2f} µs",
        f"{ours - native:.2f} µs more",
    ]


def _levels() -> str | None:
    """The README's own table, and a sentence on programs beside it."""
    table, programs = gemm.levels_part(), apps.numpy_sentence()
    return table if table is None or programs is None else f"{table}\n{programs}"


def _float64(docs: str) -> str | None:
    found = saved("float64")
    return None if found is None else float64.markdown(found, docs)


def _draw_float64(folder: Path) -> None:
    found = saved("float64")
    if found is not None:
        float64.draw(found, folder)


def _calls() -> str | None:
    """The tables of what calls cost the host, of each machine that they are kept of."""
    found = [saved(name) for name in ("dispatch", "dispatch-gpu")]
    return "\n".join(dispatch.table(it) for it in found if it is not None) or None


def _reference_row(emulated: Record) -> list[str]:
    native, ours = list(emulated["rows"].values())[:2]
    return [
        "`python -m tests.measure.reference` "
        f"(int8x6 emulated in NumPy, {emulated['size']}³ float32)",
        *(f"{1e3 * it['median']:.0f} ms, error {it['error']:.1e}" for it in (native, ours)),
        f"{ours['ratio']:.1f}× as long",
    ]


def gates(folder: Path = machine.RESULTS) -> str | None:
    """The table of the gates that a release has to pass, as `tests/soak` keeps their verdicts."""
    found = saved("soak", folder)
    return None if found is None else gates_markdown(found)


def gates_markdown(verdicts: Mapping[str, Record]) -> str:
    """A row for each gate and machine, and where and when they ran."""
    rows = [
        [
            f"`{verdict['gate']}`",
            verdict["machine"].get("device", "the host"),
            verdict["did"],
            verdict["found"],
            "passed" if verdict["passed"] else "**failed**",
        ]
        for verdict in verdicts.values()
    ]
    machines = [verdict["machine"] for verdict in verdicts.values()]
    hosts = dict.fromkeys(
        f"{it['cpu']}, {it['cores']} cores" for it in machines if "device" not in it
    )
    dates = sorted(it["date"] for it in machines)
    where = f"The host: {'; '.join(hosts)}. " if hosts else ""
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    table = tables.markdown(GATES, rows)
    return f"{table}\n\n{where}{when}: `python -m tests.soak GATE --save`.\n"


# The name of a mark → its Markdown, given the link to DOCS; None where no result is kept.
PARTS: Mapping[str, Callable[[str], str | None]] = {
    "staircase": gemm.staircase_part,
    "levels": lambda docs: _levels(),
    "gemm": gemm.sizes_part,
    "apps": apps.kept_part,
    "host": lambda docs: without_gpu(),
    "targets": lambda docs: gemm.targets_part(),
    "calls": lambda docs: _calls(),
    "families": lambda docs: gemm.families_part(),
    "soak": lambda docs: gates(),
    "programs": lambda docs: programs(),
    "estimates": lambda docs: written_table("estimates"),
    "graphs": lambda docs: written_table("graphs"),
    "float64": lambda docs: written_table("float64"),
    "float64_levels": _float64,
    "seeds": lambda docs: written_table("other-seeds"),
    "first": lambda docs: written_table("first-example"),
}
# What draws the pictures of those parts into DOCS.
PICTURES: tuple[Callable[[Path], None], ...] = (gemm.draw, apps.draw, _draw_float64)
