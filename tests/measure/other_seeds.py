"""Plans that were tuned on one seed and verified on 59 others, judged on 60 more.

A plan that holds on 59 inputs states that it is over its budget on at most 5 % of such inputs, with
95 % confidence; one before which others failed states more. The programs are those of
`other_seeds.toml`, products are emulated in NumPy, and the tuner goes by their numbers of INT8
products, so that no clock has a part in it. Each plan is judged with its guards on, and without.
"""

import os
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import replace
from math import comb, isnan
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import msgspec

from mixpert_py import config
from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables
from mixpert_py.cli import main
from mixpert_py.errors import MixPertError
from mixpert_py.launch import launcher
from mixpert_py.plan import Plan
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.hold_out import HoldOuts
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.project_sites import read_sites
from tests.measure import estimates, public_programs
from tests.measure.public_programs import Edit, Program, Sample, only_option, sources_option

MANIFEST = Path(__file__).with_name("other_seeds.toml")
HARD = Path(__file__).with_name("hard")
TUNED, VERIFIED, JUDGED = 0, "1..59", range(101, 161)
BACKEND = "reference"
DOUBT = 0.05
SAVED = "other-seeds"  # the result, beside those of `mixpert bench`
LIMIT = 3600.0  # seconds of a tuning with all its verifying seeds
NATIVE = "all products stay native"
# Written into each public script: its last argument is the seed of all that it draws.
SEEDED = """\
import random as _random, sys as _sys, numpy as _numpy
_seed = int(_sys.argv.pop())
_random.seed(_seed), _numpy.random.seed(_seed)
"""

Result = dict[str, Any]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program, and the budget of its tuning; edits: of a public one."""

    name: str
    error: str
    edits: list[Edit] = []

    @property
    def program(self) -> Program | Sample | None:
        """The public program; None for one of ours."""
        found = [case.program for case in estimates.cases() if case.name == self.name]
        return found[0] if found else None

    @property
    def address(self) -> str:
        """The page that shows the script."""
        known = self.program
        return known.address if known else f"../tests/measure/hard/{self.name}.py"

    def prepare(self, folder: Path, sources: Path | None) -> tuple[Path, list[str]]:
        """Put the script into a folder, and return it with its arguments before the seed."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").touch()  # one project with its modules
        if self.program is None:
            script = folder / f"{self.name}.py"
            script.write_text((HARD / script.name).read_text("utf-8"), "utf-8")
            return script, []
        script = self.program.prepare(folder, sources, gpu=False)
        text = public_programs.edited(script.read_text("utf-8"), self.edits)
        script.write_text(public_programs.with_prologue(text, SEEDED), "utf-8")
        return script, self.program.arguments


def cases(manifest: Path = MANIFEST) -> list[Case]:
    """All programs."""
    return msgspec.convert(tomllib.loads(manifest.read_text("utf-8"))["program"], list[Case])


def measure(
    wanted: Sequence[Case], folder: Path, sources: Path | None, report: Callable[[str], None]
) -> dict[str, Result]:
    """Each program's plan and how often it is over its budget, or the error in place of them."""

    def measured(case: Case) -> Result:
        return _measured(case, folder / case.name, sources)

    return estimates.each(wanted, folder, measured, _line, report)


def _measured(case: Case, folder: Path, sources: Path | None) -> Result:
    script, arguments = case.prepare(folder, sources)
    path = folder / "plan.toml"
    words = ["--error", case.error, "--backend", BACKEND, "--seeds", VERIFIED, "--json"]
    others = ["--hold-out", " ".join([*arguments, "{seed}"]), "-o", str(path)]
    program = [script.name, "--", *arguments, str(TUNED)]
    tuned = estimates.run_json(["tune", *words, *others, *program], folder, script, LIMIT)
    if tuned is None:
        raise MixPertError("no product to tune")
    plan = config.load_plan(path)
    found: Result = {"schemes": plan.schemes()}
    if set(found["schemes"].values()) == {"native"}:
        return found
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"PYTHONPATH": os.pathsep.join(paths), public_programs.SECONDS_FILE: os.devnull}
    more |= {"PYTHONHASHSEED": "0"}  # as the plan was tuned: the order of sets is drawn, too
    with patch.dict(os.environ, more), chdir(script.parent):  # for this program's runs alone
        shares = _shares(script, arguments, plan, float(case.error))
    return {**found, "fewer": fewer(tuned), "rate": tuned["hold_out_rate"], **shares}


def fewer(tuned: Result) -> float:
    """How many times fewer products a plan makes. Raises MixPertError where it counts none."""
    if not tuned["time_after"]:
        raise MixPertError(f"{tuned['time_before']:g} products before, none with the plan")
    return float(tuned["time_before"] / tuned["time_after"])


