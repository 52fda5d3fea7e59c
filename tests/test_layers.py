"""Who knows what: each part imports only what it may."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FACE = {"mixpert_py.plan", "mixpert_py.errors", "mixpert_py.toml_lines"}

FORBIDDEN = {
    "passes": {"cupy", "numba", "numpy"},
    "runtime": {"libcst", "ast", "inspect"},
    "tuner": {"cupy", "libcst", "ast", "inspect", "subprocess"},
}


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("part", ["passes", "runtime", "tuner"])
def test_parts_do_not_import_one_another(part: str) -> None:
    files = list((ROOT / part).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            head = name.partition(".")[0]
            assert head not in FORBIDDEN[part], f"{path} imports {name}"
            if head == "mixpert_py":
                own = name == "mixpert_py" or name.startswith(f"mixpert_py.{part}")
                face = any(name == allowed or name.startswith(f"{allowed}.") for allowed in FACE)
                assert own or face, f"{path} imports {name}"


ROOMS = ("sources", "launch", "execution", "tuning", "commands")


@pytest.mark.parametrize("number", range(len(ROOMS)), ids=ROOMS)
def test_rooms_of_the_face_import_only_those_before_them(number: int) -> None:
    above = tuple(f"mixpert_py.{room}" for room in ROOMS[number + 1 :])
    files = list((ROOT / "mixpert_py" / ROOMS[number]).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            assert not name.startswith(above), f"{path} imports {name}"


# The rooms of the runtime. Its files outside of these are either below all of them (schemes' parts,
# requests, reasons, types) or above (what a call passes through: `api`, `execute`, `select`).
RUNTIME_ROOMS = (
    *("schemes", "kernels", "packing", "model", "reference"),
    *("gpu", "tracing", "products", "probes"),
)


@pytest.mark.parametrize("number", range(len(RUNTIME_ROOMS)), ids=RUNTIME_ROOMS)
def test_rooms_of_the_runtime_import_only_those_before_them(number: int) -> None:
    above = tuple(f"mixpert_py.runtime.{room}" for room in RUNTIME_ROOMS[number + 1 :])
    files = list((ROOT / "runtime" / RUNTIME_ROOMS[number]).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            assert not name.startswith(above), f"{path} imports {name}"


def test_every_room_of_the_runtime_has_its_place() -> None:
    folders = {path.parent.name for path in (ROOT / "runtime").glob("*/__init__.py")}
    assert folders == set(RUNTIME_ROOMS)


def test_every_room_has_its_place() -> None:
    folders = {path.parent.name for path in (ROOT / "mixpert_py").glob("*/__init__.py")}
    assert folders == {*ROOMS, "passes", "runtime", "tuner"}


def test_only_the_face_reads_the_environment() -> None:
    for part in ("passes", "runtime", "tuner", "mixpert_py"):
        for path in (ROOT / part).rglob("*.py"):
            text = path.read_text()
            if path.name not in ("config.py", "cli.py"):
                assert "os.environ" not in text, path
