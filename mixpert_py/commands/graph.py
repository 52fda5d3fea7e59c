"""The command that shows which products feed which: `mixpert graph`."""

import sys
from dataclasses import replace

import click

from mixpert_py.commands.program import FILE, package_option, require_paths


@click.command()
@package_option
@click.argument("paths", nargs=-1, metavar="PATH…|-", type=FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "dot", "mermaid", "json"]),
    help="Default: the format that the ending of OUT names, else text.",
)
@click.option("-o", "--output", metavar="OUT", type=FILE, help="Write the graph here.")
def graph(
    packages: tuple[str, ...], paths: tuple[str, ...], form: str | None, output: str | None
) -> int:
    """Show which products' results can reach which others.

    `-` reads a program from standard input.
    """
    from mixpert_py import graph as graph_of
    from mixpert_py.sources import source_files
    from mixpert_py.sources.packages import files as files_of_packages

    require_paths(paths, packages)
    if paths == ("-",):
        graphs = [graph_of.of_source(sys.stdin.buffer.read(), "-", "stdin")]
    else:
        files = [*source_files.files_of_projects(paths, ())]
        libraries = files_of_packages(packages)
        graphs = graph_of.of_files([*files, *libraries])
        graphs = [replace(one, path=libraries.get(one.path, one.path)) for one in graphs]
    problems = [one.problem for one in graphs if one.problem is not None]
    for problem in problems:
        click.echo(f"mixpert: {problem}", err=True)
    content = graph_of.rendered(graphs, form, output)
    if output is None or output == "-":
        click.echo(content, nl=False)
    elif len(problems) < len(graphs):
        graph_of.write(output, content, graphs)
    return 2 if problems else 0
