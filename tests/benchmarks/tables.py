"""The tables of the pages, made from saved results: the one writer of them.

Each table stands in a page between `<!-- bench NAME -->` and `<!-- end -->`. `python -m
tests.benchmarks.tables` writes all of them, and draws the two pictures.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mixpert_py import files
from tests.benchmarks import (
    apps,
    complex_products,
    dispatch,
    exact,
    exact_bits,
    float64,
    gemm,
    looks,
    machine,
    models,
    programs,
    staircase,
    symmetric,
    ten_tunings,
)

Record = dict[str, Any]

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/measured.md")
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


# The name of a mark → the name of its result, and what makes Markdown of the result.
PARTS: dict[str, tuple[str, Callable[[Record], str]]] = {
    "staircase": ("gemm", lambda found: staircase.of_float32(found).embedded("docs")),
    "levels": ("gemm", gemm.levels_markdown),
    "numpy": ("apps", apps.host_sentence),
    "gemm": ("gemm", gemm.speeds_markdown),
    "families": ("gemm", gemm.families_markdown),
    "float64": (
        "float64",
        lambda found: f"{staircase.of_float64(found).embedded('.')}\n{float64.markdown(found)}",
    ),
    "apps": ("apps", apps.markdown),
    "programs": ("programs-gpu", programs.markdown),
    "calls": ("dispatch", dispatch.markdown),
    "calls_on_gpu": ("dispatch-gpu", dispatch.markdown),
    "sweep": ("sweep", dispatch.sweep_sentence),
    "models": ("models", models.markdown),
    "exact": ("exact", exact.markdown),
    "exact_gpu": ("exact-gpu", exact.markdown),
    "exact_bits": ("exact-bits", exact_bits.sentence),
    "looks": ("looks", looks.markdown),
    "complex": ("complex-products", complex_products.markdown),
    "symmetric": ("symmetric", symmetric.markdown),
    "tunings": ("tunings", ten_tunings.markdown),
    "first": ("first-example", ten_tunings.first_sentence),
}


def filled(page: Path) -> str:
    """The text of a page with every table of a saved result between its marks.

    Raises KeyError for a mark that no table has.
    """

    def part(match: re.Match[str]) -> str:
        result, make = PARTS[match[2]]
        found = machine.load(result)
        return match[0] if found is None else f"{match[1]}{make(found)}{match[3]}"

    return MARKED.sub(part, page.read_text("utf-8"))


@click.command()
def command() -> None:
    """Write the tables and pictures of the pages from saved results."""
    for name in PAGES:
        files.replace(ROOT / name, filled(ROOT / name).encode())
    for result, make in (("gemm", staircase.of_float32), ("float64", staircase.of_float64)):
        found = machine.load(result)
        if found is not None:
            staircase.draw(make(found), ROOT / "docs")


if __name__ == "__main__":
    command()
