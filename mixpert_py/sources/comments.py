"""Checks a file's `# mixpert:` comments against the known schemes."""

from mixpert_py import config
from mixpert_py.errors import PlanError, SourceError
from mixpert_py.passes.pipeline import pragmas


def require_known(source: bytes, module: str) -> None:
    """Raise SourceError, naming the line, for an unknown `# mixpert:` comment.

    A file without a product is not checked. The passes cannot do this, because they know no
    schemes.
    """
    wrong = problem(source, module)
    if wrong is not None:
        line, reason = wrong
        raise SourceError(f"{module}: line {line}: {reason}")


def problem(source: bytes, module: str) -> tuple[int, str] | None:
    """The first line with an unknown comment, and what is wrong with it."""
    found = pragmas(source, module)
    wrong = {
        line: f"{comment!r} is not known: wanted `# mixpert: off`, `# mixpert: off-file` or "
        "`# mixpert: scheme=NAME`"
        for line, comment in found.unknown.items()
    }
    for line, name in found.schemes.items():
        try:
            config.check_scheme(name)
        except PlanError as error:
            wrong[line] = str(error)
    return min(wrong.items(), default=None)
