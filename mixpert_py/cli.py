"""The command line: parses options, makes one call, and returns the exit code.

The table of exit codes is in docs/commands.md.
"""

import io
import os
import sys
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem, shell_complete

from mixpert_py import __version__
from mixpert_py.commands import interrupted
from mixpert_py.errors import MixPertError

COMPLETION = "_MIXPERT_COMPLETE"  # set by the shell's completion script, as click names it


def main(command: click.Command | None = None, name: str = "mixpert") -> None:
    """The console script, or another command, called `name`, with the same exit codes."""
    command = command or cli
    arguments = _with_run(sys.argv[1:]) if command is cli else sys.argv[1:]
    _use_any_terminal(arguments)
    try:
        if instruction := os.environ.get(COMPLETION):
            sys.exit(shell_complete(command, {}, name, COMPLETION, instruction))
        # Not `command.main`: it makes exit code 1 of a closed pipe, which means something here.
        with command.make_context(name, arguments) as context:
            code = command.invoke(context)
        _flush_output()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except MixPertError as error:
        click.echo(f"mixpert: {error}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = interrupted()
    except BrokenPipeError:
        code = 0  # the reader has seen enough
        _drop_output()
    except OSError as error:
        click.echo(f"mixpert: {_description(error)}", err=True)
        code = 2
        _drop_output()
    except Exception as error:
        if os.environ.get("MIXPERT_DEBUG"):
            raise
        message = f"mixpert: internal error: {type(error).__name__}: {error}"
        click.echo(f"{message.splitlines()[0]} (MIXPERT_DEBUG=1 shows where)", err=True)
        code = 2
    sys.exit(code)


def _description(error: OSError) -> str:
    what = error.strerror or str(error)
    if isinstance(error.filename, str):
        return f"{error.filename}: {what}"
    if isinstance(error, FileNotFoundError):  # without a name, it is the current folder's
        return "the current folder was removed; go to one that is there"
    return what


def _with_run(arguments: list[str]) -> list[str]:
    """Insert `run` before a script; a command of the same name comes first."""
    word = arguments[0] if arguments else ""
    is_path = word.endswith(".py") or os.sep in word
    if is_path and word not in ALONE and not word.startswith("-"):
        return ["run", *arguments]
    return arguments


def _use_any_terminal(arguments: list[str]) -> None:
    """Write characters that the terminal cannot show as escapes; write nothing if stdout is closed.

    A program that is run keeps the streams that it would have under `python`.
    """
    if arguments[:1] == ["run"]:
        return
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115, it is to stay open
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush_output() -> None:
    """Flush stdout, so that a closed pipe or a full disk is seen here; raises OSError for them."""
    try:
        sys.stdout.flush()
    except OSError:
        raise
    except Exception:
        # A program that was run has closed it, or put something else there. Python flushes once
        # more at exit: it says of that, and makes of the exit code, what it would have anyway.
        return


def _drop_output() -> None:
    """Give stdout a sink, because Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


# Each has a module of its own, which is imported when the command is called, or for `--help`.
ALONE = (
    *("doctor", "estimate", "graph", "probe", "report"),
    *("rewrite", "run", "sites", "tune", "verify"),
)


class Commands(click.Group):
    """The group of commands; a script may stand in place of a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ALONE:
            return None
        command: click.Command = getattr(import_module(f"mixpert_py.commands.{cmd_name}"), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]


@click.group(
    cls=Commands,
    # By these names click lists the commands, and proposes one where a word is none.
    commands={name: click.Command(name) for name in ALONE},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mixpert")
def cli() -> None:
    """Matrix products of a Python program, at the accuracy you choose and no more.

    `mixpert script.py ARGS…` is short for `mixpert run script.py ARGS…`.
    """
