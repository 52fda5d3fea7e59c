"""One application in a process of its own, so that a crash costs no other its result."""

import json
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from mixpert_py import config
from mixpert_py.bench import machine
from mixpert_py.bench.apps import modes, tuned
from mixpert_py.bench.apps.app import APPS, App
from mixpert_py.bench.apps.host import measure as measure_host
from mixpert_py.bench.apps.measure import Platform, Record, measure
from mixpert_py.bench.apps.program import Sample
from mixpert_py.bench.apps.runs import DeviceTimer, Runs, on_host
from mixpert_py.execution import process as child
from mixpert_py.runtime.context import use


def rehearse(
    app: App, arguments: tuple[str, ...], samples: Path, platform: Platform, first: int
) -> None:
    """Run everything that `measure` will; errors are ignored here, since they occur there again.

    first: the level to begin with. Of applications that are rehearsed at once each begins with
    another, so that they compile for one another. The float64 run needs most memory: it comes last.
    """
    with use(modes.NATIVE):
        problem = Sample.load(samples / f"{app.sample}.py").problem(platform.xp, arguments)
    runs = Runs(app, problem, platform.timer, ())
    levels = tuned.levels()
    at = first % len(levels)
    for level in (*levels[at:], *levels[:at]):
        with suppress(Exception):
            runs.once(modes.under(dict.fromkeys(problem.sample.sites, level), platform.backend))
    with suppress(Exception):
        tuned.profile(runs, platform.backend, levels)
    with suppress(Exception), modes.tensor_float(platform.xp):
        runs.once(modes.NATIVE)
    with suppress(Exception):
        judged = Runs.of(app, problem, platform.timer)
        values, _ = judged.once(modes.NATIVE)
        judged.error(values)
        judged.figure(values)


LIMIT, HOST_LIMIT = 200.0, 480.0  # seconds that one may take


def apart(options: dict[str, Any], limit: float) -> Record:
    """The record of one application, measured by a child process within `limit` seconds.

    options: as `made` takes them, ready for JSON.
    """
    with tempfile.TemporaryDirectory(prefix="mixpert-") as folder:
        output = Path(folder) / "record.json"
        command = child.python("mixpert_py.bench.apps.process", json.dumps(options), str(output))
        ended = child.run(command, config.child_environment(), limit)
        if output.exists():
            record: Record = json.loads(output.read_text("utf-8"))
            return record
    late = f"still running after {limit:.3g} s"
    how = late if ended.code is None else f"exit code {ended.code}"
    last = ended.last_lines(1)
    return {
        "name": options["app"],
        "budget": options["budget"],
        "failed": f"{how}: {last}" if last else how,
        "traceback": ended.tail,
    }


def made(options: dict[str, Any]) -> Record:
    """Measures in this process. options: app, size, samples, budget, backend, and
    host: whether it is the NumPy program; first: the level to begin with, of a rehearsal."""
    app, samples = APPS[options["app"]], Path(options["samples"])
    size, budget, backend = options["size"], options["budget"], options["backend"]
    if options["host"]:
        arguments = app.host_arguments(size)
        return measure_host(app, arguments, samples, budget, Platform(np, on_host, backend))
    if options.get("first") is not None:
        rehearse(app, app.arguments(size), samples, platform(backend), options["first"])
        return {"name": app.name}
    return measure(app, app.arguments(size), samples, budget, platform(backend))


def platform(backend: str | None) -> Platform:
    """Return the GPU, or NumPy. Raises DeviceError where a GPU is wanted and missing."""
    if backend is not None:
        return Platform(np, on_host, backend)
    cupy = machine.gpu()
    return Platform(cupy, DeviceTimer(cupy), None)


def main(options: str, output: str) -> None:
    """Measure in this process, and write the record to the file `output`."""
    end_with_parent()
    record = made(json.loads(options))
    Path(output).write_text(json.dumps(record), "utf-8")


POLL = 0.5  # seconds between two checks


def end_with_parent() -> None:
    """End this process silently once its parent has gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()