def _shares(
    script: Path, arguments: Sequence[str], plan: Plan, budget: float
) -> dict[str, list[float | None]]:
    """The error of a plan on each seed, in budgets, with its guards on and without; None where the
    program fails.
    """
    program = launcher.script(str(script), (*arguments, str(TUNED)))
    flow = read_sites(program).flow
    options = TuningOptions(Limits(Limit(budget)), backend=BACKEND)
    first = Experiment(program, options, flow)
    first.native()
    errors = {site.id: site.error for site in plan.site if site.error > 0}
    others = [
        Experiment(
            replace(program, argv=(program.argv[0], *arguments, str(seed))),
            options,
            flow,
            executor=first.executor,
        )
        for seed in JUDGED
    ]
    for other in others:
        other.compare_as(first.comparison)
    inputs, found = HoldOuts(others, options.reference), {}
    for kind, guarded in (("guarded", errors), ("plain", {})):
        for other in others:
            other.guarded = guarded
        shares = inputs.shares(plan.schemes())
        found[kind] = [None if isnan(share) else share for share in shares]
    return found


def over(shares: Sequence[float | None]) -> int:
    """On how many inputs the error is over the budget, or the program fails."""
    return sum(share is None or share > 1 for share in shares)


def chance(count: int, of: int, rate: float) -> float:
    """The probability that so many or more of some inputs are over, if the rate of such is this."""
    return sum(comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(count, of + 1))


def row(result: Result) -> Result:
    """The figures of one program."""
    found: Result = {"rate": result["rate"], "fewer": result["fewer"]}
    for kind in ("guarded", "plain"):
        shares = result[kind]
        found[kind] = over(shares)
        found[f"{kind} worst"] = max((s for s in shares if s is not None), default=0.0)
    found["chance"] = chance(found["guarded"], len(result["guarded"]), result["rate"])
    return found


def _line(result: Result) -> str:
    if "error" in result:
        return str(result["error"])
    if "rate" not in result:
        return NATIVE
    found = row(result)
    return (
        f"{found['fewer']:.2f} × fewer, over on {found['guarded']} ({found['plain']} unguarded) "
        f"of {len(JUDGED)}, {found['guarded worst']:.2g} budgets at worst; states "
        f"{found['rate']:.1%}, chance {found['chance']:.2f}"
    )


def table(record: Result) -> dict[str, Any]:
    """The table of docs/measured.md, from the results with the facts about their machine."""
    rows, kept = [], []
    for program in record["programs"]:
        result = program["result"]
        name = f"[{program['name']}]({program['address']})"
        if "rate" not in result:
            rows.append(
                [name, result["case"]["error"], "", "", result.get("error", NATIVE), "", ""]
            )
            continue
        found = row(result)
        kept.append(found)
        rows.append(
            [
                name,
                result["case"]["error"],
                f"{found['fewer']:.2f}×",
                f"{found['rate']:.1%}",
                f"{found['guarded']} of {len(result['guarded'])}",
                f"{found['guarded worst']:.2g}",
                f"{found['plain']}, {found['plain worst']:.2g}",
            ]
        )
    unlikely = sum(found["chance"] < DOUBT for found in kept)
    facts = record["machine"]
    return {
        "columns": [
            "program",
            "budget",
            "fewer products",
            "states at most",
            "over it on",
            "worst, in budgets",
            "unguarded: over on, worst",
        ],
        "rows": rows,
        "text": f"{len(record['programs'])} of {len(cases())} programs. Of {len(kept)} plans "
        f"{unlikely} are over more often than the rate that they state allows with a probability "
        f"of {DOUBT:.0%}: by chance that would be so of {DOUBT * len(kept):.1f} plans at most. "
        f"{facts['date']}: `python -m tests.measure.other_seeds --save`.",
    }


def _kept() -> dict[str, Result]:
    """Return the results that are saved already, of cases that are still the same."""
    path = machine.RESULTS / f"{SAVED}.json"
    if not path.exists():
        return {}
    now = {case.name: public_programs.plain(case) for case in cases()}
    programs = msgspec.json.decode(path.read_bytes())["programs"]
    return {
        program["name"]: program["result"]
        for program in programs
        if program["result"]["case"] == now.get(program["name"])
    }


@click.command()
@only_option
@sources_option
@click.option(
    "--folder",
    default=Path(tempfile.gettempdir(), "mixpert-other-seeds"),
    show_default=True,
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Where they run, and their results are kept; a further call goes on from there.",
)
@click.option(
    "--save", is_flag=True, help="Keep the results, beside those that are kept of others."
)
def command(only: tuple[str, ...], sources: Path | None, folder: Path, save: bool) -> int:
    """Plans verified on 59 seeds, judged on 60 others.

    Exit code 1 where one is over its budget more often than the rate that it states makes likely.
    """
    wanted = cases()
    unknown = set(only) - {case.name for case in wanted}
    if unknown:
        raise click.UsageError(f"no program is called {min(unknown)}")
    wanted = [case for case in wanted if not only or case.name in only]
    folder.mkdir(parents=True, exist_ok=True)
    kept = _kept()
    results = measure(wanted, folder, sources, lambda line: click.echo(line, err=True))
    named = [
        {"name": case.name, "address": case.address, "result": result}
        for case in cases()
        if (result := results.get(case.name, kept.get(case.name)))
    ]
    record: Result = {"machine": machine.machine(), "programs": named}
    shown = table(record)
    machine.finish(SAVED, {**record, "table": shown}, save)
    click.echo(f"{tables.markdown(shown['columns'], shown['rows'])}\n\n{shown['text']}")
    rows = [row(result) for result in results.values() if "rate" in result]
    return int(any(found["chance"] < DOUBT for found in rows))


if __name__ == "__main__":
    main(command, "python -m tests.measure.other_seeds")
