"""Every command in the pages is read as the command line reads it.

Words in capitals stand for files and numbers of this test.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module

import click
import pytest

from mixpert_py.cli import cli
from mixpert_py.notebook import MixPertMagics
from samples.papers.__main__ import papers
from tests import shipped_kernels
from tests.mixpert_py.command import ROOT
from tests.mixpert_py.pages import PAGES, commands, typed

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
