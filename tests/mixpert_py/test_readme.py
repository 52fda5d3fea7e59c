"""What the README and the pages in docs/ say is so, where that can be seen cheaply."""

import re
from pathlib import Path

import pytest

import mixpert_py
from mixpert_py.commands.rewrite import rewrite_source
from tests.mixpert_py.command import ROOT
from tests.mixpert_py.pages import PAGES, README

LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset)=\"([^\"]+)\"")

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def anchors(text: str) -> set[str]:
    """Where links into a page may lead: its headings, as they are spelt in an address."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    found = [one or other for one, other in LINK.findall(page.read_text("utf-8"))]
    for link in found:
        if link.startswith("https://"):
            continue  # nothing here may ask the network
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target.read_text("utf-8")), link


def test_every_page_is_linked_from_the_readme() -> None:
    text = README.read_text("utf-8")
    for name in PAGES:
        assert not name.startswith("docs/") or f"({name})" in text, name


@every_page
def test_every_place_in_the_code_exists(page: Path) -> None:
    parts = "mixpert_py|passes|runtime|tuner|tests|samples"
    for place in re.findall(rf"`((?:{parts})/[\w./-]*)`", page.read_text("utf-8")):
        assert (ROOT / place).exists(), place


def test_the_diff_is_what_rewrite_makes() -> None:
    (shown,) = re.findall(r"```diff\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    source = (ROOT / "samples" / "diffusion.py").read_bytes()
    file = "samples/diffusion.py"
    made = rewrite_source(source, file, "diffusion").diff()
    # Blank lines of context are empty here, and a single blank in a diff.
    assert shown == "".join(f"{line.rstrip()}\n" for line in made.splitlines())


@pytest.mark.parametrize(("library", "products"), [("torch", 3), ("cupy", 2)])
def test_the_products_of_the_programs_shown_are_found(library: str, products: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (source,) = (text for text in blocks if text.startswith(f"import {library}"))
    made = rewrite_source(source.encode(), "program.py", "program")
    assert made.after.decode().count(" site=") == products


def test_every_command_is_explained() -> None:
    from mixpert_py.cli import ALONE

    text = PAGES["docs/commands.md"].read_text("utf-8")
    for name in ALONE:
        assert f"| `mixpert {name}" in text, name


def test_every_scheme_is_listed() -> None:
    text = PAGES["docs/accuracy.md"].read_text("utf-8")
    table = text.partition("\n## Schemes\n")[2].partition("\n\nThe INT8 ")[0]
    assert set(re.findall(r"`([\w-]+)`", table)) == set(mixpert_py.schemes())
