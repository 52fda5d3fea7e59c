"""What is installed is what is here."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

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
