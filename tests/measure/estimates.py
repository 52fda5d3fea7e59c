"""The gain that `mixpert estimate` predicts beside the one that `mixpert tune` finds, by program.

The programs are public ones, named in `estimates.toml`, and the repository's samples, in sizes that
take a second or two. Both commands have the same budget.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import msgspec

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables
from mixpert_py.cli import main
from mixpert_py.errors import MixPertError
from mixpert_py.files import IMPORTED_FROM
from mixpert_py.tuner.estimate import times_text
from mixpert_py.tuner.report.unit import error_text
from tests.measure import public_programs
from tests.measure.public_programs import Program, Sample, only_option, sources_option

MANIFEST = Path(__file__).with_name("estimates.toml")
BUDGET = "1e-5"
LEAST, MOST = 0.75, 1.25  # of predicted over tuned gain
LIMIT = 600.0  # seconds of one command
NOISE = 0.02  # share of the program's time below which what a plan saves in its products is noise

# Sample → arguments with which a run takes a second or two; the others take their defaults.
SIZES = {
    "bert.py": "--size 8",
    "cholesky.py": "--size 2304 --block 384",
    "kalman.py": "--steps 6",
    "kmeans.py": "--size 16384 --iterations 10",
    "knn.py": "--size 8192 --asked 4096",
    "perceptron.py": "--size 8192",
    "qkv.py": "--size 2048",
    "transformer.py": "--size 128",
}
# Written into each script: what it draws is the same in every run.
SEEDS = """\
import random as _random, numpy as _numpy
_random.seed(0), _numpy.random.seed(0)
"""

Result = dict[str, Any]


class Case(msgspec.Struct, frozen=True):
    """A program, and what its tuning compares; none: the default."""

    program: Program | Sample
    compare: list[str] = []

    @property
    def name(self) -> str:
        return self.program.name


def cases(manifest: Path = MANIFEST) -> list[Case]:
    """The public programs, then the samples."""
    listed = {program.name: program for program in public_programs.public(gpu=False)}
    found = []
    for entry in tomllib.loads(manifest.read_text("utf-8"))["program"]:
        compare = entry.pop("compare", [])
        if "repository" not in entry:
            entry = {**msgspec.to_builtins(listed[entry["name"]]), **entry}
        found.append(Case(msgspec.convert(entry, Program), compare))
    for sample in public_programs.samples(gpu=False):
        found.append(Case(Sample(sample.name, SIZES.get(sample.name, "").split())))
    return found


def measure(
    wanted: Sequence[Case], folder: Path, sources: Path | None, report: Callable[[str], None]
) -> dict[str, Result]:
    """The estimate and the tuning of each program, or the error that it has in place of them."""
    return each(
        wanted, folder, lambda case: _measured(case, folder / case.name, sources), _line, report
    )


def each(
    wanted: Sequence[Any],
    folder: Path,
    measured: Callable[[Any], Result],
    line: Callable[[Result], str],
    report: Callable[[str], None],
) -> dict[str, Result]:
    """What is measured of each case that has a name, or the error that it has in place of that.

    folder: where the results are kept; another call goes on from there. line: of a result, for
    `report`.
    """
    results = {}
    for number, case in enumerate(wanted, 1):
        kept = folder / f"{case.name}.json"
        entry = public_programs.plain(case)
        result = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
        if result.get("case") != entry:
            start = perf_counter()
            try:
                result = measured(case)
            except (MixPertError, subprocess.SubprocessError) as error:
                result = {"error": str(error)}
            result |= {"case": entry, "seconds": perf_counter() - start}
            kept.write_text(json.dumps(result), "utf-8")
        results[case.name] = result
        report(f"{number}/{len(wanted)} {case.name}, {result['seconds']:.0f} s: {line(result)}")
    return results


def _measured(case: Case, folder: Path, sources: Path | None) -> Result:
    script = case.program.prepare(folder, sources, gpu=False)
    script.write_text(public_programs.with_prologue(script.read_text("utf-8"), SEEDS), "utf-8")
    (folder / "pyproject.toml").touch()  # one project with its modules
    program = [script.name, *case.program.arguments]
    estimated = run_json(["estimate", "--error", BUDGET, "--json", *program], folder, script)
    compare = [word for value in case.compare for word in ("--compare", value)]
    tuning = ["tune", "--error", BUDGET, *compare, "--json", script.name, "--", *program[1:]]
    return {"estimated": estimated, "tuned": run_json(tuning, folder, script)}


def run_json(words: Sequence[str], root: Path, script: Path, limit: float = LIMIT) -> Any:
    """What a command prints as JSON. Raises MixPertError where it fails.

    limit: its seconds. A tuning that cannot tell whether its plan gains exits 1, and prints what it
    found.
    """
    paths = [os.environ.get("PYTHONPATH"), str(IMPORTED_FROM), str(root)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        public_programs.SECONDS_FILE: os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mixpert_py", *words],
        cwd=script.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
    )
    if done.returncode and not (done.returncode == 1 and done.stdout.startswith("{")):
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MixPertError(f"{words[0]}: exit {done.returncode}: {last}")
    return json.loads(done.stdout)


def gain(tuned: Result | None) -> float:
    """The gain of a tuning's plan, whole runs in turn; 1 where what differs is noise.

    Where the runs' own times vary by more than they differ, the gain is what the products save.
    """
    if tuned is None or tuned["reverted"]:
        return 1.0
    found = tuned["verification"]
    saved = found["native_lowered"] - found["lowered"]
    if saved < NOISE * found["native_seconds"]:
        return 1.0
    seconds = found["seconds"]
    if abs(found["native_seconds"] - seconds) < found["spread"]:
        seconds = found["native_seconds"] - saved
    return float(found["native_seconds"] / seconds)


def row(result: Result) -> Result:
    """The figures of one program: predicted and tuned gains and errors, and whether they agree."""
    estimated, tuned = result["estimated"], result["tuned"]
    here = estimated["places"][0] if estimated else {"gain": 1.0, "error": 0.0}
    reached = gain(tuned)
    return {
        "share": estimated["share"] if estimated else 0.0,
        "predicted": here["gain"],
        "tuned": reached,
        "ratio": here["gain"] / reached,
        "predicted error": here["error"],
        "tuned error": 0.0 if reached == 1 else tuned["verification"]["error"],
        "met": LEAST <= here["gain"] / reached <= MOST,
    }


def _line(result: Result) -> str:
    if "error" in result:
        return str(result["error"])
    found = row(result)
    return (
        f"products {found['share']:.0%}, {times_text(found['predicted'])} predicted, "
        f"{times_text(found['tuned'])} tuned: {found['ratio']:.2f}"
    )


def table(record: Result) -> dict[str, Any]:
    """The table of docs/measured.md, from the results with the facts about their machine."""
    rows, ratios = [], []
    for program in record["programs"]:
        result = program["result"]
        name = f"[{program['name']}]({program['address']})"
        if "error" in result:
            rows.append([name, "", "", result["error"], "", "", ""])
            continue
        found = row(result)
        ratios.append(found["ratio"])
        errors = (error_text(found[f"{which} error"]) for which in ("predicted", "tuned"))
        rows.append(
            [
                name,
                f"{found['share']:.0%}",
                *(times_text(found[which]) for which in ("predicted", "tuned")),
                f"{found['ratio']:.2f}",
                *errors,
            ]
        )
    facts = record["machine"]
    near = sum(LEAST <= ratio <= MOST for ratio in ratios)
    return {
        "columns": [
            "program", "products", "predicted gain", "tuned gain", "predicted / tuned",
            "predicted error", "tuned error",
        ],
        "rows": rows,
        "text": f"Of {len(rows)} programs {near} are within {LEAST}–{MOST}. Budget {BUDGET}, "
        f"{facts['cores']} cores of {facts['cpu']}, {facts['date']}: "
        "`python -m tests.measure.estimates --save`.",
    }  # fmt: skip


@click.command()
@only_option
@sources_option
@click.option(
    "--folder",
    default=Path(tempfile.gettempdir(), "mixpert-estimates"),
    show_default=True,
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Where they run, and results are kept; a further call goes on from there.",
)
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(only: tuple[str, ...], sources: Path | None, folder: Path, save: bool) -> int:
    """Predicted and tuned gains of public programs and the samples, without a GPU.

    Exit code 1 where one is off by more than a quarter, or failed.
    """
    listed = cases()
    if unknown := set(only) - {case.name for case in listed}:
        raise click.UsageError(f"no program is called {min(unknown)}")
    wanted = [case for case in listed if not only or case.name in only]
    folder.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        click.echo(line, err=True)

    results = measure(wanted, folder, sources, report)
    programs: list[Result] = [
        {"name": it.name, "address": it.program.address, "result": results[it.name]}
        for it in wanted
    ]
    record: Result = {"machine": machine.machine(), "budget": BUDGET, "programs": programs}
    shown = table(record)
    machine.finish("estimates", {**record, "table": shown}, save)
    click.echo(f"{tables.markdown(shown['columns'], shown['rows'])}\n\n{shown['text']}")
    failed = ("error" in it["result"] or not row(it["result"])["met"] for it in programs)
    return int(any(failed))


if __name__ == "__main__":
    main(command, "python -m tests.measure.estimates")
