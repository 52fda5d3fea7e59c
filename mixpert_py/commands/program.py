"""Commands that end in a program: where our options end and the program's begin."""

import click

from mixpert_py.errors import SourceError


class ProgramCommand(click.Command):
    """A command whose last words are a program and its arguments, which are not ours to read.

    Our options come before the program; `-m` and `-c` end them, as they end Python's.
    """

    after_script = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        count = self._ours(ctx, args)
        ours, program = args[:count], args[count:]
        if program[:1] == ["--"]:
            program = program[1:]
        elif self.after_script and program:
            end = 1 + self._ours(ctx, program[1:])
            ours += program[1:end]
            program = [program[0], *program[end + (program[end : end + 1] == ["--"]) :]]
        return super().parse_args(ctx, [*ours, "--", *program] if program else ours)

    def _ours(self, ctx: click.Context, args: list[str]) -> int:
        """How many of the first words are options of ours and their values."""
        flags = {
            name: isinstance(param, click.Option) and (param.is_flag or param.count)
            for param in self.get_params(ctx)
            for name in param.opts
        }
        index = 0
        while index < len(args) and args[index] != "--":
            name, equals, _ = args[index].partition("=")
            if name not in flags:
                break
            index += 1 if flags[name] or equals else 2
            if name in ("-m", "-c"):
                break
        return min(index, len(args))


class TuningCommand(ProgramCommand):
    """The same, and our options may also stand right behind the script."""

    after_script = True


def require_script(command: str, word: str) -> None:
    """Raise SourceError where -m or -c stands in a script's place: `mixpert run` takes them."""
    wanted = {"-m": "-m MODULE; give the path of the module's file", "-c": "-c CODE"}
    if word in wanted:
        raise SourceError(f"{command} takes a script, not {wanted[word]}")
