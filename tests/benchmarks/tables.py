"""The tables of the pages, made from saved results: the one writer of them.

Each table stands in a page between `<!-- bench NAME -->` and `<!-- end -->`. `python -m
tests.benchmarks.tables` writes all of them, and draws the two pictures.
"""

import re
from collections.abc import Callable, Mapping
from os.path import relpath
from pathlib import Path
from typing import Any

import click

from mixpert_py import files
from tests.benchmarks import (
    apps,
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
    ten_tunings,
)

Record = dict[str, Any]

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/measured.md")
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def parts() -> Mapping[str, tuple[str, Callable[[Record, str], str]]]:
    """The name of a mark → the name of its result, and its Markdown given the result and the link
    to the folder of pictures.
    """
    return {
        "staircase": ("gemm", lambda found, docs: staircase.of_float32(found).embedded(docs)),
        "levels": ("gemm", lambda found, docs: gemm.levels_markdown(found)),
        "numpy": ("apps", lambda found, docs: apps.host_sentence(found)),
        "gemm": ("gemm", lambda found, docs: gemm.speeds_markdown(found)),
        "families": ("gemm", lambda found, docs: gemm.families_markdown(found)),
        "float64": (
            "float64",
            lambda found, docs: (
                f"{staircase.of_float64(found).embedded(docs)}\n{float64.markdown(found)}"
            ),
        ),
        "apps": ("apps", lambda found, docs: apps.markdown(found)),
        "programs": ("programs-gpu", lambda found, docs: programs.markdown(found)),
        "calls": ("dispatch", lambda found, docs: dispatch.markdown(found)),
        "calls_on_gpu": ("dispatch-gpu", lambda found, docs: dispatch.markdown(found)),
        "models": ("models", lambda found, docs: models.markdown(found)),
        "exact": ("exact", lambda found, docs: exact.markdown(found)),
        "exact_gpu": ("exact-gpu", lambda found, docs: exact.markdown(found)),
        "exact_bits": ("exact-bits", lambda found, docs: exact_bits.sentence(found)),
        "looks": ("looks", looks.markdown),
        "tunings": ("tunings", ten_tunings.markdown),
        "first": ("first-example", lambda found, docs: ten_tunings.first_sentence(found)),
    }


def filled(page: Path) -> str:
    """The text of a page with every table of a saved result between its marks.

    Raises KeyError for a mark that no table has.
    """
    made, docs = parts(), relpath(ROOT / "docs", page.parent)

    def part(match: re.Match[str]) -> str:
        result, make = made[match[2]]
        found = machine.load(result)
        return match[0] if found is None else f"{match[1]}{make(found, docs)}{match[3]}"

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
