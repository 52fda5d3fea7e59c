"""Which files are a project's own, and what its pyproject.toml says."""

import os
from pathlib import Path

import pytest

from mixpert_py import sources
from mixpert_py.errors import SourceError
from mixpert_py.sources import ProjectSettings, packages, settings


def test_the_project_is_where_pyproject_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "home" / "work" / "src" / "scripts"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert sources.folder_of(str(inner)) == str(inner)
    for folder in ("home", "home/work"):
        (tmp_path / folder / "pyproject.toml").touch()
    assert sources.folder_of(str(inner)) == str(tmp_path / "home" / "work")
    (tmp_path / "home" / "work" / "pyproject.toml").unlink()
    assert sources.folder_of(str(inner)) == str(inner)  # that of a home is nobody's
    os.symlink(inner, tmp_path / "link")
    assert sources.folder_of(str(tmp_path / "link")) == str(inner)


FILES = {
    "s.py": True,
    "pkg/near.py": True,
    "src/pkg/near.py": True,
    ".venv/lib/near.py": False,
    "venv/near.py": False,
    "env/lib/python3.11/site-packages/near.py": False,
    "pkg/.hidden/near.py": False,
    "../near.py": False,
    "/elsewhere/near.py": False,
}


@pytest.mark.parametrize(("file", "own"), FILES.items(), ids=FILES)
def test_what_is_installed_in_it_is_not_its_own(file: str, own: bool) -> None:
    folder = os.path.join(os.sep, "site-packages", "project")
    assert sources.is_in(os.path.normpath(os.path.join(folder, file)), folder) is own
    assert not sources.is_in(f"{folder}s/near.py", folder)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "pyproject.toml"


def test_what_is_ours_is_read(file: Path) -> None:
    assert settings(str(file.parent)) == ProjectSettings()
    assert packages(str(file.parent)) == ()
    file.write_text("[tool.mixpert]\nexclude = ['a']\npackages = ['b']\n", "utf-8-sig")
    assert settings(str(file.parent)) == ProjectSettings(exclude=["a"], packages=["b"])
    assert packages(str(file.parent)) == ("b",)


WRONG = {
    "no text": b"[tool.mixpert]\npackages = '\xff'",
    "a long name": b"[tool.mixpert]\npackages" + b"x" * 5000 + b" = 1",
    "too large": b"[tool.mixpert]\npackages = 1\n" + b"#" * (1 << 20),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    for read in (settings, packages):
        with pytest.raises(SourceError) as caught:
            read(str(file.parent))
        assert str(caught.value).startswith(f"{file}: ")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
        assert not {"set_int_max_str_digits", "attribute"} & set(str(caught.value).split())


def test_no_more_is_read_than_is_needed(file: Path) -> None:
    file.write_text("[tool.mixpert]\npackages = 7\n")
    os.truncate(file, 1 << 40)
    with pytest.raises(SourceError, match=r"larger than 1 MiB$"):
        settings(str(file.parent))
