"""What is ours in pyproject.toml, and one line for a file that is wrong."""

import os
from pathlib import Path

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.sources.pyproject import table, workspace_limit


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "pyproject.toml"


def test_what_is_ours_is_read(file: Path) -> None:
    assert table(file) == {}
    assert workspace_limit(str(file.parent)) is None
    file.write_text("[tool.mixpert]\nexclude = ['a']\nworkspace_limit = 7\n", "utf-8-sig")
    assert table(file) == {"exclude": ["a"], "workspace_limit": 7}
    assert workspace_limit(str(file.parent)) == 7


WRONG = {
    "no text": b"[tool.mixpert]\nworkspace_limit = '\xff'",
    "deep": b"workspace_limit = " + b"[" * 5000,
    "a key of many parts": b"workspace_limit" + b'."a\\"b"' * 20_000 + b" = 1",
    "a number too large": b"[tool.mixpert]\nworkspace_limit = 0x" + b"f" * 5000,
    "a long name": b"[tool.mixpert]\nworkspace_limit" + b"x" * 5000 + b" = 1",
    "too large": b"[tool.mixpert]\nworkspace_limit = 1\n" + b"#" * (1 << 20),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    for read in (lambda: table(file), lambda: workspace_limit(str(file.parent))):
        with pytest.raises(SourceError) as caught:
            read()
        assert str(caught.value).startswith(f"{file}: ")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500


def test_no_more_is_read_than_is_needed(file: Path) -> None:
    file.write_text("[tool.mixpert]\nworkspace_limit = 7\n")
    os.truncate(file, 1 << 40)
    with pytest.raises(SourceError, match=r"larger than 1 MiB$"):
        table(file)
