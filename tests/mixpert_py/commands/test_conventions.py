"""The conventions of a command line: completion, short forms, suggestions, exit codes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import mixpert_py
from mixpert_py import config
from mixpert_py.cli import cli
from mixpert_py.errors import SourceError
from mixpert_py.sources import project
from tests.mixpert_py.command import ROOT, Mixpert, Said, called, child_environment

PROGRAM = "import sys\nimport numpy as np\na = np.eye(3)\nprint((a @ a).sum(), sys.argv[1:])\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("mixpert rew", "plain,rewrite"),
        ("mixpert tune --err", "plain,--error"),
        ("mixpert tune --ladder mix", "plain,mixpert"),
        ("mixpert run --scheme int8x6", "plain,int8x6"),
        ("mixpert verify --criterion f", "plain,frobenius"),
        ("mixpert run --backend r", "plain,reference"),
    ],
)
def test_the_shell_completes(mixpert: Mixpert, words: str, wanted: str) -> None:
    at = str(len(words.split()) - 1)
    said = mixpert(_MIXPERT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
    assert said.out.splitlines() == [wanted]


COMPLETED_BY_BASH = """\
compopt() { echo "files: $1 $2"; }
eval "$(_MIXPERT_COMPLETE=bash_source mixpert)"
for line in "mixpert rew" "mixpert run --scheme faith" "mixpert tune s.py --err" "mixpert report s"
do
    COMP_WORDS=($line)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _mixpert_completion mixpert
    echo "${COMPREPLY[@]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash is installed here")
def test_bash_completes(tmp_path: Path) -> None:
    command = tmp_path / "mixpert"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mixpert_py "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETED_BY_BASH],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(PATH=path),
    )
    assert done.stderr == ""
    words = ["rewrite", "faithful", "--error", "files: -o default", ""]
    assert done.stdout.splitlines() == words


@pytest.mark.parametrize("word", ["s.py", "./sites"])
def test_a_script_in_the_place_of_a_command_is_run(
    tmp_path: Path, mixpert: Mixpert, word: str
) -> None:
    (tmp_path / word).write_text(PROGRAM)
    said = mixpert(word, "-x", "b")
    assert (said.code, said.out) == (0, "3.0 ['-x', 'b']\n"), said


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["rewritee", "s.py"], "'rewrite'"),
        (["run", "--profle", "s.py"], "'--profile'"),
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
    "sites": (["sites"], 2),
    "tune": (["tune", "--error", "1"], 2),
    "run": (["run"], 1),
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


def test_a_file_of_a_folder_that_has_no_product_is_not_parsed(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "open.py").write_text("x = (\n")
    assert mixpert("sites", ".").code == 0


def test_doctor_as_json(mixpert: Mixpert) -> None:
    said = mixpert("doctor", "--json")
    found = {entry["what"]: entry for entry in json.loads(said.out)}
    assert found["mixpert-py"]["found"] == mixpert_py.__version__
    assert all(entry["fine"] for entry in found.values()) == (said.code == 0)


def test_the_hooks_of_pre_commit_are_commands() -> None:
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        program, command, option = hook["entry"].split()
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        names = [name for param in found.params for name in param.opts]
        assert program == "mixpert"
        assert option in names
        assert hook["language"] == "python"


