"""The command that says what was found, and prepares kernels: `mixpert doctor`."""

import json
from dataclasses import asdict

import click

from mixpert_py.commands.program import complete_files


@click.command()
@click.option(
    "--warm", is_flag=True, help="Compile the kernels that the default, or each PLAN, needs."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as a JSON list.")
@click.argument("plans", nargs=-1, metavar="[PLAN]...", shell_complete=complete_files)
def doctor(warm: bool, as_json: bool, plans: tuple[str, ...]) -> int:
    """Say what was found, what would run, and what is missing.

    With --warm: compile the kernels that the default products, or the sites of plans, will need on
    this GPU, and keep them on disk, so that no program waits for them.
    """
    if plans and not warm:
        raise click.UsageError("a PLAN is for --warm")
    from mixpert_py import config
    from mixpert_py.commands import tables
    from mixpert_py.doctor import compile_for, examine

    findings = compile_for([config.load_plan(path) for path in plans]) if warm else examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        tables.print_findings(findings)
    return 0 if all(finding.fine for finding in findings) else 2
