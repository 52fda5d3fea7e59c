"""Exhibits measured one after the other, into a file of results; and the page made of it."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from mixpert_py import files
from mixpert_py.errors import MixPertError, PlanError
from samples.papers import egemm, legemm, markidis, mixpert, raihan
from samples.papers import page as pages
from samples.papers import place as places
from samples.papers.compiling import compile_all
from samples.papers.exhibit import Exhibit, Missing, Paper, Published
from samples.papers.place import Place
from tests.benchmarks import machine
from tests.benchmarks.machine import rounded
from tests.benchmarks.timing import error_line

PAPERS: tuple[Paper, ...] = (mixpert.PAPER, egemm.PAPER, legemm.PAPER, markidis.PAPER, raihan.PAPER)
EXHIBITS = {exhibit.id: exhibit for paper in PAPERS for exhibit in paper.exhibits}
HERE = Path(__file__).parent
RESULT, README = HERE / "results.json", HERE / "README.md"
SUMMARY = ("paper", "what", "published", "here")

Record = dict[str, Any]


def chosen(only: Collection[str]) -> list[Exhibit]:
    """Exhibits by their id, or by their paper; all where none is named. Raises PlanError."""
    named = {paper.name: paper.exhibits for paper in PAPERS}
    named |= {id_: (exhibit,) for id_, exhibit in EXHIBITS.items()}
    for word in only:
        if word not in named:
            raise PlanError(f"unknown exhibit or paper {word!r}; `--only list` names them")
    wanted = {exhibit.id for word in only or EXHIBITS for exhibit in named[word]}
    return [exhibit for id_, exhibit in EXHIBITS.items() if id_ in wanted]


def run(
    only: Collection[str], small: bool, seconds: float, path: Path | None, html: Path | None
) -> int:
    """Measure, write after every exhibit, print; the exit code, 1 where an exhibit failed.

    One that failed, or that there was no time for, leaves what was measured of it before.
    Raises PlanError on unknown exhibits, DeviceError without a GPU unless it is a small run,
    MixPertError where `path` holds something else.
    """
    if "list" in only:
        click.echo("\n".join(EXHIBITS))
        return 0
    exhibits = chosen(only)
    end = perf_counter() + seconds
    record = read(path) if path is not None and path.exists() else {"exhibits": {}}
    if path is not None:
        files.require_place(path)
    found, failed = record["exhibits"], False

    def keep(id_: str, entry: Record) -> None:
        nonlocal failed
        failed |= "failed" in entry
        if "rows" not in entry and "rows" in found.get(id_, {}):
            return  # what was measured before is better than nothing
        found[id_] = entry
        if path is not None:
            files.replace(path, dumps(record).encode())

    try:
        measure(exhibits, choose(small), end, keep)
    finally:  # interrupted, too: what there is
        if html is not None:
            write_page(record, html)
        click.echo(machine.table(SUMMARY, summary(found)))
    return int(failed)


def choose(small: bool) -> Place:
    """The GPU; without one, in a small run, the reference backend."""
    start = perf_counter()
    try:
        place = places.on_gpu(small)
    except MixPertError:
        if not small:
            raise
        return places.without_gpu()
    for why in compile_all(small):
        click.echo(f"a kernel: {why}", err=True)
    click.echo(f"kernels compiled: {perf_counter() - start:.1f} s", err=True)
    return place


def measure(
    exhibits: Sequence[Exhibit], place: Place, end: float, keep: Callable[[str, Record], None]
) -> None:
    """Every exhibit, first those of errors and of kept results, which are quick; one that fails
    leaves the others.

    end: from when on none begins.
    """
    for exhibit in sorted(exhibits, key=lambda exhibit: exhibit.gpu):
        start = perf_counter()
        entry = one(exhibit, place, start > end)
        spent = perf_counter() - start
        keep(exhibit.id, entry)
        why = entry.get("failed") or entry.get("missing")
        click.echo(f"{exhibit.id}: {why or f'{spent:.1f} s'}", err=True)


def one(exhibit: Exhibit, place: Place, late: bool = False) -> Record:
    """An exhibit's entry: rows and where they were measured, or why there are none."""
    if exhibit.gpu and place.clock is None:
        return {"missing": "this needs a GPU, and none is here"}
    if late:
        return {"missing": "the time given was over"}
    try:
        found = exhibit.measure(place)
    except Exception as error:  # the exhibits after it are measured all the same
        return {"failed": error_line(error)}
    if isinstance(found, Missing):
        return {"missing": found.why}
    record = {"where": found.where or place.where, "note": found.note, "rows": found.rows}
    return dict(rounded(record))


