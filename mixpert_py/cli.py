"""The command line: options in, one call, exit code out. What the commands do is elsewhere.

Exit codes: 0 fine; 1 a check that would change something, a call that could not be restored, a
fallback under --strict, a program too noisy for its budget, a plan that does not hold; 2 usage,
parse or program error; 130 after Ctrl-C. `run` passes the program's own on.
"""

import io
import json
import os
import sys
from pathlib import Path

import click

from mixpert_py import __version__
from mixpert_py.bench.commands import bench
from mixpert_py.errors import MixPertError
from mixpert_py.file_commands import rewrite, unrewrite
from mixpert_py.gpu_cluster import cluster
from mixpert_py.plan_diff_command import plan_diff
from mixpert_py.probe_command import probe
from mixpert_py.program_command import ProgramCommand
from mixpert_py.report_command import report
from mixpert_py.tiles_command import tiles
from mixpert_py.tune_command import tune
from mixpert_py.verify_command import verify


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


cli.add_command(tune)
cli.add_command(rewrite)
cli.add_command(unrewrite)
cli.add_command(bench)
cli.add_command(verify)
cli.add_command(report)
cli.add_command(tiles)
cli.add_command(probe)
cli.add_command(cluster)
plan_group.add_command(plan_diff)
