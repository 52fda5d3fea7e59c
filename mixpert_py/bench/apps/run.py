"""`mixpert bench apps`: one application measured after the other, into a file and a table."""

import json
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from mixpert_py import files
from mixpert_py.bench import machine
from mixpert_py.bench.apps import tables
from mixpert_py.bench.apps.app import APPS, App, Size
from mixpert_py.bench.apps.measure import Record
from mixpert_py.bench.apps.process import HOST_LIMIT, LIMIT, apart, platform
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.errors import PlanError
from mixpert_py.execution import process
from mixpert_py.interrupts import deferred_signals

NAME = "apps.json"
REHEARSED = 6  # applications at a time: of 12, all that is on the device has room there
MOST_REHEARSAL = 0.4  # of the time given


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line. backend: None for the GPU. host: NumPy programs instead."""

    size: Size
    budget: float
    samples: str
    backend: str | None = None
    host: bool = False


def chosen(only: Collection[str]) -> list[App]:
    """The applications of these names; all of no names. Raises PlanError for an unknown one."""
    for name in only:
        if name not in APPS:
            raise PlanError(f"unknown application {name!r}; known: {', '.join(APPS)}")
    return [app for name, app in APPS.items() if not only or name in only]


def run(options: Options, only: Collection[str], path: Path | None, seconds: float = inf) -> int:
    """Measure, write after every application, print; exit code 1 if anything failed.

    seconds: after these nothing runs any more; what was not reached is left out, and named.
    """
    end = perf_counter() + seconds
    apps = chosen(only)
    if path is not None:
        files.require_place(path)
    facts = machine.machine()
    if options.backend is None:
        facts |= machine.device(platform(None).xp)
    result: Record = {
        "machine": facts,
        "size": options.size,
        "apps": [],
        "host": [],
    }
    kind = "host" if options.host else "apps"
    if options.host:
        apps = [app for app in apps if app.host]
    try:
        if not options.host and options.backend is None and len(apps) > 1:
            _rehearse(apps, options, end)
        _measure(result, kind, apps, options, path, end)
    finally:  # interrupted, too: what there is
        _show(result, kind)
    failed = tables.failures(result)
    for line in failed:
        click.echo(line)
    return int(bool(failed) or len(result[kind]) < len(apps))


def _show(result: Record, kind: str) -> None:
    if kind == "host":
        gemm_tables.show(tables.HOST, tables.host_rows(result["host"]))
    else:
        gemm_tables.show(tables.COLUMNS, tables.rows(result["apps"]))
    gemm_tables.show(tables.TARGETS, tables.target_rows(result))


def _rehearse(apps: Sequence[App], options: Options, end: float) -> None:
    """Every application once, several at a time, for the kernels that they leave in the caches:
    most of a first run is compiling. Ctrl-C, and what ends this process, ends them all.
    """
    begin = perf_counter()
    end = begin + MOST_REHEARSAL * (end - begin)
    stop = threading.Event()

    def rehearsed(first: int, app: App) -> None:
        process.stop.set(stop)  # of this thread, which signals do not reach
        limit = min(LIMIT, end - perf_counter())
        if limit > 0:
            record = apart({**_asked(app, options), "first": first}, limit)
            if "failed" in record:
                click.echo(f"{app.name}, rehearsed: {record['failed']}", err=True)

    with deferred_signals() as interrupt, ThreadPoolExecutor(REHEARSED) as pool:
        begun = [pool.submit(rehearsed, first, app) for first, app in enumerate(apps)]
        try:
            with interrupt.let_through():
                wait(begun)
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        interrupt.check()
    click.echo(f"kernels compiled: {perf_counter() - begin:.0f} s", err=True)


def _asked(app: App, options: Options) -> dict[str, Any]:
    return {"app": app.name, **asdict(options)}


def _measure(
    result: Record, kind: str, apps: Sequence[App], options: Options, path: Path | None, end: float
) -> None:
    """Each application in a process of its own, its record into the result."""
    for app in apps:
        limit = min(HOST_LIMIT if options.host else LIMIT, end - perf_counter())
        if limit <= 0:
            click.echo(f"{app.name}: not measured, the time given was over", err=True)
            continue
        record = {**apart(_asked(app, options), limit), "date": result["machine"]["date"]}
        result[kind].append(record)
        click.echo(_progress_line(record), err=True)
        if path is not None:
            write(result, path)


def write(result: Record, path: Path) -> None:
    """The file, whole or not at all; what it knows of programs that were not asked for stays."""
    previous = read(path)
    if previous is not None and _same(previous, result):
        result = {**result, **{k: _merged(previous[k], result[k]) for k in ("apps", "host")}}
    files.replace(path, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def read(path: Path) -> Record | None:
    """A result from its file; None where there is none."""
    try:
        found: Record = json.loads(path.read_text("utf-8"))
        return {key: found[key] for key in ("machine", "size", "apps", "host")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _same(one: Record, other: Record) -> bool:
    facts = [(x["machine"].get("device"), x["size"]) for x in (one, other)]
    return facts[0] == facts[1]


def _merged(before: list[Record], after: list[Record]) -> list[Record]:
    """Records by name, in the order of APPS: the newer one of two, unless it alone failed."""
    found = {record["name"]: record for record in before}
    for record in after:
        previous = found.get(record["name"])
        if previous is None or "failed" in previous or "failed" not in record:
            found[record["name"]] = record
    return [found[name] for name in APPS if name in found]


def _progress_line(record: Record) -> str:
    seconds = f" ({record['seconds']:.0f} s)" if "seconds" in record else ""
    return f"{record['name']}{seconds}" + (f": {record['failed']}" if "failed" in record else "")
