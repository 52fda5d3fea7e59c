"""The command that says what is here: `mixpert doctor`."""

import json
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was found as a JSON list.")
def doctor(as_json: bool) -> int:
    """Say what is here, what would run, and what is missing."""
    from mixpert_py.commands import tables
    from mixpert_py.doctor import examine

    findings = examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        tables.print_findings(findings)
    return 0 if all(finding.fine for finding in findings) else 2
