"""Common parts of commands: options as a record, and where a program's own words begin."""

import functools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mixpert_py.runtime.backends import HELP as BACKEND_HELP

if TYPE_CHECKING:
    from mixpert_py.launch.program import Program


def seconds(text: str) -> float:
    """A positive number of seconds, or as many as Python can wait."""
    if not (number := float(text)) > 0:
        raise ValueError
    return min(number, threading.TIMEOUT_MAX)


FILE = click.Path(readable=False)  # a shell completes its names; what reads it, checks it


Record = TypeVar("Record")
Code = TypeVar("Code")
Command = TypeVar("Command", bound=Callable[..., object])


def as_record(
    record: Callable[..., Record],
) -> Callable[[Callable[[Record], Code]], Callable[..., Code]]:
    """Pass a command its options as one record whose fields have the options' names."""

    def decorate(command: Callable[[Record], Code]) -> Callable[..., Code]:
        @functools.wraps(command)
        def call(**options: object) -> Code:
            return command(record(**options))

        return call

    return decorate


exclude_option = click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Exclude these files in folders."
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print only problems and requested results."
)


module_option = click.option(
    "-m", "module", metavar="MODULE", help="Run a module, as python -m does."
)
package_option = click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="NAME",
    help="Include the modules of an installed package; of a program, those that it imports. NAME "
    "may be a glob such as 'sklearn.linear_model.*'. May be repeated.",
)
backend_option = click.option("--backend", metavar="NAME", help=f"{BACKEND_HELP}.")
script_argument = click.argument("script", metavar="SCRIPT", required=False, type=FILE)
its_arguments = click.argument("arguments", nargs=-1, type=FILE, metavar="ARGS…")
program_argument = click.argument("arguments", nargs=-1, type=FILE, metavar="SCRIPT ARGS…")


