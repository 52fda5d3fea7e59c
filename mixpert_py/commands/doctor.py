"""The command that says what is here: `mixpert doctor`."""

import click


@click.command()
def doctor() -> int:
    """Say what is here, what would run, and what is missing."""
    from mixpert_py.commands import tables
    from mixpert_py.doctor import examine

    findings = examine()
    tables.print_findings(findings)
    return 0 if all(finding.fine for finding in findings) else 2
