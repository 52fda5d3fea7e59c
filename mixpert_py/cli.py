"""The command line: options in, one call, exit code out. What the commands do is elsewhere.

Exit codes: 0 fine; 1 a check that would change something, a call that could not be restored, a
fallback under --strict, a program too noisy for its budget, a plan that does not hold; 2 usage,
parse or program error; 130 after Ctrl-C. `run` passes the program's own on.
"""

import io
import json
import os
import shlex
import sys
from pathlib import Path

import click

from mixpert_py import __version__
from mixpert_py.bench.commands import bench
from mixpert_py.errors import MixPertError
from mixpert_py.file_commands import rewrite, unrewrite
from mixpert_py.plan_diff_command import plan_diff
from mixpert_py.probe_command import probe
from mixpert_py.program_command import ProgramCommand, TuningCommand
from mixpert_py.report_command import report
from mixpert_py.tiles_command import tiles
from mixpert_py.verify_command import verify

SEARCHES = (
    "predictive",
    "greedy",
    "exhaustive",
    "random",
)  # tuner.search has them, and imports NumPy
LADDERS = ("auto", "int8", "mixpert", "fp16", "cpu")  # runtime.schemes has all but the first


def main() -> None:
    """The console script."""
    _use_any_terminal()
    try:
        # Not `cli.main`: it would turn a closed pipe into exit code 1, which means something here.
        with cli.make_context("mixpert", sys.argv[1:]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except MixPertError as error:
        click.echo(f"mixpert: {error}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("mixpert: interrupted", err=True)
        code = 130
    except BrokenPipeError:
        code = 0  # the reader has seen enough
        _drop_output()
    except OSError as error:
        click.echo(f"mixpert: {error.strerror or error}", err=True)
        code = 2
        _drop_output()
    except Exception as error:
        if os.environ.get("MIXPERT_DEBUG"):
            raise
        said = f"mixpert: internal error: {type(error).__name__}: {error}"
        click.echo(f"{said.splitlines()[0]} (MIXPERT_DEBUG=1 shows where)", err=True)
        code = 2
    sys.exit(code)


def _use_any_terminal() -> None:
    """Write what the terminal cannot show as escapes; with stdout closed, write nothing.

    A program that is run keeps the streams that it would have under `python`.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115, it is to stay open
    if sys.argv[1:2] != ["run"] and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Python flushes stdout once more at exit: give it something that takes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mixpert")
def cli() -> None:
    """Matrix products of a Python program, at the accuracy you choose and no more."""


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave these files of folders out.")
@click.option("-j", "jobs", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option("--fuse", is_flag=True, help="Make sums such as c += a @ b one call as well.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def sites(
    paths: tuple[str, ...], exclude: tuple[str, ...], jobs: int, fuse: bool, as_json: bool
) -> int:
    """List the products found, and those left alone with the reason why."""
    from mixpert_py import project, rewriting

    files = list(project.files(paths, exclude))
    records = []
    problems = 0
    for result in rewriting.rewrite_files(files, jobs=jobs, fuse=fuse):
        if result.problem is not None:
            click.echo(f"mixpert: {result.problem}", err=True)
            problems += 1
        records += result.records()
    if as_json:
        click.echo(json.dumps(records, indent=2))
    else:
        from mixpert_py import tables

        tables.print_sites(records)
    return 2 if problems else 0


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…|-")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "dot", "svg", "json"]),
    help="Default: as the ending of OUT says, else text.",
)
@click.option(
    "--profile",
    metavar="FILE",
    help="Show shares of time and edges, as `mixpert run --json FILE` saw them.",
)
@click.option("-o", "--output", metavar="OUT", help="Write here.")
def graph(paths: tuple[str, ...], form: str | None, profile: str | None, output: str | None) -> int:
    """Show which products' results can reach which products' operands.

    `-` reads a program from standard input.
    """
    from mixpert_py import graph as graph_of
    from mixpert_py import graph_formats, graph_profile, source_files

    if paths == ("-",):
        graphs = [graph_of.of_source(sys.stdin.buffer.read(), "-", "stdin")]
    else:
        graphs = graph_of.of_files(f.path for f in source_files.source_files(paths, ()))
    problems = [one.problem for one in graphs if one.problem is not None]
    for problem in problems:
        click.echo(f"mixpert: {problem}", err=True)
    if profile is not None:
        graphs = graph_profile.with_profile(graphs, profile)
    content = graph_formats.rendered(graphs, form, output)
    if output is None or output == "-":
        click.echo(content, nl=False)
    elif len(problems) < len(graphs):
        graph_formats.write(output, content, graphs)
    return 2 if problems else 0


@cli.command(cls=ProgramCommand)
@click.option("--plan", "plan_path", metavar="PLAN", help="Run under this plan.")
@click.option("--scheme", metavar="NAME", help="Run every product under this scheme.")
@click.option("--fuse", is_flag=True, help="Make sums such as c += a @ b one call as well.")
@click.option("--profile", is_flag=True, help="Print what ran at each product, and why.")
@click.option("--strict", is_flag=True, help="Exit 1 if a call did not take its planned scheme.")
@click.option("--json", "json_path", metavar="FILE", help="Write the profile as JSON.")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option("-c", "code", metavar="CODE", help="Run a text, as python -c does.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT ARGS…")
def run(
    plan_path: str | None,
    scheme: str | None,
    fuse: bool,
    profile: bool,
    strict: bool,
    json_path: str | None,
    module: str | None,
    code: str | None,
    arguments: tuple[str, ...],
) -> int:
    """Run a program with its products rewritten in memory."""
    from mixpert_py import config, launcher, running
    from mixpert_py.runtime.trace import Trace

    if module is not None and code is not None:
        raise click.UsageError("give one of -m and -c")
    is_script = module is None and code is None and bool(arguments)
    # Before the program is looked up: `-m package.module` imports the package for that.
    hook = running.project_hook(arguments[0] if is_script else None, fuse)
    if module is not None:
        program = launcher.module(module, arguments)
    elif code is not None:
        program = launcher.code(code, arguments)
    elif arguments:
        program = launcher.script(arguments[0], arguments[1:])
    else:
        raise click.UsageError("give a SCRIPT, -m MODULE or -c CODE")
    plan = config.plan_for(program.filename if program.is_file else None, plan_path)
    trace = Trace(()) if profile or json_path else Trace() if strict else None
    json_file = running.json_place(json_path)  # the program may change the folder
    process = os.getpid()
    exit_code = running.run(program, hook, plan, scheme, trace)
    if trace is None or os.getpid() != process:  # a child that the program forked says nothing
        return exit_code
    records = running.profile(program, hook, trace)
    if profile:
        from mixpert_py import tables

        tables.print_profile(records)
    if json_file:
        running.write_json(records, json_file)
    fallbacks = running.fallback_lines(program, records) if strict else []
    for line in fallbacks:
        click.echo(f"mixpert: {line}", err=True)
    return exit_code or int(bool(fallbacks))


@cli.command(cls=TuningCommand)
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
    """Find the fastest plan whose error stays within BUDGET, and write it.

    Every run of SCRIPT is a process of its own. The options may also stand right behind SCRIPT;
    what follows them, or `--`, is the program's. Every run is kept in a .trials.db file beside
    the plan: what Ctrl-C interrupts, --resume goes on with.
    """
    from mixpert_py import config, interrupts, launcher, limits, tables, tuning, tuning_record
    from mixpert_py import plan as plan_file
    from mixpert_py.runtime.in_force import emulates, require_backend
    from mixpert_py.trials import Trials, beside
    from mixpert_py.wish import Wish

    metrics = limits.parsed("--criterion", criteria)
    allowed = limits.made(limits.parsed_budgets("--error", budgets), metrics)
    there = limits.parsed_budgets("--hold-out-error", hold_out_budgets)
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
    allowed_there = limits.made(there, metrics) if there else None
    wish = Wish(
        allowed,
        compare,
        backend,
        time_limit,
        search,
        command,
        other,
        allowed_there,
        reference,
        ladder,
        None if workers == "gpus" else int(workers),
        device,
        dask,
    )
    trials = Trials(beside(path), resume, lambda line: click.echo(f"mixpert: {line}", err=True))
    # Ctrl-C is let through within a run only: what comes of it is written to the end.
    with interrupts.held() as interrupt:
        with tables.progress(as_json) as show:

            def on_run(purpose: str) -> None:
                interrupt.check()
                show(purpose)

            try:
                tuned = tuning.tune_program(program, wish, existing, on_run, trials=trials)
            except KeyboardInterrupt:  # before there was any plan
                return _interrupted()
        if tuned is None:
            click.echo(f"{script}: no matrix product to tune; no plan was written", err=True)
            if as_json:
                click.echo("null")
            return 0
        record = tuning_record.record(tuned, str(path))
        if tuned.worth_writing:
            plan_file.save(tuned.plan, path)
            trials.end(record, finished=not tuned.outcome.interrupted)
    if as_json:
        click.echo(json.dumps(record, indent=2))
    else:
        tables.print_tuned(tuned)
        click.echo(f"plan written to {path}" if tuned.worth_writing else "no plan was written")
    return _interrupted() if tuned.outcome.interrupted else 0


def _interrupted() -> int:
    click.echo("mixpert: interrupted; --resume goes on from here", err=True)
    return 130


@cli.group("plan")
def plan_group() -> None:
    """Look at plan files."""


@plan_group.command("show")
@click.argument("path", metavar="PLAN")
def plan_show(path: str) -> None:
    """Print a plan as a table."""
    from mixpert_py import config, tables

    tables.print_plan(config.load_plan(path))


@plan_group.command("validate")
@click.argument("path", metavar="PLAN")
def plan_validate(path: str) -> None:
    """Check a plan file: exit 0, or one line that names the key and its line."""
    from mixpert_py import config

    plan = config.load_plan(path)
    click.echo(f"{path}: valid, {len(plan.site)} call site{'s' * (len(plan.site) != 1)}")


@cli.command()
def doctor() -> int:
    """Say what is here, what would run, and what is missing."""
    from mixpert_py import tables
    from mixpert_py.doctor import examine

    findings = examine()
    tables.print_findings(findings)
    return 0 if all(finding.fine for finding in findings) else 2


cli.add_command(rewrite)
cli.add_command(unrewrite)
cli.add_command(bench)
cli.add_command(verify)
cli.add_command(report)
cli.add_command(tiles)
cli.add_command(probe)
plan_group.add_command(plan_diff)
