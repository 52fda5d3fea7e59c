"""A file that Python accepts and that cannot be rewritten is named by every command."""

import runpy
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

# LibCST, which confirms each product, does not read brackets around an annotated target.
ODD = "import numpy as np\n(x): int = np.eye(3) @ np.eye(3)\n"
LINE = "LibCST does not read line 2; the file is skipped"
FILES = {
    "odd.py": ODD,
    "s.py": "import odd\nprint(odd.x.sum())\n",
    "older.py": "try:\n    import broken\nexcept SyntaxError:\n    print('none')\n",
    "broken.py": "import numpy as np\nprint np.dot(1, 2)\n",
    "decorated.py": "import mixpert_py\n@mixpert_py.accelerate\ndef f(a):\n    (x): int = a @ a\n",
}
COMMANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "strict run of a module": (("run", "--strict", "-q", "s.py"), 1),
    "strict run": (("run", "--strict", "odd.py"), 1),
    "sites": (("sites", "odd.py"), 2),
    "estimate": (("estimate", "odd.py"), 2),
    "estimate of a module": (("estimate", "s.py"), 1),
    "tune": (("tune", "--error", "1", "odd.py"), 2),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("command", "code"), COMMANDS.values(), ids=COMMANDS)
def test_the_reason_is_told(
    folder: Path, mixpert: Mixpert, command: tuple[str, ...], code: int
) -> None:
    said = mixpert(*command)
    assert said.code == code, said
    assert LINE in said.err


def test_the_decorator_tells_the_reason(folder: Path) -> None:
    with pytest.warns(UserWarning, match="f is left as it is: .*: LibCST does not read line 4"):
        runpy.run_path(str(folder / "decorated.py"))


def test_a_module_that_python_does_not_accept_is_not_named(folder: Path, mixpert: Mixpert) -> None:
    said = mixpert("run", "--strict", "older.py")
    assert (said.code, said.out, said.err) == (0, "none\n", "")
