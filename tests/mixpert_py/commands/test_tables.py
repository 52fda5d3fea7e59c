"""The tables that commands print, and what a tuning says of the whole program's time."""

from pathlib import Path

import pytest

from mixpert_py.runtime.reasons import MEANING, Reason
from tests.mixpert_py.command import Mixpert

PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
matrix = rng.standard_normal((400, 400))
result_of_the_first_of_the_products = matrix @ matrix
last = np.dot(result_of_the_first_of_the_products, matrix[:, None, 0:400].reshape(400, 400))
"""
PATH = "folder_of_programs/program.py"
PLAN = "folder_of_programs/program.mixpert.toml"
OPTIONS = ["--error", "1e-4", "--backend", "reference"]


@pytest.mark.parametrize("width", [60])
def test_tables_fit_narrow_terminals_and_keep_places(
    tmp_path: Path, mixpert: Mixpert, width: int
) -> None:
    (tmp_path / PATH).parent.mkdir()
    (tmp_path / PATH).write_text(PROGRAM)

    def printed(*words: str) -> str:
        said = mixpert(*words, COLUMNS=str(width))
        assert said.code == 0, said
        return said.err if "--profile" in words else said.out

    texts = {
        "run": printed("run", "--profile", PATH),
        "tune": printed("tune", *OPTIONS, PATH),
        "verify": printed("verify", PLAN, PATH),
        "report": printed("report", PLAN),
        "estimate": printed("estimate", "--time-limit", "30", PATH),
        "doctor": printed("doctor"),
    }
    assert f"plan written to {PLAN}" in texts["tune"]
    assert texts["verify"].startswith(f"{PLAN}: holds: ")
    for command, text in texts.items():
        assert "…" not in text, command
        if command in ("run", "tune", "report", "estimate"):
            assert "matrix @ matrix" in text
        for line in text.splitlines():
            # Sentences with a path, a command or figures to copy are left to the terminal to wrap.
            is_sentence = line.startswith((PLAN, "  ", "plan written", "Next: "))
            assert len(line.rstrip()) <= width or is_sentence, (command, line)


def test_every_reason_of_a_profile_is_explained(tmp_path: Path, mixpert: Mixpert) -> None:
    assert set(MEANING) == set(Reason)
    (tmp_path / "s.py").write_text("import numpy as np\na = np.eye(3)\nb = a @ a\n")
    words = ["run", "--profile", "--scheme", "float32", "s.py"]
    said = mixpert(*words, COLUMNS="200").err
    table, _, below = said.partition("\n\n")
    assert "too small (1)" in table
    assert "spread" in table
    names = [line.partition(": ")[0] for line in below.splitlines()]
    assert names == ["spread, bits", "too small"]
    assert f"too small: {MEANING[Reason.TOO_SMALL]}" in below
    narrow = mixpert(*words, COLUMNS="40").err
    assert "spread" not in narrow


def test_a_line_of_an_imported_module_comes_with_its_file(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "ours.py").write_text("def square(x):\n    return x @ x\n")
    (tmp_path / "s.py").write_text(
        "import numpy as np\nimport ours\nprint(ours.square(np.ones((1000, 1000))).sum())\n"
    )
    assert "ours.py:2  x @ x" in mixpert("run", "--profile", "s.py").err
    assert "ours.py:2  x @ x" in mixpert("estimate", "s.py").out
