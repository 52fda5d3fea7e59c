"""Which files are a project's own."""

import os
from pathlib import Path

import pytest

from mixpert_py.sources import project


def test_the_project_is_where_pyproject_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "home" / "work" / "src" / "scripts"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert project.folder_of(str(inner)) == str(inner)
    for folder in ("home", "home/work"):
        (tmp_path / folder / "pyproject.toml").touch()
    assert project.folder_of(str(inner)) == str(tmp_path / "home" / "work")
    (tmp_path / "home" / "work" / "pyproject.toml").unlink()
    assert project.folder_of(str(inner)) == str(inner)  # that of a home is nobody's
    os.symlink(inner, tmp_path / "link")
    assert project.folder_of(str(tmp_path / "link")) == str(inner)


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
    assert project.is_in(os.path.normpath(os.path.join(folder, file)), folder) is own
    assert not project.is_in(f"{folder}s/near.py", folder)
