"""Small programs as their users run them: `python SCRIPT` and `mixpert run SCRIPT`, in turn.

The programs are twenty public ones and the repository's samples. Without a plan nothing changes in
most of their products; what is measured is that rewriting makes no program slower. Nothing of a
public program is in this repository: its files come from GitHub, or from a folder, are checked, and
are changed as `programs.toml` says. `--save` replaces the saved rows of the measured programs after
each of them, so that they may be measured in several calls on one machine.
"""

import ast
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import click
import msgspec

from mixpert_py.cli import main
from mixpert_py.errors import MixPertError
from mixpert_py.files import IMPORTED_FROM
from tests.benchmarks import machine, timing

WANTED = 0.97  # of the native program's speed
LIMIT = 300.0  # seconds of one run
COMMANDS = {"native": [sys.executable], "ours": [sys.executable, "-m", "mixpert_py", "run"]}
MANIFEST = Path(__file__).with_name("programs.toml")
SAMPLES = Path(__file__).parents[2] / "samples"
RAW = "https://raw.githubusercontent.com"
SECONDS_FILE = "MIXPERT_PROGRAM_SECONDS"  # the variable that names the file CLOCK writes
# Written into each script: what it prints at exit is the time from its own first statement on.
CLOCK = f"""\
import atexit as _atexit, os as _os, time as _time
_atexit.register(lambda start: open(_os.environ["{SECONDS_FILE}"], "w").write(
    str(_time.perf_counter() - start)), _time.perf_counter())
"""
# What the samples that are done in a moment are given, so that a run takes some seconds.
LARGER = {
    "batched16.py": "--size 65536 --steps 40",
    "bert.py": "--size 64",
    "cholesky.py": "--size 8192",
    "circuit.py": "--depth 60",
    "comet.py": "--size 1536",
    "gp.py": "--size 4096 --asked 2048",
    "hpl_ai.py": "--size 8192",
    "kalman.py": "--steps 45",
    "kmeans.py": "--size 16384 --iterations 60",
    "knn.py": "--size 16384 --asked 8192",
    "perceptron.py": "--size 32768",
}

Edit = tuple[str, str]
# For each of COMMANDS its seconds by the clocks "whole" and "inside" (the script), one a round; or
# an "error".
Result = dict[str, Any]


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script, where its files are from, and how it is run.

    arrays: the package whose arrays it multiplies. repository: empty for a sample. files: the path
    of each file in the repository → its SHA-256. edits: texts of the script and their replacements;
    append: lines that follow it.
    """

    name: str
    script: str
    arrays: str = ""
    field: str = ""
    repository: str = ""
    commit: str = ""
    licence: str = ""
    files: dict[str, str] = {}
    arguments: list[str] = []
    edits: list[Edit] = []
    cpu_edits: list[Edit] = []
    gpu_edits: list[Edit] = []
    append: str = ""

    @property
    def address(self) -> str:
        """The page that shows the script, as docs/measured.md links to it."""
        if not self.repository:
            return f"../samples/{self.script}"
        return f"https://github.com/{self.repository}/blob/{self.commit}/{quote(self.script)}"

    def prepare(self, folder: Path, sources: Path | None, gpu: bool) -> Path:
        """Put the files into a folder, and return the script, changed for this machine.

        sources: a folder with owner/name/commit/path; None: GitHub. Raises MixPertError where a
        file is absent, or is another than the one that was chosen.
        """
        found = {path: self._contents(path, digest, sources) for path, digest in self.files.items()}
        if not self.repository:
            found[self.script] = (SAMPLES / self.script).read_bytes()
        for path, contents in found.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(contents)
        script, text = folder / self.script, found[self.script].decode("utf-8")
        for old, new in (*self.edits, *(self.gpu_edits if gpu else self.cpu_edits)):
            if old not in text:
                raise MixPertError(f"{old!r} is not in the script")
            text = text.replace(old, new)
        script.write_text(timed(text) + self.append, "utf-8")
        (folder / "pyproject.toml").touch()  # one project with its modules
        return script

    def _contents(self, path: str, digest: str, sources: Path | None) -> bytes:
        place = f"{self.repository}/{self.commit}/{path}"
        try:
            if sources is None:
                with urlopen(f"{RAW}/{quote(place)}", timeout=60) as answer:
                    contents: bytes = answer.read()
            else:
                contents = (sources / place).read_bytes()
        except OSError as error:
            raise MixPertError(f"{place}: {error}") from error
        if hashlib.sha256(contents).hexdigest() != digest:
            raise MixPertError(f"{place} is another file than the one that was chosen")
        return contents


def public(gpu: bool) -> list[Program]:
    """The public programs for a machine with a GPU, or without: those in PyTorch run on both."""
    entries = tomllib.loads(MANIFEST.read_text("utf-8"))["program"]
    programs = msgspec.convert(entries, list[Program])
    return [one for one in programs if one.arrays in ("torch", "cupy" if gpu else "numpy")]


def samples(gpu: bool) -> list[Program]:
    """The samples, on CuPy's arrays where there is a GPU: there, those alone that take `--gpu`."""
    found = []
    for path in sorted(SAMPLES.glob("*.py")):
        text, larger = path.read_text("utf-8"), LARGER.get(path.name, "").split()
        if "__main__" in text and (not gpu or '"--gpu"' in text):
            words = ["--gpu", *larger] if gpu else larger
            found.append(Program(name=path.name, script=path.name, arguments=words))
    return found


