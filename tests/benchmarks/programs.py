"""Small programs as their users run them: `python SCRIPT` and `mixpert run SCRIPT`, in turn.

The programs are twenty public ones and the repository's samples. Without a plan nothing changes in
most of their products; what is measured is that rewriting makes no program slower.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from mixpert_py.cli import main
from mixpert_py.errors import MixPertError
from mixpert_py.files import IMPORTED_FROM
from tests.benchmarks import machine, public_programs, timing
from tests.benchmarks.public_programs import Program, Sample, only_option, sources_option

WANTED = 0.97  # of the native program's speed
LIMIT = 300.0  # seconds of one run
COMMANDS = {"native": [sys.executable], "ours": [sys.executable, "-m", "mixpert_py", "run"]}
CLOCKS = {"whole": "the process", "inside": "the script", "processor": "the processors"}

# COMMANDS and CLOCKS give the keys of its times, one a round; "done" counts the rounds.
Result = dict[str, Any]


def measure(
    programs: Sequence[Program | Sample],
    folder: Path,
    rounds: int,
    *,
    sources: Path | None = None,
    gpu: bool = False,
    deadline: float = float("inf"),
    report: Callable[[str], None],
) -> dict[str, Result]:
    """The seconds of each program, native and rewritten, of `rounds` rounds after a first one.

    folder: where the programs run, and their times are kept after each round; another call goes on
    from there. deadline: no round begins after it, on `perf_counter`'s clock. A program that fails
    has an "error" in place of times.
    """
    results = {}
    # A round of all programs, then the next: where the deadline comes first, each has as many.
    ready: dict[str, Path] = {}
    for turn in range(rounds + 1):
        for program in programs:
            kept = folder / f"{program.name}.json"
            result = _kept(kept, program)
            if "error" not in result and result["done"] <= turn and perf_counter() < deadline:
                try:
                    if program.name not in ready:
                        place = folder / program.name
                        ready[program.name] = program.prepare(place, sources, gpu)
                        (place / "pyproject.toml").touch()  # one project with its modules
                    _add_round(result, ready[program.name], program.arguments)
                except (MixPertError, subprocess.SubprocessError) as error:
                    result = {"program": result["program"], "error": str(error)}
                kept.write_text(json.dumps(result), "utf-8")
                report(f"{turn}/{rounds} {program.name}: {_line(result)}")
            results[program.name] = result
    return results


def _kept(path: Path, program: Program | Sample) -> Result:
    """What is kept of the rounds of this very program: changed, it begins anew."""
    entry = public_programs.plain(program)
    if path.exists():
        result: Result = json.loads(path.read_text("utf-8"))
        if result["program"] == entry:
            return result
    return {"program": entry, "done": 0}


def _add_round(result: Result, script: Path, arguments: Sequence[str]) -> None:
    """Run a program in both ways, in another order each time; the first round is not counted."""
    order = list(COMMANDS) if result["done"] % 2 else list(reversed(COMMANDS))
    times = {name: _run([*COMMANDS[name], script.name, *arguments], script) for name in order}
    if result["done"]:
        for name, clocks in times.items():
            for clock, seconds in clocks.items():
                result.setdefault(name, {}).setdefault(clock, []).append(seconds)
    result["done"] += 1


def _run(command: Sequence[str], script: Path) -> dict[str, float]:
    """The seconds of one run, by each clock. Raises MixPertError where the program fails."""
    root = next(it for it in script.parents if (it / "pyproject.toml").exists())
    written = root / "seconds.txt"
    written.unlink(missing_ok=True)
    paths = [os.environ.get("PYTHONPATH"), str(IMPORTED_FROM), str(root)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        public_programs.SECONDS_FILE: str(written),
    }
    for name in ("PYTHONDONTWRITEBYTECODE", "MIXPERT_PLAN"):
        environment.pop(name, None)
    used, start = _processor_seconds(), perf_counter()
    done = subprocess.run(
        command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    whole = perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MixPertError(f"exit {done.returncode}: {last}")
    inside = float(written.read_text("utf-8"))
    return {"whole": whole, "inside": inside, "processor": _processor_seconds() - used}


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def speed(result: Result, clock: str) -> dict[str, float]:
    """Median and quartiles of native / rewritten, taken round by round."""
    pairs = zip(result["native"][clock], result["ours"][clock], strict=True)
    return timing.summary([native / ours for native, ours in pairs])


def _line(result: Result) -> str:
    if "error" in result:
        return str(result["error"])
    if "native" not in result:
        return "ran"
    return ", ".join(
        f"{speed(result, clock)['median']:.3f}× of {CLOCKS[clock]}" for clock in CLOCKS
    )


def markdown(record: Result) -> str:
    """A row for each program."""
    rows = []
    for program in record["programs"]:
        result = program["result"]
        name = f"[{program['name']}]({program['address']})"
        if "native" not in result:
            rows.append([name, "", "", result.get("error", "not run"), "", ""])
            continue
        whole = speed(result, "whole")
        medians = [timing.summary(result[way]["whole"])["median"] for way in COMMANDS]
        rows.append(
            [
                name,
                *(f"{seconds:.2f} s" for seconds in medians),
                f"{whole['median']:.3f}× ({whole['lower']:.3f}–{whole['upper']:.3f})",
                f"{speed(result, 'inside')['median']:.3f}×",
                "met" if whole["median"] >= record["wanted"] else "missed",
            ]
        )
    facts = record["machine"]
    device = f"{facts['device']}, " if "device" in facts else ""
    counts = [
        len(it["result"]["native"]["whole"])
        for it in record["programs"]
        if "native" in it["result"]
    ]
    columns = ["program", "native", "rewritten", "native over rewritten", "in the script"]
    columns.append(f"≥ {record['wanted']}×")
    return (
        f"{machine.table(columns, rows)}\n\n"
        f"Whole processes in turn, {min(counts, default=0)} rounds or more: medians, quartiles in "
        "brackets. In the script: from its first statement to its exit. "
        f"{device}{facts['cores']} cores of {facts['cpu']}, {facts['date']}.\n"
    )


@click.command()
@click.option("--gpu", is_flag=True, help="Those in CuPy, and PyTorch's on the GPU.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@only_option
@sources_option
@click.option(
    "--folder",
    default=Path(tempfile.gettempdir(), "mixpert-programs"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where they run, and what they took is kept; a further call goes on from there.",
)
@click.option("--seconds", default=float("inf"), metavar="N", help="Begin no run after them.")
@machine.save_option
def command(
    gpu: bool,
    rounds: int,
    only: tuple[str, ...],
    sources: Path | None,
    folder: Path,
    seconds: float,
    save: bool,
) -> int:
    """Twenty public programs and the samples, native and under `mixpert run`, without a plan.

    Exit code 1 where one is slower than 0.97× by the median, or failed.
    """
    deadline = perf_counter() + seconds
    facts = machine.facts_of_gpu() if gpu else machine.machine()
    programs: list[Program | Sample] = [*public_programs.public(gpu), *public_programs.samples(gpu)]
    unknown = set(only) - {each.name for each in programs}
    if unknown:
        raise click.UsageError(f"no program is called {min(unknown)}")
    programs = [each for each in programs if not only or each.name in only]
    folder = folder / ("gpu" if gpu else "cpu")
    folder.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        click.echo(line, err=True)

    results = measure(
        programs, folder, rounds, sources=sources, gpu=gpu, deadline=deadline, report=report
    )
    named = [
        {"name": each.name, "address": each.address, "result": results[each.name]}
        for each in programs
    ]
    record: Result = {"machine": facts, "gpu": gpu, "wanted": WANTED, "programs": named}
    machine.finish("programs-gpu" if gpu else "programs", record, save, markdown)
    failed = any("error" in it["result"] for it in named)
    return int("| missed |" in markdown(record) or failed)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.programs")
