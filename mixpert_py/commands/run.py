"""The command that runs a program rewritten in memory: `mixpert run`."""

import os
import sys

import click

from mixpert_py.commands.program import ProgramCommand


@click.command(cls=ProgramCommand)
@click.option("--plan", "plan_path", metavar="PLAN", help="Run under this plan.")
@click.option("--scheme", metavar="NAME", help="Run every product under this scheme.")
@click.option("--backend", metavar="NAME", help="reference: emulate tensor cores in NumPy.")
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
    backend: str | None,
    fuse: bool,
    profile: bool,
    strict: bool,
    json_path: str | None,
    module: str | None,
    code: str | None,
    arguments: tuple[str, ...],
) -> int:
    """Run a program with its products rewritten in memory."""
    from mixpert_py import config

    config.let_idle_threads_sleep()  # what is imported next imports NumPy
    from mixpert_py.launch import launcher, running
    from mixpert_py.runtime.tracing.trace import Trace

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
    asked = running.asked_for(plan if plan_path else None, scheme)
    if asked and backend is None:
        _tell_of_no_device(asked)
    path = list(sys.path)
    exit_code = running.run(program, hook, plan, scheme, trace, backend)
    if trace is None or os.getpid() != process:  # a child that the program forked says nothing
        return exit_code
    with launcher.looking_in(path):
        records = running.profile(program, hook, trace)
        if profile:
            from mixpert_py.commands import tables

            tables.print_profile(records)
        if json_file:
            running.write_json(records, json_file)
        fallbacks = running.fallback_lines(program, records) if strict else []
        for line in fallbacks:
            click.echo(f"mixpert: {line}", err=True)
    return exit_code or int(bool(fallbacks))


def _tell_of_no_device(schemes: list[str]) -> None:
    """On stderr, where what was asked for by name cannot run: the program's output says nothing."""
    from mixpert_py.runtime.gpu import device

    found = device.find()
    if isinstance(found, device.Absent):
        click.echo(
            f"mixpert: {', '.join(schemes)}: native here, since {found.sentence}; "
            "--backend reference emulates",
            err=True,
        )
