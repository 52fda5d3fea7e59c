"""The conventions of a command line; pages name commands and options that exist."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click
import pytest
import yaml

from mixpert_py import config, sources
from mixpert_py.cli import cli
from mixpert_py.errors import SourceError
from mixpert_py.notebook import MixPertMagics
from samples.papers.__main__ import papers
from tests import shipped_kernels
from tests.mixpert_py.command import IMPORTABLE, ROOT, Mixpert, Said, Shell, called
from tests.mixpert_py.command import child_environment as environment
from tests.mixpert_py.pages import PAGES, commands, typed

PROGRAM = "import sys\nimport numpy as np\na = np.eye(3)\nprint((a @ a).sum(), sys.argv[1:])\n"
TUNE = "tune --error 1 --backend reference"
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash is installed here")

COMPLETED = {
    "mixpert rew": "rewrite",
    "mixpert tune --err": "--error",
    "mixpert tune --ladder mix": "mixpert",
}


def test_the_shell_completes(mixpert: Mixpert) -> None:
    for words, wanted in COMPLETED.items():
        at = str(len(words.split()) - 1)
        said = mixpert(_MIXPERT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
        assert said.out == f"plain,{wanted}\n"


COMPLETED_BY_BASH = """\
compopt() { echo "files: $1 $2"; }
eval "$(_MIXPERT_COMPLETE=bash_source mixpert)"
for line in "mixpert rew" "mixpert tune s.py --err" "mixpert report s"
do
    COMP_WORDS=($line)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _mixpert_completion mixpert
    echo "${COMPREPLY[@]}"
done
"""


def bash(text: str, folder: Path, **more: str) -> Said:
    """What a line of bash leaves in which `mixpert` is this checkout's."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "mixpert"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mixpert_py "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"set -o pipefail; {text}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(PATH=path, **more),
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@needs_bash
def test_bash_completes(tmp_path: Path) -> None:
    said = bash(COMPLETED_BY_BASH, tmp_path)
    assert said.err == ""
    assert said.out.splitlines() == ["rewrite", "--error", "files: -o default", ""]


@needs_bash
def test_pipes_full_disks_closed_outputs_and_plain_terminals(sh: Shell) -> None:
    """A reader who has seen enough is no error; what cannot be written is one line at most."""
    folder = sh.write(
        {
            "many.py": "def f(a, b):\n" + "    a @ b\n" * 1200,
            "s.py": "x = π @ b\n",
            "o.py": "import sys\nopen('o', 'a').write(f'{sys.stdout}\\n')\nprint(1)\n",
        }
    )
    said = bash("mixpert rewrite --diff many.py | head -1", folder)
    assert (said.code, said.err) == (0, "")
    if Path("/dev/full").exists():
        said = bash("mixpert sites s.py > /dev/full", folder)
        assert said == Said(2, "", "mixpert: No space left on device\n")
    assert bash("mixpert rewrite --check s.py >&-", folder) == Said(1, "", "")
    for command in (f"{sys.executable} o.py >&-", "mixpert run o.py >&-"):
        assert bash(command, folder).code == 0
    assert sh.read("o") == "None\nNone\n"
    said = bash("mixpert sites s.py", folder, PYTHONIOENCODING="ascii")
    assert (said.code, said.err) == (0, "")


def test_an_internal_error_is_one_line(sh: Shell) -> None:
    sh.write({"msgspec.py": "raise RuntimeError('broken installation')\n"})
    broken = {"PYTHONPATH": f"{sh.folder}{os.pathsep}{IMPORTABLE}"}
    said = sh("report p.toml", 2, **broken)
    assert said.one_clear_line().startswith("mixpert: internal error: RuntimeError")
    assert "Traceback" in sh.mixpert("report", "p.toml", MIXPERT_DEBUG="1", **broken).err


def test_the_hooks_of_pre_commit_are_commands() -> None:
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        program, command, option = hook["entry"].split()
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        assert option in [name for param in found.params for name in param.opts]
        assert (program, hook["language"]) == ("mixpert", "python")


def test_quietly_only_the_exit_code_speaks(sh: Shell) -> None:
    sh.write({"s.py": PROGRAM})
    assert sh(f"{TUNE} -q s.py") == Said(0, "", "")
    assert sh("verify -q s.mixpert.toml s.py") == Said(0, "", "")


def test_verbosely_each_run_is_told(sh: Shell) -> None:
    sh.write({"s.py": PROGRAM})
    assert sh(f"{TUNE} -v s.py").err.startswith("run 1: ")


