"""Every command in the pages is run, or at least read as the command line reads it.

A sample that a command runs is a short program here, which takes any arguments: the samples are run
by tests of their own. Words in capitals stand for files and numbers of this test.
"""

import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click
import pytest

from mixpert_py.cli import cli
from mixpert_py.commands.program import ProgramCommand
from mixpert_py.notebook import MixPertMagics
from samples.papers.__main__ import papers
from tests import shipped_kernels
from tests.mixpert_py.command import ROOT, Mixpert, forked
from tests.mixpert_py.pages import PAGES, VARIABLE, typed

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
SAMPLE = """\
import sys
import numpy as np
a = np.random.default_rng(0).standard_normal((400, 400))
{names} = a @ a
print(a.sum())
"""
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
# The commands that are read and not run: each begins one that stands in a page.
NOT_RUN: Mapping[str, str] = {
    "mixpert probe": "needs a GPU",
    "mypy": "is run by .ci/run",
    "pip install": "needs packages from elsewhere",
    "pytest": "is what runs here",
    "python -m pdoc": "is run by .ci/package",
    "python -m samples.papers": "takes minutes",
    "python -m tests.benchmarks": "takes minutes",
    "python -m tests.shipped_kernels": "takes minutes",
    "python3 -m venv": "makes what runs here",
    ". .venv/bin/activate": "makes what runs here",
    "ruff": "is run by .ci/run",
    ".ci/run": "runs all of this",
}


def found() -> dict[Words, str]:
    """Every command of the pages, and a page that has it."""
    commands: dict[Words, str] = {}
    for name, path in PAGES.items():
        for line in typed(name, path.read_text("utf-8")):
            for words in line.commands():
                commands.setdefault(words, name)
    return commands


NO_CONTEXT = click.Context(cli)
FOUND = found()
MIXPERTS = [words for words in FOUND if words[0] == "mixpert"]


def is_not_run(words: Words) -> bool:
    line = " ".join(words)
    return any(line == one or line.startswith((f"{one} ", f"{one}.")) for one in NOT_RUN)


def named(words: Words) -> tuple[click.Command, Words, Words]:
    """The command of `mixpert …`, the words that name it, and those that follow them."""
    command: click.Command = cli
    at = 1
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


def is_mention(words: Words) -> bool:
    """Whether a command is only named, perhaps with an option, without its operands."""
    command, _, rest = named(words)
    if isinstance(command, click.Group):
        return True
    needs = [one for one in command.params if isinstance(one, click.Argument)]
    takes_value = {
        name
        for one in command.params
        if isinstance(one, click.Option) and not one.is_flag
        for name in one.opts
    }
    before = ("", *rest)
    operands = [
        word
        for word, option in zip(rest, before, strict=False)
        if not word.startswith("-") and option not in takes_value
    ]
    return not operands and any(not one.make_metavar(NO_CONTEXT).startswith("[") for one in needs)


def read(command: click.Command, name: str, arguments: Sequence[str]) -> click.Context:
    with command.make_context(name, list(arguments)) as context:
        return context


def ids(words: Words) -> str:
    return " ".join(words)


@pytest.mark.parametrize("words", MIXPERTS, ids=ids)
def test_it_is_read(words: Words) -> None:
    command, names, rest = named(words)
    assert not (rest and isinstance(command, click.Group)), f"{rest[0]} is no command"
    try:
        read(command, " ".join(names), replaced(rest))
    except click.NoSuchOption:
        raise
    except click.UsageError:
        # A sentence may name a command, or an option of it, without what it takes.
        if not is_mention(words):
            raise


@pytest.mark.parametrize(
    "words",
    [words for words in FOUND if words[:2] in (("python", "-m"), ("python3", "-m"))],
    ids=ids,
)
def test_the_module_is_read(words: Words) -> None:
    command = MODULES[words[2]]
    if command is not None:
        name, *_ = rest = replaced(words[3:]) or ("",)
        assert not isinstance(command, click.Group) or command.get_command(NO_CONTEXT, name)
        try:
            read(command, words[2], [] if rest == ("",) else rest)
        except click.NoSuchOption:
            raise
        except click.UsageError:
            assert not words[3:]


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
    """Those in sentences, too, where no command stands with them."""
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


def test_no_reason_is_left_over() -> None:
    lines = [" ".join(words) for words in FOUND]
    for one in NOT_RUN:
        assert any(line == one or line.startswith((f"{one} ", f"{one}.")) for line in lines), one


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
    return {name for param in named(words)[0].params for name in param.opts}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, its plan, and what its tuning left."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "program.py").write_text(SAMPLE.format(names="result"))
    words = ("tune", "--error", "1e-2", "--backend", "reference", "program.py")
    assert forked("mixpert_py", *words, folder=folder).code == 0
    return folder


@pytest.fixture
def folder(tuned: Path, tmp_path: Path) -> Path:
    """A copy of it, with samples beside."""
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    (tmp_path / "samples").mkdir()
    return tmp_path


def put_samples(folder: Path, words: Words) -> None:
    """Put what a command names in samples/ there: the file itself where it is only read."""
    runs = words[0] != "mixpert" or isinstance(named(words)[0], ProgramCommand)
    values = dict.fromkeys(re.findall(r"\b([a-z_]\w*)=", " ".join(words))) or {"result": None}
    for word in words:
        if word.startswith("samples/") and word.endswith(".py"):
            if runs:
                (folder / word).write_text(SAMPLE.format(names=" = ".join(values)))
            else:
                shutil.copy(ROOT / word, folder / word)
        elif word.startswith("samples/") and word.endswith(".toml"):
            shutil.copy(folder / "program.mixpert.toml", folder / word)
            trials = word.removesuffix(".toml") + ".trials.jsonl"
            shutil.copy(folder / "program.mixpert.trials.jsonl", folder / trials)


def runnable() -> dict[Words, Words]:
    """The words of each command that is run here → as they stand in a page."""
    commands = {}
    for words in FOUND:
        is_named = len(words) == 1 or (words[0] == "mixpert" and is_mention(words))
        if not is_not_run(words) and not is_named:
            commands.setdefault(replaced(words), words)
    return commands


RUN = runnable()


@pytest.mark.parametrize(("words", "typed"), RUN.items(), ids=map(ids, RUN.values()))
def test_it_runs(folder: Path, mixpert: Mixpert, words: Words, typed: Words) -> None:
    put_samples(folder, typed)
    environment: dict[str, str] = {}
    if words[0] == "eval":  # of what a command prints
        words = tuple(words[1].removeprefix("$(").removesuffix(")").split())
    if VARIABLE.match(words[0]):
        name, _, value = words[0].partition("=")
        environment[name] = value
        words = words[1:]
    program, *arguments = words
    assert program in ("mixpert", "python"), "neither run nor listed in NOT_RUN"
    if program == "python":
        said = forked(*arguments, folder=folder)
    else:
        said = mixpert(*arguments, **environment)
    # A tuning ends with 1 where the pairs of runs do not show that its plan is faster.
    assert said.code in ((0, 1) if "tune" in arguments[:1] else (0,)), said
    assert said.out
