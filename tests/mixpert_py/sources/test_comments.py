"""Comments to us that say nothing known: told with their line, and nothing is rewritten."""

import json
from pathlib import Path

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.sources import in_memory
from tests.mixpert_py.command import Mixpert

WRONG = [
    ("scheme", "# mixpert: scheme=foo", "unknown scheme 'foo'; known: "),
    ("word", "# mixpert: nonsense", "'# mixpert: nonsense' is not known: wanted `# mixpert: off`"),
    ("case", "# Mixpert: Off", "'# Mixpert: Off' is not known"),
]
_, COMMENT, SAID = WRONG[0]


@pytest.mark.parametrize("command", ["rewrite", "rewrite --check", "sites"])
def test_a_file_is_skipped(tmp_path: Path, mixpert: Mixpert, command: str) -> None:
    (tmp_path / "net.py").write_text(f"x = 1\nc = a @ b  {COMMENT}\n")
    told = mixpert(*command.split(), "net.py")
    assert told.code == 2
    assert told.one_clear_line().startswith(f"mixpert: net.py: line 2: {SAID}")
    assert list(tmp_path.iterdir()) == [tmp_path / "net.py"]


def test_a_notebook_names_the_cell(tmp_path: Path, mixpert: Mixpert) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
        for source in ("x = 1", f"y = 1\nc = a @ b  {COMMENT}")
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "nb.ipynb").write_text(json.dumps(notebook))
    told = mixpert("rewrite", "nb.ipynb")
    assert told.code == 2
    assert told.one_clear_line().startswith(f"mixpert: nb.ipynb: cell 2: line 2: {SAID}")


@pytest.mark.parametrize(("comment", "said"), [pytest.param(c, s, id=i) for i, c, s in WRONG])
def test_in_memory(comment: str, said: str) -> None:
    with pytest.raises(SourceError) as raised:
        in_memory.rewritten(f"c = a @ b  {comment}\n".encode(), "m", "<string>")
    assert str(raised.value).startswith(f"m: line 1: {said}")


def test_a_program_with_such_a_comment_runs_as_it_is(tmp_path: Path, mixpert: Mixpert) -> None:
    text = "import numpy as np\nprint(np.eye(2) @ np.eye(2))  # mixpert: scheme=foo\n"
    (tmp_path / "net.py").write_text(text)
    told = mixpert("run", "net.py")
    assert (told.code, told.out) == (0, "[[1. 0.]\n [0. 1.]]\n")
    assert "net.py:1: UserWarning: mixpert: line 2: unknown scheme 'foo'" in told.err