def with_progress(command: Command) -> Command:
    """Declare the options of a command that runs a program several times."""
    verbose = click.option(
        "-v", "--verbose", is_flag=True, help="Print a line for each run instead of a bar."
    )
    return quiet_option(verbose(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """The options that `mixpert tune` and `mixpert verify` share, as typed, and the program."""

    packages: tuple[str, ...]
    budgets: tuple[str, ...]
    criteria: tuple[str, ...]
    compare: tuple[str, ...]
    backend: str | None
    time_limit: float | None
    as_json: bool
    quiet: bool
    verbose: bool
    module: str | None
    script: str | None
    arguments: tuple[str, ...]


def comparison_options(command: Command) -> Command:
    """Declare what `tune` and `verify` allow, compare and run."""
    options = (
        click.option(
            "--error",
            "budgets",
            multiple=True,
            metavar="[VALUE=]BUDGET",
            help="The error allowed: of every value, or of VALUE alone. May be repeated; a bare "
            "BUDGET beside is for all others, and without one the others are not judged. Of "
            "integers it is the share that differs, 0 unless VALUE has its own. Several bare "
            "BUDGETs of `tune`: a plan for each.",
        ),
        click.option(
            "--criterion",
            "criteria",
            multiple=True,
            metavar="[VALUE=]NAME",
            help="frobenius (the default), max, max-relative, mred, differing (the default of "
            "integers), or module:function(reference, value).",
        ),
        click.option(
            "--compare",
            multiple=True,
            metavar="WHAT",
            help="A variable, a file that the program writes (.npy, .npz, .csv), stdout (the "
            "numbers that it prints) or sinks (results that feed no other product); default: the "
            "variables that hold results when the program ends, without steps to others and "
            "residuals.",
        ),
        backend_option,
        click.option(
            "--time-limit", type=seconds, metavar="S", help="Seconds that one run may take."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


class ProgramCommand(click.Command):
    """A command whose last words are a program and its arguments, which the command does not parse.

    The command's options stand before the program, or directly after SCRIPT. `--`, or the first
    word that is not such an option, ends them; so does `-m MODULE`, as it ends Python's. words:
    positions after which the command's options may stand.
    """

    words = 1

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours: list[str] = []
        words: list[str] = []
        for left in range(self.words, -1, -1):
            count = self._count_ours(ctx, args, is_behind=not left)
            taken, args = args[:count], args[count:]
            ours += taken
            if args[:1] == ["--"]:
                args = args[1:]
                break
            if ours[-2:-1] == ["-m"]:
                break
            if left:
                self._require_word(ctx, args)
                words += args[:1]
                args = args[1:]
            elif not ctx.resilient_parsing:
                _tell_names_of_both(words[-1:], taken)
        program = [*words, *args]
        return super().parse_args(ctx, [*ours, "--", *program] if program else ours)

    def _require_word(self, ctx: click.Context, args: list[str]) -> None:
        """Raise NoSuchOption if an option stands where the program is expected."""
        name = args[0].partition("=")[0] if args else ""
        if ctx.resilient_parsing or not name.startswith("-"):
            return
        from difflib import get_close_matches  # only where a name is wrong

        ours = [name for param in self.get_params(ctx) for name in param.opts]
        raise click.NoSuchOption(name, possibilities=get_close_matches(name, ours), ctx=ctx)

    def _count_ours(self, ctx: click.Context, args: list[str], *, is_behind: bool) -> int:
        """The number of leading words that are the command's options and their values.

        is_behind: the words stand after SCRIPT, where `--help` is the program's.
        """
        flags = {
            name: isinstance(param, click.Option) and (param.is_flag or param.count)
            for param in self.get_params(ctx)
            for name in param.opts
        }
        if is_behind:
            flags = {name: flags[name] for name in flags.keys() - {"-m", "--help"}}
        index = 0
        while index < len(args) and args[index] != "--":
            name, equals, _ = args[index].partition("=")
            if name not in flags:
                break
            index += 1 if flags[name] or equals else 2
            if name == "-m":
                break
        return min(index, len(args))


def _tell_names_of_both(script: list[str], taken: list[str]) -> None:
    """Say on stderr that the command took options after SCRIPT that SCRIPT also has."""
    names = [word.partition("=")[0] for word in taken if word.startswith("-")]
    try:
        text = Path(*script).read_bytes() if script and names else b""
    except OSError:
        return  # what runs the program says so
    for name in names:
        if any(mark + name.encode() + mark in text for mark in (b"'", b'"')):
            say(
                f"{name} was taken as an option of mixpert, and {script[0]} has it, too; -- before "
                "it gives it to the program"
            )


class PlanCommand(ProgramCommand):
    """A command with PLAN before SCRIPT: options may also stand between the two."""

    words = 2


def program_of(module: str | None, script: str | None, arguments: tuple[str, ...]) -> "Program":
    """The program; names cells that are not Python on stderr. UsageError if no program is given."""
    from mixpert_py import sources
    from mixpert_py.launch import program as programs

    if module is not None:  # the first of its arguments stands in SCRIPT's place
        return programs.module(module, arguments if script is None else (script, *arguments))
    if script is None:
        raise click.UsageError("give a SCRIPT or -m MODULE")
    if not script.endswith(sources.NOTEBOOK):
        return programs.script(script, arguments)
    from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

    program = programs.notebook(script, arguments)
    if missing := notebook_file.left_out(sources.read_whole(Path(script))):
        click.echo(
            f"{script}: left out, as no Python or another magic's: {', '.join(missing)}", err=True
        )
    return program


def packages_of(program: "Program", typed: tuple[str, ...]) -> tuple[str, ...]:
    """The packages rewritten with a program: typed, else its project's; raises SourceError."""
    from mixpert_py import sources
    from mixpert_py.launch.program import project_folder
    from mixpert_py.sources.modules import require

    names = typed or sources.packages(project_folder(program))
    require(names, [program.path])
    return names


def say(line: str) -> None:
    """Print a line on stderr."""
    click.echo(f"mixpert: {line}", err=True)


def interrupted(advice: str = "") -> int:
    """Say on stderr that Ctrl-C ended the command, and return the exit code.

    The message replaces the `^C` that a terminal shows at the beginning of the line.
    """
    over = "\r" if sys.stderr is not None and sys.stderr.isatty() else ""
    click.echo(f"{over}mixpert: interrupted{advice}", err=True)
    return 130
