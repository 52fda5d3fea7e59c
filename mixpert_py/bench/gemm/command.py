"""`mixpert bench gemm` on the command line."""

from pathlib import Path
from typing import Any

import click

from mixpert_py.commands.program import complete_schemes


class Shape(click.ParamType[tuple[int, int, int]]):
    """m, k, n, written as one number or three with an x between them."""

    name = "shape"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        try:
            sizes = [int(part) for part in str(value).split("x")]
        except ValueError:
            sizes = []
        if len(sizes) not in (1, 3) or min(sizes, default=0) < 1:
            self.fail(f"{value!r} is no N or MxKxN")
        return sizes[0], sizes[len(sizes) // 2], sizes[-1]


@click.command("gemm")
@click.option(
    "--suite",
    type=click.Choice(["sizes", "targets"]),
    default="sizes",
    show_default=True,
    help="sizes: schemes and cuBLAS over sizes and input families; targets: what is to be reached.",
)
@click.option("--size", "shapes", type=Shape(), multiple=True, metavar="N|MxKxN")
@click.option("--scheme", "schemes", multiple=True, metavar="NAME", shell_complete=complete_schemes)
@click.option("--mode", "modes", multiple=True, metavar="NAME", help="A mode of cuBLAS.")
@click.option("--family", "families", multiple=True, metavar="NAME", help="Of operands.")
@click.option("--error-size", default=2048, show_default=True, help="Where families are judged.")
@click.option("--samples", default=20, show_default=True, type=click.IntRange(2))
@click.option(
    "--only", multiple=True, metavar="WORD", help="Sections that begin so; `list` names all."
)
@click.option("--resume", is_flag=True, help="Keep the sections that FILE has already.")
@click.option("--json", "json_path", metavar="FILE", help="Written after every section.")
@click.option("--save", is_flag=True, help="FILE is beside the code, for the pages.")
def bench_gemm(
    only: tuple[str, ...], resume: bool, json_path: str | None, save: bool, **suite: Any
) -> int:
    """Schemes against every mode of cuBLAS: time, error, grade."""
    from mixpert_py.bench.gemm import run

    options = run.Options(**suite)
    run.check(options)
    path = run.saved_path(options.suite) if save else Path(json_path) if json_path else None
    return run.run(options, path, only, resume)
