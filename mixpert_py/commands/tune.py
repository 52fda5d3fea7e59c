"""The command that finds a plan: `mixpert tune`."""

import json
import shlex
import sys
from pathlib import Path

import click

from mixpert_py.commands.program import TuningCommand, require_script
from mixpert_py.errors import PlanError

SEARCHES = (
    "predictive",
    "greedy",
    "exhaustive",
    "random",
)  # tuner.tune has them, and imports NumPy
LADDERS = ("auto", "int8", "mixpert", "fp16", "cpu")  # runtime.schemes has all but the first


@click.command(cls=TuningCommand)
@click.option(
    "--error",
    "budgets",
    multiple=True,
    required=True,
    metavar="[VALUE=]BUDGET",
    help="The error allowed: of every value, or of VALUE alone. May be repeated; a bare BUDGET "
    "beside is for all others, and without one the others are not judged.",
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="[VALUE=]NAME",
    help="frobenius (the default), max, max-relative, mred, or module:function(reference, value).",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="WHAT",
    help="A variable, a file that the program writes (.npy, .npz, .csv), stdout (the numbers that "
    "it prints) or sinks (results that feed no other product); default: the variables that hold "
    "results when the program ends.",
)
@click.option(
    "--reference",
    type=click.Choice(["float64", "native"]),
    default="float64",
    show_default=True,
    help="What errors are measured against: every product in float64, or the program as it is.",
)
@click.option(
    "--backend",
    metavar="NAME",
    help="reference: emulate tensor cores in NumPy. reference:h200: add up as that GPU does.",
)
@click.option(
    "--ladder",
    type=click.Choice(LADDERS),
    default=LADDERS[0],
    show_default=True,
    help="The schemes that are tried; auto: int8 where products run on a GPU or are emulated, cpu "
    "(float64, float32) elsewhere.",
)
@click.option(
    "--device",
    metavar="NAME",
    help="A GPU that need not be here, such as h200: tensor cores are emulated, times predicted.",
)
@click.option("--time-limit", type=float, metavar="S", help="Seconds that one run may take.")
@click.option(
    "--workers",
    metavar="N|gpus",
    default="1",
    show_default=True,
    help="Runs at a time, where times are predicted or each run has a GPU; gpus: one for each GPU.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Make trials on this Dask cluster, one at a time on each of its workers; the current "
    "folder is sent to them.",
)
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    default=SEARCHES[0],
    show_default=True,
    help="How plans are chosen; greedy as MixPert published it, the last two as controls.",
)
@click.option(
    "--hold-out",
    metavar="ARGS",
    help="Arguments of the program for data that it is not tuned on, such as '--seed 1'.",
)
@click.option(
    "--hold-out-error",
    "hold_out_budgets",
    multiple=True,
    metavar="[VALUE=]BUDGET",
    help="As --error, there; default: the same.",
)
@click.option("-o", "--output", metavar="PLAN", help="Default: SCRIPT.mixpert.toml.")
@click.option("--resume", is_flag=True, help="Go on with the same tuning, if it was interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
def tune(
    budgets: tuple[str, ...],
    criteria: tuple[str, ...],
    compare: tuple[str, ...],
    reference: str,
    backend: str | None,
    ladder: str,
    device: str | None,
    time_limit: float | None,
    workers: str,
    dask: str | None,
    search: str,
    hold_out: str | None,
    hold_out_budgets: tuple[str, ...],
    output: str | None,
    resume: bool,
    as_json: bool,
    script: str,
    arguments: tuple[str, ...],
) -> int:
    """Find the fastest plan whose error stays within a budget.

    It is written as a file. Every run of SCRIPT is a process of its own. The options may also stand
    right behind SCRIPT; what follows them, or `--`, is the program's. Every run is kept in a
    .trials.db file beside the plan: what Ctrl-C interrupts, --resume goes on with.
    """
    from mixpert_py import config, interrupts
    from mixpert_py import plan as plan_file
    from mixpert_py.commands import tables
    from mixpert_py.launch import launcher
    from mixpert_py.runtime.context import emulates, require_backend
    from mixpert_py.tuning import record
    from mixpert_py.tuning.options import (
        TuningOptions,
        limits_from,
        parse_budgets,
        parse_named,
    )
    from mixpert_py.tuning.prepare import prepare
    from mixpert_py.tuning.search import tune_program
    from mixpert_py.tuning.trials import Trials, beside

    require_script("tune", script)
    metrics = parse_named("--criterion", criteria)
    allowed = limits_from(parse_budgets("--error", budgets), metrics)
    there = parse_budgets("--hold-out-error", hold_out_budgets)
    if there and hold_out is None:
        raise click.UsageError("--hold-out-error is for --hold-out")
    if time_limit is not None and not time_limit > 0:
        raise click.UsageError(f"--time-limit is a number of seconds, not {time_limit}")
    if workers != "gpus" and not (workers.isdecimal() and int(workers)):
        raise click.UsageError(f"--workers is a number of at least 1, or gpus, not {workers}")
    if dask is not None and workers != "1":
        raise click.UsageError("give one of --workers and --dask")
    if device is not None:
        backend = backend or "reference"
        if not emulates(backend):
            raise click.UsageError(f"--device predicts times; --backend {backend} measures them")
    require_backend(backend)
    program = launcher.script(script, arguments)
    path = Path(output) if output else config.plan_beside(script)
    config.require_plan_place(path)
    existing = config.load_plan(path) if path.exists() else None
    command = shlex.join(["mixpert", *sys.argv[1:]])
    try:
        other = None if hold_out is None else tuple(shlex.split(hold_out))
    except ValueError as error:
        raise click.UsageError(f"--hold-out: {error}") from None
    options = TuningOptions(
        allowed,
        compare,
        backend,
        time_limit,
        search,
        command,
        hold_out=other,
        hold_out_limits=limits_from(there, metrics) if there else None,
        reference=reference,
        ladder=ladder,
        workers=None if workers == "gpus" else int(workers),
        device=device,
        dask=dask,
    )
    trials = Trials(beside(path), resume, lambda line: click.echo(f"mixpert: {line}", err=True))
    # Ctrl-C is let through within a run only: what comes of it is written to the end.
    with interrupts.held() as interrupt:
        with tables.progress(as_json) as show:

            def on_run(purpose: str) -> None:
                interrupt.check()
                show(purpose)

            try:
                prepared = prepare(program, options, existing, on_run, trials=trials)
                result = None if prepared is None else tune_program(prepared)
            except KeyboardInterrupt:  # before there was any plan
                return _interrupted(trials.has_runs)
        del prepared  # now, while nothing interrupts it, its warm processes end
        if result is None:
            click.echo(f"{script}: no matrix product to tune; no plan was written", err=True)
            if as_json:
                click.echo("null")
            return 0
        entry = record.record(result, str(path))
        unsaved = None
        if result.worth_writing:
            try:
                plan_file.save(result.plan, path)
            except PlanError as error:
                # The tuning is not ended: --resume takes its runs, and writes the plan.
                unsaved = record.save_elsewhere(result.plan, error)
            else:
                trials.end(entry, finished=not result.outcome.interrupted)
    written = result.worth_writing and unsaved is None
    try:
        if as_json:
            click.echo(json.dumps(entry, indent=2))
        else:
            tables.print_tuned(result)
            click.echo(f"plan written to {path}" if written else "no plan was written")
    finally:
        if unsaved is not None:  # said where the output cannot be written, either
            raise unsaved
    return _interrupted(trials.has_runs) if result.outcome.interrupted else 0


def _interrupted(has_runs: bool) -> int:
    way_on = "; --resume goes on from here" if has_runs else ""
    click.echo(f"mixpert: interrupted{way_on}", err=True)
    return 130
