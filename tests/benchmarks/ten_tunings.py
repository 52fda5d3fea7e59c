"""Programs that are judged again and again: do all tunings end alike, and what do they take?"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from mixpert_py.cli import main
from tests.benchmarks import machine

ROOT = Path(__file__).parents[2]
SCRIPTS = {  # script → words that follow it, and the budget
    "samples/diffusion.py": (["--size", "1200"], "1e-5"),
    "samples/cholesky.py": ([], "1e-5"),
    "samples/gp.py": (["--noise", "0.3"], "1e-2"),
    "tests/benchmarks/tuned/newton_schulz.py": ([], "1e-4"),
    "tests/benchmarks/tuned/walks.py": ([], "1e-3"),
}
FIRST = ROOT / "samples" / "diffusion.py"
# The cores of a process and its children are set before NumPy starts its threads.
BOOT = """import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"""
Record = dict[str, Any]


def tuned(script: Path, words: Sequence[str], budget: str, cores: Sequence[int]) -> Record:
    """One run, one estimate and one tuning of a copy of the script's folder, on these cores.

    Each has its seconds, and how often it started the script: a line of the copy counts that. The
    tuning has its schemes and the program's seconds before and after as well, where it found any.
    """
    with tempfile.TemporaryDirectory() as folder:
        starts, place = Path(folder, "starts"), Path(folder, "program")
        shutil.copytree(script.parent, place)
        line = f"open({str(starts)!r}, 'a').write('.')\n"
        (place / script.name).write_text(line + script.read_text("utf-8"), "utf-8")

        def run(*command: str) -> tuple["subprocess.CompletedProcess[str]", Record]:
            starts.write_text("")
            begin = perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", BOOT, ",".join(map(str, cores)), *command, *words],
                cwd=place,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            return done, {"seconds": perf_counter() - begin, "runs": starts.stat().st_size}

        options = ("--json", "--error", budget, script.name)
        _, native = run(script.name)
        _, estimated = run("-m", "mixpert_py", "estimate", *options)
        done, tuning = run("-m", "mixpert_py", "tune", *options)
    tuning["outcome"] = _outcome(done)
    if found := json.loads(done.stdout or "null"):
        gain = {name: found["gain"][name] for name in ("before", "after")}
        tuning |= {"schemes": found["schemes"], **gain}
    return {"program": native["seconds"], "estimate": estimated, "tune": tuning}


def _outcome(done: "subprocess.CompletedProcess[str]") -> str:
    """The lines whose products are lowered, and whether it is certain that this gains."""
    entry = json.loads(done.stdout) if done.stdout.strip() else None
    if entry is None:  # there is nothing to tune, or the program fails
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    lowered: dict[str, list[str]] = {}
    for one in sorted(entry["operators"], key=lambda one: int(one["line"])):
        lowered.setdefault(entry["plan"][one["id"]], []).append(str(one["line"] - 1))
    lowered.pop("native", None)
    lines = [f"{scheme} in {', '.join(places)}" for scheme, places in lowered.items()]
    return f"{'; '.join(lines) or 'nothing lowered'}{', not certain' if done.returncode else ''}"


def _one_of_each_core(processors: Sequence[int]) -> list[int]:
    """The first processor of every physical core, where Linux tells; else all of them."""
    found: dict[str, int] = {}
    for number in processors:
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        siblings = path.read_text("ascii") if path.exists() else str(number)
        found.setdefault(siblings, number)
    return list(found.values())


def measure(scripts: Sequence[Path], tries: int, budget: str) -> list[Record]:
    """All tunings on two cores, the tries of each script spread over the time that all take."""
    cores = _one_of_each_core(sorted(os.sched_getaffinity(0)))[:2]
    found = []
    for script in [script for _ in range(tries) for script in scripts]:
        words, own = SCRIPTS.get(str(script), ([], budget))
        found.append({"script": script.stem, **tuned(ROOT / script, words, own, cores)})
        click.echo(json.dumps(found[-1]), err=True)
    return found


def markdown(result: Record) -> str:
    """A row for each program; where its tunings ended in several ways, all of these."""
    rows = []
    for name in dict.fromkeys(one["script"] for one in result["tunings"]):
        tunings = [one for one in result["tunings"] if one["script"] == name]
        ended = Counter(one["tune"]["outcome"] for one in tunings).most_common()
        text = "; ".join(f"{count}×: {outcome}" for outcome, count in ended)
        own = median(one["program"] for one in tunings)
        row = [name, f"{own:.2f}"]
        for command in ("estimate", "tune"):
            runs = [one[command]["runs"] for one in tunings]
            took = median(one[command]["seconds"] for one in tunings)
            row += [f"{median(runs):.0f} ({max(runs)})", f"{took:.0f}"]
        rows.append([*row, text])
    columns = ["program", "s", "estimate: runs", "s", "tune: runs", "s", "ends in"]
    facts = "Medians (and maxima), on two cores of {cpu}, {date}.".format(**result["machine"])
    return f"{machine.table(columns, rows)}\n\n{facts}\n"


def first_sentence(result: Record) -> str:
    """A sentence on the tunings of the README's first example: the plan, gains and time."""
    tries, facts = [one["tune"] for one in result["tunings"]], result["machine"]
    gains = sorted(one["before"] / one["after"] for one in tries)
    plans = {tuple(sorted(one["schemes"].items())) for one in tries}
    before, after, took = (
        median(one[name] for one in tries) for name in ("before", "after", "seconds")
    )
    same = "the same plan each time" if len(plans) == 1 else f"{len(plans)} plans"
    return (
        f"{len(tries)} tries: {same}; {before:.2f} → {after:.2f} s, {median(gains):.2f}× as fast "
        f"in the median ({gains[0]:.2f} to {gains[-1]:.2f}), after {took:.0f} s of tuning. "
        f"{facts['cores']} cores of {facts['cpu']}, {facts['date']}.\n"
    )


@click.command()
@click.option("--tries", type=click.IntRange(1), default=10, show_default=True)
@click.option("--error", "budget", default="1e-5", show_default=True, help="For SCRIPTS.")
@click.option("--first", is_flag=True, help="The README's first example, at its full size.")
@machine.save_option
@click.argument("scripts", nargs=-1, type=click.Path(exists=True, path_type=Path))
def command(scripts: tuple[Path, ...], tries: int, budget: str, first: bool, save: bool) -> None:
    """Estimate and tune SCRIPTS, or five programs, again and again, on two cores."""
    named = [FIRST] if first else [Path(os.path.relpath(path, ROOT)) for path in scripts]
    wanted = named or [Path(name) for name in SCRIPTS]
    tunings = measure(wanted, tries, budget)
    result = {"machine": machine.machine(), "tunings": tunings}
    if first:
        machine.finish("first-example", result, save, first_sentence)
    else:
        machine.finish("tunings", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.ten_tunings")