def test_quietly_only_the_exit_code_speaks(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    (tmp_path / "other.py").write_text(PROGRAM)
    assert mixpert("rewrite", "--check", "-q", "s.py", "other.py") == Said(1, "", "")
    assert mixpert("rewrite", "-q", "-w", "s.py") == Said(0, "", "")
    assert mixpert("rewrite", "--diff", "-q", "other.py").out.startswith("--- a/other.py")
    (tmp_path / "s.py").write_text(PROGRAM)
    tuned = mixpert("tune", "-q", "--error", "1", "--backend", "reference", "s.py")
    assert tuned == Said(0, "", "")
    assert (tmp_path / "s.mixpert.toml").is_file()
    assert mixpert("verify", "-q", "s.mixpert.toml", "s.py") == Said(0, "", "")


def test_verbosely_each_run_and_each_product_left_is_told(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(f"{PROGRAM}b = a @ a  # mixpert: off\n")
    said = mixpert("rewrite", "--check", "-v", "s.py")
    assert said.code == 1
    assert "s.py: line 5: not rewritten: " in said.one_clear_line()
    said = mixpert("tune", "-v", "--error", "1", "--backend", "reference", "s.py")
    assert said.code == 0
    assert said.err.splitlines()[0].startswith("run 1: ")


def test_a_project_has_defaults_for_a_tuning(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.mixpert]\nerror = [1e-3, "b=1"]\ncriterion = "max"\ncompare = ["b"]\n'
    )
    (tmp_path / "s.py").write_text(PROGRAM.replace("print(", "b = ").replace(".sum(), sys", "#"))
    assert mixpert("tune", "--backend", "reference", "s.py").code == 0
    plan = config.load_plan(tmp_path / "s.mixpert.toml")
    assert [(value.name, value.metric, value.budget) for value in plan.criterion] == [
        ("b", "max", 1.0)
    ]
    words = "mixpert tune --error 0.001 --error b=1 --criterion max --compare b --backend"
    assert plan.provenance.command.startswith(words)
    assert mixpert("tune", "--error", "2", "--backend", "reference", "s.py").code == 0
    assert config.load_plan(tmp_path / "s.mixpert.toml").criterion[0].budget == 2.0


@pytest.mark.parametrize("line", ["error = true", "criterion = 1", "compare = [1]", "packages = 1"])
def test_defaults_of_the_wrong_type_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.mixpert]\n{line}\n")
    key = line.partition(" ")[0]
    read = project.packages if key == "packages" else project.tuning_defaults
    with pytest.raises(SourceError, match=rf"\[tool.mixpert\] {key} is a"):
        read(str(tmp_path / "s.py") if key != "packages" else str(tmp_path))


def test_a_project_names_the_packages_to_install(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import numpy as np\nx = np.eye(2) @ np.eye(2)\n")
    (tmp_path / "s.py").write_text(
        "import mixpert_py\nhook = mixpert_py.install()\nimport net\nprint(list(hook.rewritten))\n"
    )
    said = called("s.py", folder=tmp_path)
    assert "`packages` under [tool.mixpert]" in said.err
    (tmp_path / "pyproject.toml").write_text('[tool.mixpert]\npackages = ["net"]\n')
    assert called("s.py", folder=tmp_path).out == "['net']\n"


@pytest.mark.parametrize(
    ("command", "taken", "shown"),
    [
        (["estimate"], ["--error", "1e-3", "--json"], '"error": 0.001'),
        (["tune"], ["--error", "1e-3", "--json"], '"budget"'),
    ],
)
def test_options_of_ours_may_stand_right_behind_the_script(
    tmp_path: Path, mixpert: Mixpert, command: list[str], taken: list[str], shown: str
) -> None:
    (tmp_path / "s.py").write_text(
        "import sys\nimport numpy as np\na = np.eye(300)\nb = a @ a\n"
        "assert sys.argv[1:] == ['x', '--help']\n"
    )
    said = mixpert(*command, "s.py", *taken, "x", "--help")
    assert said.code in (0, 1), said
    assert shown in said.out + said.err
    assert "AssertionError" not in said.err


def test_behind_the_script_the_program_has_its_own_help(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv[1:])\n")
    assert mixpert("run", "s.py", "-q", "--help").out == "['--help']\n"
    assert mixpert("run", "s.py", "--", "-q").out == "['-q']\n"
    assert mixpert("run", "s.py", "-m", "x").out == "['-m', 'x']\n"


def test_an_option_that_the_script_has_too_is_told(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text("import sys\nprint('--profile' in sys.argv)\n")
    said = mixpert("run", "s.py", "--profile")
    assert said.out == "False\n"
    assert "--profile was taken as an option of mixpert, and s.py has it, too" in said.err
    before, given = mixpert("run", "--profile", "s.py"), mixpert("run", "s.py", "--", "--profile")
    assert (given.out, given.err) == ("True\n", "")
    assert "was taken" not in before.err