def timed(text: str) -> str:
    """A script with CLOCK before its first statement."""
    before = text.splitlines(keepends=True)
    first = 0
    for node in ast.parse(text).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and getattr(node, "module", None) != "__future__":
            break
        first = node.end_lineno or 0
    return "".join([*before[:first], CLOCK, *before[first:]])


def measure(program: Program, rounds: int, *, sources: Path | None, gpu: bool) -> Result:
    """The seconds of a program, native and rewritten, of `rounds` rounds after a first one, which
    is not counted; each round runs them in another order.
    """
    result: Result = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            script = program.prepare(Path(folder), sources, gpu)
            for turn in range(rounds + 1):
                for way in list(COMMANDS)[:: 1 if turn % 2 else -1]:
                    command = [*COMMANDS[way], script.name, *program.arguments]
                    times = _run(command, script, Path(folder))
                    for clock, seconds in times.items() if turn else ():
                        result.setdefault(way, {}).setdefault(clock, []).append(seconds)
        except (MixPertError, subprocess.SubprocessError) as error:
            return {"error": str(error)}
    return result


def _run(command: Sequence[str], script: Path, root: Path) -> dict[str, float]:
    """The seconds of one run, by each clock. Raises MixPertError where the program fails."""
    written = root / "seconds.txt"
    paths = [os.environ.get("PYTHONPATH"), str(IMPORTED_FROM), str(root)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        SECONDS_FILE: str(written),
    }
    for name in ("PYTHONDONTWRITEBYTECODE", "MIXPERT_PLAN"):
        environment.pop(name, None)
    start = perf_counter()
    done = subprocess.run(
        command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    whole = perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MixPertError(f"exit {done.returncode}: {last}")
    return {"whole": whole, "inside": float(written.read_text("utf-8"))}


def speed(result: Result, clock: str) -> dict[str, float]:
    """Median and quartiles of native / rewritten, taken round by round."""
    pairs = zip(result["native"][clock], result["ours"][clock], strict=True)
    return timing.summary([native / ours for native, ours in pairs])


def is_met(result: Result) -> bool:
    """Whether the rewritten program is as fast as wanted."""
    return "native" in result and speed(result, "whole")["median"] >= WANTED


def markdown(record: Result) -> str:
    """A row for each program."""
    rows, counts = [], []
    for program in record["programs"]:
        result = program["result"]
        name = f"[{program['name']}]({program['address']})"
        if "native" not in result:
            rows.append([name, "", "", result["error"]])
            continue
        whole = speed(result, "whole")
        native = timing.summary(result["native"]["whole"])["median"]
        counts.append(len(result["native"]["whole"]))
        rows.append(
            [
                name,
                f"{native:.2f}",
                f"{whole['median']:.3f}× ({whole['lower']:.3f}–{whole['upper']:.3f})",
                f"{speed(result, 'inside')['median']:.3f}×",
            ]
        )
    facts = record["machine"]
    device = f"{facts['device']}, " if "device" in facts else ""
    columns = ["program", "native, s", "native over rewritten", "in the script"]
    return (
        f"{machine.table(columns, rows)}\n\n"
        f"Whole processes in turn, {min(counts, default=0)} rounds or more: medians, quartiles in "
        "brackets. In the script: from its first statement to its exit. "
        f"{device}{facts['cores']} cores of {facts['cpu']}, {facts['date']}.\n"
    )


@click.command()
@click.option("--gpu", is_flag=True, help="Those in CuPy, and PyTorch's on the GPU.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--only", multiple=True, metavar="NAME", help="This program, several times.")
@click.option(
    "--sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The public programs, as owner/name/commit/path. Default: from GitHub.",
)
@machine.save_option
def command(gpu: bool, rounds: int, only: tuple[str, ...], sources: Path | None, save: bool) -> int:
    """Twenty public programs and the samples, native and under `mixpert run`, without a plan.

    Exit code 1 where one is slower than 0.97× by the median, or failed.
    """
    kept = "programs-gpu" if gpu else "programs"
    programs = {each.name: each for each in (*public(gpu), *samples(gpu))}
    if unknown := set(only) - programs.keys():
        raise click.UsageError(f"no program is called {min(unknown)}")
    found = machine.load(kept) if save else None
    rows = {row["name"]: row for row in found["programs"]} if found else {}
    record: Result = {"machine": machine.facts_of_gpu() if gpu else machine.machine()}
    for name in only or programs:
        program = programs[name]
        result = measure(program, rounds, sources=sources, gpu=gpu)
        rows[name] = {"name": name, "address": program.address, "result": result}
        record["programs"] = [rows[one] for one in programs if one in rows]
        machine.finish(kept, record, save, markdown)
    return int(not all(is_met(rows[name]["result"]) for name in only or programs))


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.programs")
