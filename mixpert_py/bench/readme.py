"""The parts of the README, and of docs/measured.md, that are made from the kept results."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from mixpert_py import files
from mixpert_py.bench import host, predictions, scaling
from mixpert_py.bench.apps import readme as apps
from mixpert_py.bench.gemm import readme as gemm
from mixpert_py.bench.papers import run as papers
from mixpert_py.bench.soak import verdict as soak
from mixpert_py.errors import MixPertError

DOCS = "docs"  # beside the README: pictures, and the page of long tables
MEASURED = "measured.md"
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# name of a mark → its Markdown, None where no result is kept; given the link to DOCS
PARTS: Mapping[str, Callable[[str], str | None]] = {
    "gemm": gemm.sizes_part,
    "apps": apps.kept_part,
    "papers": papers.part,
    "host": lambda docs: host.part(),
    "targets": lambda docs: gemm.targets_part(),
    "families": lambda docs: gemm.families_part(),
    "model": lambda docs: predictions.part(),
    "soak": lambda docs: soak.part(),
    "scaling": lambda docs: scaling.part(),
}
# what those parts link to, written into DOCS
LINKED: tuple[Callable[[Path], None], ...] = (gemm.draw, apps.draw, papers.draw)


def parts(docs: str = DOCS) -> dict[str, str]:
    """Every part of which a result is kept, by name. Raises MixPertError where there is none."""
    made = {name: part for name, make in PARTS.items() if (part := make(docs)) is not None}
    if not made:
        raise MixPertError("no results are kept; `mixpert bench gemm --save` makes them")
    return made


def update(readme: Path) -> None:
    """Put each part between its marks, in the README or in docs/measured.md beside it, and what
    they link to into docs/. Raises MixPertError, and changes nothing, where a part has no mark.
    """
    docs = readme.parent / DOCS
    pages = [page for page in (readme, docs / MEASURED) if page == readme or page.exists()]
    texts = {page: page.read_text("utf-8") for page in pages}
    made = {page: parts(os.path.relpath(docs, page.parent)) for page in pages}
    marked = {name for text in texts.values() for _, name, _ in MARKED.findall(text)}
    missing = made[readme].keys() - marked
    if missing:
        raise MixPertError(f"no <!-- bench {min(missing)} --> … <!-- end --> to put a part into")
    for write in LINKED:
        write(docs)
    for page, text in texts.items():
        files.replace(page, filled(text, made[page]).encode())


def filled(text: str, made: Mapping[str, str]) -> str:
    """A page with its marked parts replaced by those that were made."""
    return MARKED.sub(
        lambda match: f"{match[1]}{made[match[2]]}{match[3]}" if match[2] in made else match[0],
        text,
    )
