"""What is installed is what is here."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import yaml

import mixpert_py

ROOT = Path(__file__).parent.parent
PARTS = ("passes", "runtime", "tuner")
DATA = (".py", ".typed", ".json", ".toml", ".cu", ".cuh", ".css", ".html", ".js", ".zip")


def expected() -> set[str]:
    """Every file that belongs into the wheel, by its name there."""
    names = set()
    for part, inside in [("mixpert_py", "mixpert_py"), *((p, f"mixpert_py/{p}") for p in PARTS)]:
        for path in (ROOT / part).rglob("*"):
            relative = path.relative_to(ROOT / part)
            linked = part == "mixpert_py" and relative.parts[0] in PARTS
            if path.suffix in DATA and path.is_file() and not linked:
                names.add(f"{inside}/{relative.as_posix()}")
    return names


def test_the_wheel_holds_every_source_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for part in ("mixpert_py", *PARTS):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected()


# Of version 1.2.0 of the Citation File Format: keys that must be there, and those that may be.
REQUIRED = {"authors", "cff-version", "message", "title"}
OPTIONAL = {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "preferred-citation", "references", "repository"),
    *("repository-artifact", "repository-code", "type", "url", "version"),
}
PERSON = {"family-names", "given-names", "orcid", "affiliation", "email", "website", "alias"}
REFERENCE = {"type", "title", "authors"}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_the_citation_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation.keys() >= REQUIRED
    assert citation.keys() <= REQUIRED | OPTIONAL
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    for key in ("version", "license", "keywords"):
        assert citation[key] == project()[key], key
    assert citation["authors"] == project()["authors"]
    for reference in citation["references"]:
        assert reference.keys() >= REFERENCE
        assert re.fullmatch(r"10\.\d{4,9}/\S+", reference.get("doi", "10.1234/none"))
        for person in reference["authors"]:
            assert person.keys() <= PERSON or person.keys() == {"name"}


def test_addresses_are_those_of_publications() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    for name, address in project()["urls"].items():
        assert len(name) <= 32  # an index takes no longer one
        assert re.fullmatch(r"https://(doi\.org|arxiv\.org/abs)/\S+", address)
        assert re.sub(r"^https://(doi\.org|arxiv\.org/abs)/", "", address) in citation


def test_versions_agree() -> None:
    assert project()["version"] == mixpert_py.__version__
    least = project()["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in project()["classifiers"]
