"""The command that shows which products feed which: `mixpert graph`."""

import sys

import click

from mixpert_py.commands.program import FILE


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…|-", type=FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "dot", "mermaid", "json"]),
    default="text",
    show_default=True,
)
def graph(paths: tuple[str, ...], form: str) -> int:
    """Show which products' results can reach which others.

    `-` reads a program from standard input.
    """
    from mixpert_py import graph as graph_of
    from mixpert_py.sources import project

    if paths == ("-",):
        graphs = [graph_of.of_source(sys.stdin.buffer.read(), "-", "stdin")]
    else:
        files = dict.fromkeys(project.files_of_projects(paths, ()))
        graphs = [graph_of.of_file(path) for path in files]
    problems = [one.problem for one in graphs if one.problem is not None]
    for problem in problems:
        click.echo(f"mixpert: {problem}", err=True)
    click.echo(graph_of.FORMATS[form](graphs), nl=False)
    return 2 if problems else 0
