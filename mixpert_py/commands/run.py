"""The command that runs a program rewritten in memory: `mixpert run`."""

import gc
import json
import os
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import click

from mixpert_py import commands
from mixpert_py.commands import FILE, say
from mixpert_py.errors import writing


class RunOptions(NamedTuple):
    packages: tuple[str, ...]
    plan_path: str | None
    scheme: str | None
    backend: str | None
    profile: bool
    json_path: str | None
    module: str | None
    arguments: tuple[str, ...]

    @property
    def script(self) -> str | None:
        """The file to run; None for a module, or if none is named."""
        return self.arguments[0] if self.module is None and self.arguments else None


@click.command(cls=commands.ProgramCommand)
@commands.package_option
@click.option("--plan", "plan_path", metavar="PLAN", type=FILE, help="Run under this plan.")
@click.option("--scheme", metavar="NAME", help="Run every product under this scheme.")
@commands.backend_option
@click.option("--profile", is_flag=True, help="Print what ran at each product, and why.")
@click.option("--json", "json_path", metavar="FILE", type=FILE, help="Write the profile as JSON.")
@commands.module_option
@commands.program_argument
@commands.as_record(RunOptions)
def run(options: RunOptions) -> int:
    """Run a program with its products rewritten in memory."""
    from mixpert_py import config

    gc.disable()  # until the program begins, all that is made stays
    config.let_idle_threads_sleep()  # what is imported next imports NumPy
    from mixpert_py import files
    from mixpert_py.launch import profile, running
    from mixpert_py.runtime.context import SchemeUse
    from mixpert_py.sources.modules import unused_line

    arguments = options.arguments if options.script is None else options.arguments[1:]
    program = commands.program_of(options.module, options.script, arguments)
    hook = running.project_hook(options.script, options.packages)
    plan = config.plan_for(program.filename, options.plan_path)
    if plan is not None:
        named = [*hook.packages, *(package.name for package in plan.package)]
        hook.packages = tuple(dict.fromkeys(named))
    trace = None
    if options.profile or options.json_path:
        from mixpert_py.runtime.tracing.trace import Trace

        trace = Trace(())
    json_file = None
    if options.json_path is not None:
        with writing(options.json_path):
            json_file = Path(os.path.abspath(options.json_path))  # programs change folders
            files.require_place(json_file)
    process = os.getpid()
    config.check_scheme(options.scheme)
    uses = None if options.scheme is None else SchemeUse(options.scheme)
    start = perf_counter()
    exit_code = running.run(program, hook, plan, uses, trace, options.backend)
    seconds = perf_counter() - start
    if os.getpid() != process:  # a child that the program forked says nothing
        return exit_code
    # A trace has the reason for each product.
    if uses is not None and trace is None and (why_not := uses.why_not()):
        say(f"--scheme {options.scheme}: {why_not}")
    for line in (*map(unused_line, hook.without_modules()), *hook.refused_lines()):
        say(line)
    if trace is None:
        return exit_code
    from mixpert_py.runtime.tracing.cost import without_cost

    without_cost(trace, seconds)
    records = profile.profile(program, hook, trace)
    if options.profile:
        from mixpert_py.commands import tables

        tables.print_profile(records, script=program.filename)
    if json_file:
        with writing(json_file):
            files.replace(json_file, json.dumps(records, indent=2).encode())
    return exit_code
