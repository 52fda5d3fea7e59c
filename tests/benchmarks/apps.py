"""Whole programs, those of samples/: as they are, in TF32, rewritten, and under tuned plans.

Each application runs in a process of its own, so that a crash costs no other its result.
"""

import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import click
import numpy as np

from mixpert_py import config
from mixpert_py import execution as child
from mixpert_py.cli import main
from tests.benchmarks import machine
from tests.benchmarks.app_runs import (
    APPS,
    FAITHFUL,
    FP32,
    TF32,
    TUNED,
    App,
    Platform,
    Size,
    failure,
    measure,
    measure_host,
    on_device,
    on_host,
)

Record = dict[str, Any]

NAME = "apps"  # of the result
ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
BOOT = """\
import sys
sys.path[0] = sys.argv[1]
from tests.benchmarks import apps
apps.measure_here(*sys.argv[2:])
"""
LIMIT, HOST_LIMIT = 200.0, 480.0  # seconds that one may take
POLL = 0.5  # seconds between two looks at the parent process
COLUMNS = (
    *("", "FP32, ms", "TF32", "faithful", "tuned"),
    *("error FP32", "TF32", "faithful", "tuned"),
)
HOST = ("", "NumPy, s", "rewritten, s", "in products, s", "speed-up", "error")
OTHERS = (TF32, FAITHFUL, TUNED)


def modes_of(record: Record) -> dict[str, Record]:
    """The modes of an application that did not fail, by name."""
    return {m["name"]: m for m in record.get("modes", []) if "failed" not in m and "device" in m}


def speedup(record: Record, mode: str) -> float | None:
    """How many times as fast as cuBLAS FP32 an application is; None where either failed."""
    found = modes_of(record)
    if mode not in found or FP32 not in found:
        return None
    return float(found[FP32]["device"]["median"] / found[mode]["device"]["median"])


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def markdown(result: Record) -> str:
    """The tables of applications and of NumPy programs, and where they were measured."""
    parts = []
    if result["apps"]:
        parts += [
            machine.table(COLUMNS, _rows(result["apps"])),
            "Milliseconds of GPU time of a program's work in cuBLAS FP32 through CuPy, and how many"
            " times as fast it is in TF32, rewritten without a plan (`faithful`), and"
            f" under a plan tuned for {result['apps'][0]['budget']:g}; relative Frobenius errors of"
            " its results against the program in float64.",
        ]
    if result["host"]:
        parts += [
            machine.table(HOST, _host_rows(result["host"])),
            f"NumPy programs, in float64, on {result['machine']['cores']} cores of"
            f" {result['machine']['cpu']}, and rewritten, transfers included, under plans tuned for"
            f" {result['host'][0]['budget']:g}; relative Frobenius errors against the program as it"
            f" was. Measured on {_host_date(result)}.",
        ]
    facts = result["machine"]
    days = sorted({str(one.get("date", facts["date"])) for one in result["apps"]})
    if len(days) > 1:
        facts = {**facts, "date": f"{days[0]} to {days[-1]}"}
    return "\n\n".join([*parts, machine.text(facts)]) + "\n"


def host_sentence(result: Record) -> str:
    """How many times as fast the NumPy programs are, for the README."""
    facts = result["machine"]
    gains = ", ".join(
        f"{record['name']} {record['speedup']:.1f}×"
        for record in result["host"]
        if "failed" not in record
    )
    return (
        f"NumPy programs in float64 on {facts['cores']} cores of {facts['cpu']}, rewritten, with "
        f"the products on one {facts['device']}, transfers included, under plans tuned for "
        f"{result['host'][0]['budget']:g}, {_host_date(result)}: {gains} as fast.\n"
    )


def _host_date(result: Record) -> str:
    """The day on which the NumPy programs ran, which is not always that of the others."""
    return str(result["host"][0].get("date", result["machine"]["date"]))


def _rows(records: Sequence[Record]) -> list[list[str]]:
    table = []
    for record in records:
        found = modes_of(record)
        if FP32 not in found:
            table.append([record["name"], record.get("failed", "failed"), *[""] * 7])
            continue
        times = (speedup(record, mode) for mode in OTHERS)
        errors = (found.get(mode) for mode in (FP32, *OTHERS))
        table.append(
            [
                record["name"],
                f"{1e3 * found[FP32]['device']['median']:.3g}",
                *("failed" if factor is None else f"{factor:.2f}×" for factor in times),
                *("–" if mode is None else f"{mode['error']:.1e}" for mode in errors),
            ]
        )
    means = [
        geometric_mean(f for record in records if (f := speedup(record, mode)) is not None)
        for mode in OTHERS
    ]
    return [*table, ["geometric mean", "", *(f"{mean:.2f}×" for mean in means), *[""] * 4]]


