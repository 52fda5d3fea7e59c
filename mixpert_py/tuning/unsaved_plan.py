"""A tuned plan that could not be written to its place: hours of runs are not to be lost with it."""

import os
import sys
import tempfile
from pathlib import Path

from mixpert_py import config
from mixpert_py import plan as plan_file
from mixpert_py.errors import PlanError
from mixpert_py.plan import Plan


def kept(plan: Plan, error: PlanError) -> PlanError:
    """Put the plan into the temporary folder, else on stderr; the error, with where it is now."""
    # Without the comments of the old plan, which may be what could not be read. What UTF-8 has no
    # bytes for is escaped: a person can mend that.
    content = plan_file.dumps(plan).encode(errors="backslashreplace")
    try:
        place = _written(content)
    except OSError:
        print(content.decode(), file=sys.stderr)
        return PlanError(f"{error}; the plan that was found is printed above")
    return PlanError(f"{error}; the plan that was found is in {place}")


def _written(content: bytes) -> str:
    """A new file of the temporary folder. Raises OSError, and leaves none, if it cannot be."""
    descriptor, place = tempfile.mkstemp(prefix="unsaved-", suffix=config.SUFFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        Path(place).unlink()
        raise
    return place
