"""Every exception of MixPert-Py. A message names the place, what came, and the way out."""


class MixPertError(Exception):
    """Base of all errors that MixPert-Py raises; the command line prints it as one line."""

    exit_code = 2


class SourceError(MixPertError):
    """A source file cannot be read, parsed or rewritten."""


class PlanError(MixPertError):
    """A plan file, or a scheme name, is not valid."""


class ShapeError(MixPertError, ValueError):
    """Operands have shapes that a scheme cannot multiply."""


class DeviceError(MixPertError):
    """A backend or device was asked for that is not there."""


class ProgramError(MixPertError):
    """The user's program failed, hung, or left nothing to compare."""


class BudgetError(MixPertError):
    """A budget cannot be judged: the program's own spread is too large for it."""

    exit_code = 1