def test_a_project_has_defaults_for_a_tuning(sh: Shell) -> None:
    defaults = 'error = [1e-3, "b=1"]\ncriterion = "max"\ncompare = ["b"]\n'
    text = PROGRAM.replace("print(", "b = ").replace(".sum(), sys", "#")
    sh.write({"pyproject.toml": f"[tool.mixpert]\n{defaults}", "s.py": text})
    sh("tune --backend reference s.py")
    plan = config.load_plan(sh.folder / "s.mixpert.toml")
    (row,) = plan.criterion
    assert (row.name, row.metric, row.budget) == ("b", "max", 1.0)
    words = "mixpert tune --error 0.001 --error b=1 --criterion max --compare b --backend"
    assert plan.provenance.command.startswith(words)
    sh("tune --error 2 --backend reference s.py")
    assert config.load_plan(sh.folder / "s.mixpert.toml").criterion[0].budget == 2.0


@pytest.mark.parametrize("line", ["error = true", "criterion = 1", "compare = [1]", "packages = 1"])
def test_defaults_of_the_wrong_type_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.mixpert]\n{line}\n")
    key = line.partition(" ")[0]
    read = sources.packages if key == "packages" else sources.tuning_defaults
    with pytest.raises(SourceError, match=f"key 'tool.mixpert.{key}"):
        read(str(tmp_path / "s.py") if key != "packages" else str(tmp_path))


def test_a_project_names_the_packages_to_install(sh: Shell) -> None:
    text = "import mixpert_py\nhook = mixpert_py.install()\nimport net\nprint([*hook.rewritten])\n"
    sh.write({"s.py": text, "net.py": "import numpy as np\nx = np.eye(2) @ np.eye(2)\n"})
    assert "`packages` under [tool.mixpert]" in called("s.py", folder=sh.folder).err
    sh.write({"pyproject.toml": '[tool.mixpert]\npackages = ["net"]\n'})
    assert called("s.py", folder=sh.folder).out == "['net']\n"


def test_words_behind_the_script(sh: Shell) -> None:
    """Options of ours may stand right behind it; then come the program's own, --help among them."""
    sh.write(
        {
            "s.py": PROGRAM,
            "sites": PROGRAM,
            "own.py": "import sys\nimport numpy as np\na = np.eye(300)\nb = a @ a\n"
            "assert sys.argv[1:] == ['x', '--help']\n",
            "told.py": "import sys\nprint('--profile' in sys.argv, sys.argv[1:])\n",
        }
    )
    for script in ("s.py", "./sites"):  # in the place of a command
        sh(f"{script} -x b", out="3.0 ['-x', 'b']\n")
    said = sh.mixpert("estimate", "own.py", "--error", "1e-3", "--json", "x", "--help")
    assert (said.code, '"error": 0.001' in said.out) == (0, True), said
    said = sh.mixpert(*TUNE.split(), "own.py", "--json", "x", "--help")
    assert (said.code, '"budget"' in said.out) == (0, True), said
    sh("run s.py --scheme native --help", out="3.0 ['--help']\n")
    sh("run s.py -- --scheme", out="3.0 ['--scheme']\n")
    sh("run s.py -m x", out="3.0 ['-m', 'x']\n")
    told = "--profile was taken as an option of mixpert, and told.py has it, too"
    sh("run told.py --profile", out="False []\n", err=told)
    sh("run told.py -- --profile", out="True ['--profile']\n", err="")
    assert "was taken" not in sh("run --profile told.py").err


Words = tuple[str, ...]

MODULES: dict[str, click.Command | None] = {
    "tests.shipped_kernels": shipped_kernels.command,
    "samples.papers": papers,
    "pdoc": None,
    "venv": None,
    **{
        f"tests.benchmarks.{path.stem}": import_module(f"tests.benchmarks.{path.stem}").command
        for path in (ROOT / "tests" / "benchmarks").glob("*.py")
        if "\ndef command(" in path.read_text("utf-8")
    },
}
# What a word in a page stands for here; () where it stands for nothing.
MEANS: Mapping[str, Words] = {
    **dict.fromkeys(("SCRIPT", "PATH…", "PATH", "script.py"), ("program.py",)),
    **dict.fromkeys(("PLAN", "PLAN…", "A", "B"), ("program.mixpert.toml",)),
    **dict.fromkeys(("ARGS…", "ARGS", "…"), ()),
    "BUDGET": ("1e-3",),
    "DIR": ("page",),
    "FILE": ("made.json",),
    "OUT": ("made.py",),
    "NAME": ("float32",),
    "MODULE": ("program",),
    "S": ("60",),
    "1..59": ("1..2",),  # hold-outs, of which each is a run
}


