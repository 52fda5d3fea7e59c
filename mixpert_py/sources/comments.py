"""What a file's comments ask for, held against the schemes that there are."""

from mixpert_py import config
from mixpert_py.errors import PlanError, SourceError
from mixpert_py.passes.pipeline import pragmas


def require_known(source: bytes, module: str, fuse: bool = False) -> None:
    """Raise SourceError, naming the line, for a comment to us that says nothing known.

    A file without a product in it is not asked. The passes cannot do this: they know no scheme.
    """
    wrong = problem(source, module, fuse)
    if wrong is not None:
        line, said = wrong
        raise SourceError(f"{module}: line {line}: {said}")


def problem(source: bytes, module: str, fuse: bool = False) -> tuple[int, str] | None:
    """The first line with such a comment, and what is wrong with it."""
    said = pragmas(source, module, fuse)
    wrong = {
        line: f"{comment!r} is not known: wanted `# mixpert: off`, `# mixpert: off-file` or "
        "`# mixpert: scheme=NAME`"
        for line, comment in said.unknown.items()
    }
    for line, name in said.schemes.items():
        try:
            config.check_scheme(name)
        except PlanError as error:
            wrong[line] = str(error)
    return min(wrong.items(), default=None)
