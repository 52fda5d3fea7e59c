"""What `mixpert bench apps` does: one application after the other, into a file and a table."""

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from mixpert_py import files
from mixpert_py.bench import machine
from mixpert_py.bench.apps import tables
from mixpert_py.bench.apps.app import APPS, App, Size
from mixpert_py.bench.apps.measure import Record
from mixpert_py.bench.apps.process import apart, place
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.errors import PlanError

NAME = "apps.json"
REHEARSED = 6  # applications at a time: of 12, all that is on the device has room there


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. backend: None for the GPU. host: the NumPy programs instead."""

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


def run(wish: Wish, only: Collection[str], path: Path | None) -> int:
    """Measure, write after every application, print; exit code 1 if anything failed."""
    apps = chosen(only)
    facts = machine.machine()
    if wish.backend is None:
        facts |= machine.device(place(None).xp)
    result: Record = {
        "machine": facts,
        "size": wish.size,
        "apps": [],
        "host": [],
    }
    if not wish.host:
        if wish.backend is None and len(apps) > 1:
            _rehearse(apps, wish)
        _measure(result, "apps", apps, wish, path)
        gemm_tables.show(tables.COLUMNS, tables.rows(result["apps"]))
    else:
        _measure(result, "host", [app for app in apps if app.host], wish, path)
        gemm_tables.show(tables.HOST, tables.host_rows(result["host"]))
    gemm_tables.show(tables.TARGETS, tables.target_rows(result))
    failed = tables.failures(result)
    for line in failed:
        click.echo(line)
    return int(bool(failed))


def _rehearse(apps: Sequence[App], wish: Wish) -> None:
    """Every application once, several at a time, for the kernels that they leave in the caches:
    most of a first run is compiling. What they measure side by side is not kept.
    """
    with ThreadPoolExecutor(REHEARSED) as pool:
        list(pool.map(apart, [_asked(app, wish) for app in apps]))


def _asked(app: App, wish: Wish) -> dict[str, Any]:
    return {"app": app.name, **asdict(wish)}


def _measure(result: Record, kind: str, apps: Sequence[App], wish: Wish, path: Path | None) -> None:
    """Each application in a process of its own, its record into the result."""
    for app in apps:
        record = apart(_asked(app, wish))
        result[kind].append(record)
        click.echo(_said(record), err=True)
        if path is not None:
            write(result, path)


def write(result: Record, path: Path) -> None:
    """The file, whole or not at all; what it knows of programs that were not asked for stays."""
    kept = read(path)
    if kept is not None and _same(kept, result):
        result = {**result, **{k: _merged(kept[k], result[k]) for k in ("apps", "host")}}
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
    """Records by name, the newer one of two, in the order of APPS."""
    found = {record["name"]: record for record in (*before, *after)}
    return [found[name] for name in APPS if name in found]


def _said(record: Record) -> str:
    seconds = f" ({record['seconds']:.0f} s)" if "seconds" in record else ""
    return f"{record['name']}{seconds}" + (f": {record['failed']}" if "failed" in record else "")