def read(path: Path) -> Record:
    """A result from its file. Raises MixPertError where it is none."""
    try:
        loaded: Record = json.loads(path.read_text("utf-8"))
        return {"exhibits": dict(loaded["exhibits"])}
    except (ValueError, KeyError, TypeError) as error:
        raise MixPertError(f"{path}: not a result of `python -m samples.papers`") from error


def dumps(record: Record) -> str:
    """The file: a line a row, so that a change shows where it is."""
    entries = []
    for id_, entry in record["exhibits"].items():
        fields = [f"{_json(key)}: {_json(v)}" for key, v in entry.items() if key != "rows"]
        if "rows" in entry:
            rows = ",\n   ".join(map(_json, entry["rows"]))
            fields.append(f'"rows": [\n   {rows}]')
        entries.append(f" {_json(id_)}: {{\n  " + ",\n  ".join(fields) + "}")
    return '{"exhibits": {\n' + ",\n".join(entries) + "}}\n"


def summarized(found: Mapping[str, Record]) -> list[Exhibit]:
    """The exhibits that have both published numbers and rows with a headline."""
    return [
        exhibit
        for id_, exhibit in EXHIBITS.items()
        if exhibit.headline and exhibit.published and "rows" in found.get(id_, {})
    ]


def summary(found: Mapping[str, Record]) -> list[list[str]]:
    """A line for each of those."""
    lines = []
    for exhibit in summarized(found):
        assert exhibit.headline is not None
        paper = next(paper for paper in PAPERS if exhibit in paper.exhibits)
        published = "; ".join(map(_published_text, exhibit.published))
        here = exhibit.headline(found[exhibit.id]["rows"])
        lines.append([paper.title, exhibit.title, published, here])
    return lines


def write_page(record: Record, path: Path) -> None:
    """The page of a result, into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, pages.page(PAPERS, record).encode())


def write_readme() -> None:
    """Write README.md, beside this file, from the kept results."""
    files.replace(README, markdown(read(RESULT)).encode())


INTRODUCTION = """\
# Five papers, measured

MixPert-Py follows five papers. `python -m samples.papers`, run from the folder that holds
`samples/`, measures their tables and figures on a GPU, each beside the numbers that were published;
`--only list` names them, `--small` measures errors alone where there is no GPU. `--save` keeps the
results in `results.json` and makes this page of them; `--pages` makes it without measuring.
`--html FILE` makes a page with all tables and figures (`pip install '.[papers]'`).
"""


def markdown(record: Record) -> str:
    """The text of README.md: what the papers say in a few numbers, beside ours."""
    found = record["exhibits"]
    shown = [found[exhibit.id] for exhibit in summarized(found)]
    where = dict.fromkeys(entry["where"] for entry in shown)
    missing = [id_ for id_ in EXHIBITS if "rows" not in found.get(id_, {})]
    left_out = f"Not measured yet: {', '.join(missing)}. " if missing else ""
    return (
        f"{INTRODUCTION}\n{machine.table(SUMMARY, summary(found))}\n\n"
        f"\\* quoted, not checked against the paper. {left_out}{' '.join(where)}\n"
    )


def _published_text(number: Published) -> str:
    return f"{number.what} {number.value}{'' if number.confirmed else ' *'}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
