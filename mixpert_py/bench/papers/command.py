"""`mixpert bench papers` on the command line."""

from pathlib import Path

import click


@click.command("papers")
@click.option(
    "--only", multiple=True, metavar="EXHIBIT|PAPER", help="These alone; `list` names all."
)
@click.option("--small", is_flag=True, help="Small sizes; without a GPU errors alone, in NumPy.")
@click.option(
    "--seconds", default=450.0, show_default=True, help="No exhibit begins after so many."
)
@click.option("--json", "json_path", metavar="FILE", help="Brought up to date by every exhibit.")
@click.option("--save", is_flag=True, help="FILE is beside the code, for the README.")
@click.option("--html", metavar="FILE", help="Write all that FILE then has as a page.")
def bench_papers(
    only: tuple[str, ...],
    small: bool,
    seconds: float,
    json_path: str | None,
    save: bool,
    html: str | None,
) -> int:
    """Tables and figures of five papers, measured on this GPU."""
    if save and small:
        raise click.UsageError("--save keeps results of full sizes, which --small does not make")
    from mixpert_py.bench.papers import run

    path = run.RESULT if save else Path(json_path) if json_path else None
    return run.run(only, small, seconds, path, Path(html) if html else None)
