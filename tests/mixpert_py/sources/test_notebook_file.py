"""Notebooks: products in code cells are rewritten, and all else stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.sources.notebook_file import Changed, plain, rewrite_notebook
from tests.mixpert_py.command import Mixpert

CELLS = [
    "# Größe\n`a @ b` is a product.",
    "%matplotlib inline\nimport numpy as np\nfiles = !ls",
    'def f(a, b):\n    """Größe"""\n    !echo a @ b\n    return np.dot(a, b)  # é',
    "%%time\nc = a @ b",
    "np.dot?\nz = (a\n     % b) @ f(a, b)\nz",
    "c = a @",
    "",
]


def notebook(cells: list[str] = CELLS, *, lists: bool = True, **changes: Any) -> dict[str, Any]:
    made = []
    for index, text in enumerate(cells):
        source = text.splitlines(keepends=True) if lists else text
        kind = {"cell_type": "code", "outputs": ["a @ b"]} if index else {"cell_type": "markdown"}
        made.append({**kind, "metadata": {"source": "a @ b"}, "source": source})
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **changes}


def rewrite(raw: bytes) -> Changed:
    return rewrite_notebook(raw, "nb", None, None)


FORMS: list[dict[str, Any]] = [
    {"indent": 1, "ensure_ascii": False},
    {},
    {"separators": (",", ":"), "ensure_ascii": False},
]


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "strings"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("end", ["", "\n", " \r\n"], ids=repr)
def test_only_the_products_change(form: dict[str, Any], lists: bool, end: str) -> None:
    before = notebook(lists=lists)
    raw = (json.dumps(before, **form) + end).encode()
    made = rewrite(raw)
    after = json.loads(made.source)
    # The same writer would write the result the same way, so all else stayed.
    assert made.source == (json.dumps(after, **form) + end).encode()
    texts = [cell["source"] for cell in after["cells"]]
    if lists:
        assert all(text == "".join(text).splitlines(keepends=True) for text in texts)
        texts = ["".join(text) for text in texts]
    assert [i for i, text in enumerate(texts) if text != CELLS[i]] == [2, 4]
    first, *rest = texts[2].split("\n")
    assert first.startswith("import mixpert_py as _mixpert")
    assert rest[:3] == CELLS[2].split("\n")[:3]
    assert "_mixpert.dot(a, b, site=" in rest[3]
    assert rest[3].endswith("# é")
    assert [(site.cell, site.line) for site in made.sites] == [(2, 4), (4, 2)]
    assert rewrite(made.source).source == made.source


def test_the_import_stands_behind_a_future_import() -> None:
    raw = json.dumps(notebook(["", "from __future__ import annotations\nc = a @ b"])).encode()
    made = rewrite(raw)
    lines = json.loads(made.source)["cells"][1]["source"]
    assert [line[:6] for line in lines] == ["from _", "import", "c = _m"]


@pytest.mark.parametrize("source", ['"\\u0061 @ b"', '["a @", " b"]'])
def test_every_spelling_of_a_source_is_rewritten(source: str) -> None:
    cell = f'{{"cell_type": "code", "source": {source}, "outputs": ["\\ud83d é"]}}'
    made = json.loads(rewrite(f'{{"nbformat": 4, "cells": [{cell}]}}'.encode()).source)
    assert "_mixpert.matmul(a, b, site=" in "".join(made["cells"][0]["source"])
    assert made["cells"][0]["outputs"] == ["\ud83d é"]


REFUSED = [
    ("no JSON", b'{"cells": [', "not a notebook"),
    ("no object", b"[]", "no list of cells"),
    ("format", json.dumps(notebook(nbformat=3)).encode(), "format 3"),
    ("no format", b'{"cells": []}', "format None"),
    ("encoding", json.dumps(notebook()).encode("utf-16"), "UTF-8"),
    ("depth", b"[" * 100_000, "not a notebook"),
    ("source", b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}', "no text"),
    (
        "one line",
        json.dumps(notebook(["", "from __future__ import annotations; c = a @ b"])).encode(),
        "number of lines changes",
    ),
]


@pytest.mark.parametrize(("raw", "words"), [pytest.param(r, w, id=i) for i, r, w in REFUSED])
def test_one_line_says_what_is_wrong(raw: bytes, words: str) -> None:
    with pytest.raises(SourceError) as raised:
        rewrite(raw)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


MAGICS = [
    ("line", "%time a @ b\nx", "pass\nx"),
    ("shell", "!ls a @ b \\\n  more @\nx", "pass\n\nx"),
    ("assigned", "x = %time a\ny.z = !ls", "x = 0\ny.z = 0"),
    ("help", "a?\n??b\nc.d??  ", "pass\npass\npass"),
    ("block", "if x:\n    %time y\n    z", "if x:\n    pass\n    z"),
    ("string", "!ls\nx = '''\n%time\na?\n'''", "pass\nx = '''\n%time\na?\n'''"),
    ("modulo", "!ls\nx = (a\n% b)", "pass\nx = (a\n% b)"),
    ("comment", "!ls\nx  # why?", "pass\nx  # why?"),
    ("inequality", "!ls\nx != y", "pass\nx != y"),
    ("python", "x = 5 % 2", "x = 5 % 2"),
    ("cell", "%%bash\nls", None),
    ("broken", "x = (", None),
    ("await", "await x", "await x"),
]


@pytest.mark.parametrize(("cell", "expected"), [pytest.param(c, e, id=i) for i, c, e in MAGICS])
def test_lines_of_ipython_are_hidden(cell: str, expected: str | None) -> None:
    assert plain(cell) == expected


def test_the_graph_of_all_cells(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "nb.ipynb").write_text(json.dumps(notebook()))
    sites = json.loads(mixpert("sites", "--json", "nb.ipynb").out)
    for path in ("nb.ipynb", "."):
        said = mixpert("graph", path, "--format", "json")
        graph = json.loads(said.out)
        assert (said.code, said.err) == (0, "")
        assert [one["id"] for one in graph["operators"]] == [site["id"] for site in sites]
        assert [(one["cell"], one["line"]) for one in graph["operators"]] == [(2, 4), (4, 2)]
        ((producer, consumer),) = [(one["producer"], one["consumer"]) for one in graph["edges"]]
        assert [producer, consumer] == [site["id"] for site in sites]
    assert " cell_2:4:12 " in mixpert("graph", "nb.ipynb").out
    for form in ("dot", "mermaid"):
        assert "cell_2:4" in mixpert("graph", "nb.ipynb", "--format", form).out
    (tmp_path / "bad.ipynb").write_text("{")
    said = mixpert("graph", ".")
    assert said.code == 2
    assert said.one_clear_line().startswith("mixpert: ./bad.ipynb: not a notebook")


def test_the_commands(tmp_path: Path, mixpert: Mixpert) -> None:
    raw = json.dumps(notebook(), indent=1, ensure_ascii=False).encode() + b"\n"
    (tmp_path / "nb.ipynb").write_bytes(raw)
    (tmp_path / "bad.ipynb").write_text("{")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/nb.ipynb").write_bytes(raw)
    records = json.loads(mixpert("sites", "--json", "nb.ipynb").out)
    assert [(r["path"], r["line"]) for r in records] == [
        ("nb.ipynb:cell_2", 4),
        ("nb.ipynb:cell_4", 2),
    ]
    assert mixpert("rewrite", "--check", "nb.ipynb").code == 1
    said = mixpert("rewrite", "--diff", "nb.ipynb")
    assert said.code == 0
    assert '+    "import mixpert_py as _mixpert' in said.out
    said = mixpert("rewrite", "-w", ".")
    assert said.code == 2
    assert said.one_clear_line().startswith("mixpert: ./bad.ipynb: not a notebook")
    (tmp_path / "nb.ipynb").write_bytes(raw)
    assert mixpert("rewrite", "nb.ipynb").out == "nb_mixpert.ipynb: 2 products rewritten\n"
    assert mixpert("rewrite", "nb.ipynb").code == 0