NO_CONTEXT = click.Context(cli)
PYTHON = (("python", "-m"), ("python3", "-m"))
# Every command of the pages.
FOUND = dict.fromkeys(
    words
    for path in PAGES.values()
    for line in typed(path.read_text("utf-8"))
    for words in commands(line)
)
RUN = [words for words in FOUND if words[0] == "mixpert" or words[:2] in PYTHON]


def named(words: Words) -> tuple[click.Command | None, Words, Words]:
    """The command of `mixpert …`, or `python -m …`; the words that name it, and those that follow
    them. None: no command that click reads.
    """
    command, at = (cli, 1) if words[0] == "mixpert" else (MODULES[words[2]], 3)
    while isinstance(command, click.Group) and at < len(words):
        below = command.get_command(NO_CONTEXT, words[at])
        if below is None:
            break
        command = below
        at += 1
    return command, words[:at], words[at:]


def replaced(words: Sequence[str]) -> Words:
    """The words with what they stand for here."""
    return tuple(new for word in words for new in MEANS.get(word, (word,)))


def is_mention(command: click.Command, rest: Words) -> bool:
    """Whether a command is only named, perhaps with an option, without its operands."""
    if isinstance(command, click.Group):
        return True
    needs = [one for one in command.params if isinstance(one, click.Argument)]
    takes_value = {
        name
        for one in command.params
        if isinstance(one, click.Option) and not one.is_flag
        for name in one.opts
    }
    operands = [
        word
        for word, option in zip(rest, ("", *rest), strict=False)
        if not word.startswith("-") and option not in takes_value
    ]
    return not operands and any(not one.make_metavar(NO_CONTEXT).startswith("[") for one in needs)


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_it_is_read(words: Words) -> None:
    command, names, rest = named(words)
    if command is None:
        return
    assert not (rest and isinstance(command, click.Group)), f"{rest[0]} is no command"
    try:
        with command.make_context(" ".join(names), [*replaced(rest)]):
            pass
    except click.NoSuchOption:
        raise
    except click.UsageError:
        # A sentence may name a command, or an option of it, without what it takes.
        if not is_mention(command, rest):
            raise


def options_below(command: click.Command) -> set[str]:
    """The options of a command, and of all below it."""
    own = {name for option in command.params for name in option.opts}
    if isinstance(command, click.Group):
        for name in command.list_commands(NO_CONTEXT):
            below = command.get_command(NO_CONTEXT, name)
            assert below is not None
            own |= options_below(below)
    return own


@pytest.mark.parametrize("page", PAGES)
def test_every_option_exists(page: str) -> None:
    option = re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)", PAGES[page].read_text("utf-8"))
    modules = [command for command in MODULES.values() if command is not None]
    magic = re.findall("--[a-z]+", MixPertMagics.mixpert.parser.format_help())
    known = set().union({"--help"}, magic, *map(options_below, (cli, *modules)))
    samples = " ".join(path.read_text("utf-8") for path in (ROOT / "samples").glob("*.py"))
    for name in option:
        assert name in known or f'"{name}"' in samples, name


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = {words[-1] for words in FOUND if words[:2] == ("pip", "install")}
    assert asked
    for requirement in asked:
        place, _, extras = requirement.rstrip("]").partition("[")
        assert place in (".", project["name"]), requirement
        assert {*filter(None, extras.split(","))} <= project["optional-dependencies"].keys()


def test_options_of_samples_exist() -> None:
    for words in FOUND:
        for at, word in enumerate(words):
            if re.fullmatch(r"samples/\w+\.py", word) and words[1] != "rewrite":
                text = (ROOT / word).read_text("utf-8")
                behind = words[at + 1 :]
                own = behind[behind.index("--") :] if "--" in behind else behind
                known = set() if words[0] == "python" else options_of(words)
                for option in own:
                    name = option.partition(" ")[0]  # arguments of a hold-out are one word
                    if name.startswith("--") and len(name) > 2 and name not in known:
                        assert f'"{name}"' in text, (words, option)


def options_of(words: Words) -> set[str]:
    command, _, _ = named(words)
    return {name for param in (command or cli).params for name in param.opts}