def _host_rows(records: Sequence[Record]) -> list[list[str]]:
    return [
        [record["name"], record["failed"], *[""] * 4]
        if "failed" in record
        else [
            record["name"],
            f"{record['native']:.1f}",
            f"{record['rewritten']:.2f}",
            f"{record['products']:.2f}",
            f"{record['speedup']:.1f}×",
            f"{record['error']:.1e}",
        ]
        for record in records
    ]


def made(app: App, *, size: Size, budget: float, backend: str | None, host: bool) -> Record:
    """The record of one application, measured in this process; an error becomes part of it."""
    try:
        if host:
            platform = Platform(np, on_host, backend)
            return measure_host(app, app.host_arguments(size), SAMPLES, budget, platform)
        if backend is None:
            cupy = machine.gpu()
            platform = Platform(cupy, on_device(cupy), None)
        else:
            platform = Platform(np, on_host, backend)
        return measure(app, app.arguments(size), SAMPLES, budget, platform)
    except Exception as error:
        return {"name": app.name, "budget": budget, **failure(error)}


def apart(name: str, options: Record, limit: float) -> Record:
    """The record of one application, measured by a child process within `limit` seconds."""
    with tempfile.TemporaryDirectory(prefix="mixpert-") as folder:
        output = Path(folder) / "record.json"
        words = str(ROOT), json.dumps({**options, "name": name}), str(output)
        ended = child.run([sys.executable, "-c", BOOT, *words], config.child_environment(), limit)
        if output.exists():
            record: Record = json.loads(output.read_text("utf-8"))
            return record
    how = f"still running after {limit:.3g} s" if ended.code is None else f"exit {ended.code}"
    return {"name": name, "budget": options["budget"], "failed": f"{how}: {ended.last_lines(1)}"}


def end_with_parent() -> None:
    """End this process silently once its parent has gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


@click.command()
@click.option("--size", type=click.Choice(["small", "paper"]), default="paper", show_default=True)
@click.option("--budget", type=float, help="Of tuned plans. Default: 1e-4; with --host 1e-5.")
@click.option("--only", multiple=True, type=click.Choice([*APPS]))
@click.option("--host", is_flag=True, help="Instead: NumPy programs, which take the GPU unasked.")
@click.option("--backend", type=click.Choice(["cuda", "reference"]), default="cuda")
@machine.save_option
def command(
    size: str,
    budget: float | None,
    only: tuple[str, ...],
    host: bool,
    backend: str,
    save: bool,
) -> int:
    """Whole programs: native, in TF32, as the default, and tuned; exit code 1 if one failed."""
    if save and (size, backend) != ("paper", "cuda"):
        raise click.UsageError("--save keeps results of a GPU at the papers' sizes")
    kind, limit = ("host", HOST_LIMIT) if host else ("apps", LIMIT)
    facts = machine.facts_of_gpu() if backend == "cuda" else machine.machine()
    options = {"size": size, "host": host, "backend": None if backend == "cuda" else backend}
    options["budget"] = (1e-5 if host else 1e-4) if budget is None else budget
    result = (machine.load(NAME) if save else None) or {"apps": [], "host": []}
    rows = {record["name"]: record for record in result[kind]}
    failed = False
    for name, app in APPS.items():
        if (only and name not in only) or (host and not app.host):
            continue
        record = apart(name, options, limit)
        traceback = record.pop("traceback", "")
        click.echo(f"{name}: {record.get('failed', 'measured')}\n{traceback}", err=True)
        failed |= "failed" in record
        if "failed" not in record or name not in rows:  # a failure takes no result's place
            rows[name] = {**record, "date": facts["date"]}
        result |= {"machine": facts, kind: [rows[one] for one in APPS if one in rows]}
        machine.finish(NAME, result, save, markdown)
    return int(failed)


def measure_here(options: str, output: str) -> None:
    """The child's part of `apart`."""
    end_with_parent()
    given = json.loads(options)
    record = made(APPS[given.pop("name")], **given)
    Path(output).write_text(json.dumps(record), "utf-8")


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.apps")
