"""`python -m samples.papers`, from the folder that holds `samples/`."""

from pathlib import Path

import click

from mixpert_py.cli import main


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", multiple=True, metavar="EXHIBIT|PAPER", help="These alone; `list` names all."
)
@click.option("--small", is_flag=True, help="Small sizes; without a GPU errors alone, in NumPy.")
@click.option(
    "--seconds", default=450.0, show_default=True, help="No exhibit begins after so many."
)
@click.option("--json", "json_path", metavar="FILE", help="Brought up to date by every exhibit.")
@click.option("--save", is_flag=True, help="FILE is results.json, and README.md is made of it.")
@click.option("--html", metavar="FILE", help="Write all that FILE then has as a page.")
@click.option("--pages", is_flag=True, help="Measure nothing: take results.json.")
def papers(
    only: tuple[str, ...],
    small: bool,
    seconds: float,
    json_path: str | None,
    save: bool,
    html: str | None,
    pages: bool,
) -> int:
    """Tables and figures of five papers, measured on this GPU."""
    from samples.papers import run

    if save and small:
        raise click.UsageError("--save keeps results of full sizes, which --small does not make")
    if pages:
        run.write_readme()
        if html is not None:
            run.write_page(run.read(run.RESULT), Path(html))
        return 0
    path = run.RESULT if save else Path(json_path) if json_path else None
    code = run.run(only, small, seconds, path, Path(html) if html else None)
    if save and "list" not in only:
        run.write_readme()
    return code


if __name__ == "__main__":
    main(papers, "python -m samples.papers")
