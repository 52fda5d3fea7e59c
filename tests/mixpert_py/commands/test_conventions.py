"""The conventions of a command line: completion, short forms, suggestions, exit codes."""

import json
from pathlib import Path

import pytest

import mixpert_py
from tests.mixpert_py.command import Mixpert

PROGRAM = "import sys\nimport numpy as np\na = np.eye(3)\nprint((a @ a).sum(), sys.argv[1:])\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_completion_script(mixpert: Mixpert, shell: str) -> None:
    said = mixpert(_MIXPERT_COMPLETE=f"{shell}_source")
    assert said.code == 0
    assert f"_MIXPERT_COMPLETE={shell}_complete" in said.out
    assert "Usage" not in said.out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("mixpert unre", "plain,unrewrite"),
        ("mixpert tune --err", "plain,--error"),
        ("mixpert tune --ladder mix", "plain,mixpert"),
        ("mixpert verify a.toml s", "file,s"),
        ("mixpert rewrite s", "file,s"),
    ],
)
def test_the_shell_completes(mixpert: Mixpert, words: str, wanted: str) -> None:
    at = str(len(words.split()) - 1)
    said = mixpert(_MIXPERT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert said.out.splitlines() == [wanted]


@pytest.mark.parametrize("word", ["s.py", "./s.py", "./sites"])
def test_a_script_in_the_place_of_a_command_is_run(
    tmp_path: Path, mixpert: Mixpert, word: str
) -> None:
    (tmp_path / word).write_text(PROGRAM)
    said = mixpert(word, "--profile", "b")
    assert (said.code, said.out) == (0, "3.0 ['--profile', 'b']\n"), said


def test_the_name_of_a_command_comes_first(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "doctor").write_text(PROGRAM)
    assert "numpy" in mixpert("doctor").out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["rewritee", "s.py"], "'rewrite'"),
        (["tune", "--eror", "1", "s.py"], "'--error'"),
        (["run", "--profle", "s.py"], "'--profile'"),
        (["rewrite", "--chekc", "s.py"], "'--check'"),
        (["verify", "p.toml", "--eror=1", "s.py"], "'--error'"),
    ],
)
def test_a_mistyped_word_is_answered_with_a_likely_one(
    mixpert: Mixpert, arguments: list[str], wanted: str
) -> None:
    said = mixpert(*arguments)
    assert said.code == 2
    assert "Did you mean" in said.err
    assert wanted in said.err


# Neither file has a word of a product: they are not parsed for one.
NOT_PYTHON = {"open.py": "x = (\n", "old.py": "x = 1\nprint x\n"}
READERS = {
    "rewrite": (["rewrite", "--check"], 2),
    "rewrite -w": (["rewrite", "-w"], 2),
    "unrewrite": (["unrewrite", "--check"], 2),
    "sites": (["sites"], 2),
    "graph": (["graph"], 2),
    "tune": (["tune", "--error", "1"], 2),
    "run": (["run"], 1),
    "no command": ([], 1),
}


@pytest.mark.parametrize("file", NOT_PYTHON)
@pytest.mark.parametrize(("words", "code"), READERS.values(), ids=READERS)
def test_a_syntax_error_in_a_named_file_is_told(
    tmp_path: Path, mixpert: Mixpert, file: str, words: list[str], code: int
) -> None:
    (tmp_path / file).write_text(NOT_PYTHON[file])
    said = mixpert(*words, file)
    assert said.code == code, said
    line = NOT_PYTHON[file].count("\n")
    assert said.one_clear_line().startswith(f"mixpert: {file}: line {line}: ")
    assert (tmp_path / file).read_text() == NOT_PYTHON[file]


def test_a_syntax_error_in_a_text_from_stdin_is_told(mixpert: Mixpert) -> None:
    for command in (["rewrite"], ["unrewrite"], ["graph"]):
        said = mixpert(*command, "-", stdin="x = (\n")
        assert said.code == 2
        assert "line 1" in said.one_clear_line()


def test_a_file_of_a_folder_that_has_no_product_is_not_parsed(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "open.py").write_text("x = (\n")
    assert mixpert("sites", ".").code == 0


@pytest.mark.parametrize(
    "words", [["rewrite", "--scheme", "int8x7", "s.py"], ["run", "--plan", "p.toml", "s.py"]]
)
def test_a_mistyped_scheme_is_answered_with_a_likely_one(
    tmp_path: Path, mixpert: Mixpert, words: list[str]
) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    (tmp_path / "p.toml").write_text('[[site]]\nid = "m:f/matmul~1#0"\nscheme = "int8x7"\n')
    said = mixpert(*words)
    assert said.code == 2
    message = "unknown scheme 'int8x7'; did you mean 'int8x"
    assert message in said.one_clear_line()
    assert "faithful" in said.err


def test_doctor_as_json(mixpert: Mixpert) -> None:
    said = mixpert("doctor", "--json")
    found = {entry["what"]: entry for entry in json.loads(said.out)}
    assert found["mixpert-py"]["found"] == mixpert_py.__version__
    assert all(entry["fine"] for entry in found.values()) == (said.code == 0)


def test_the_package_shows_its_names() -> None:
    shown = set(dir(mixpert_py))
    assert {*mixpert_py.__all__, "__version__"} <= shown
    assert not {"Any", "import_module", "TYPE_CHECKING"} & shown
