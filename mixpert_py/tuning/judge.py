"""How far values are off; a user's own `module:function` runs in a process of its own."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mixpert_py import config, files
from mixpert_py.errors import ProgramError
from mixpert_py.execution import process
from mixpert_py.tuner import criterion
from mixpert_py.tuner.criterion import Criterion
from mixpert_py.tuning.limits import Limits

LIMIT = 300.0  # seconds for one evaluation


class Judge:
    """Measures errors, each value's by the criterion of its limit.

    folder: where modules of the user's criteria are looked for first. Raises MixPertError for a
    criterion that is none.
    """

    def __init__(self, limits: Limits, folder: str = "") -> None:
        self.limits = limits
        self._criteria = {name: resolve(name, folder) for name in limits.metrics}

    def errors(
        self, reference: Mapping[str, npt.ArrayLike], values: Mapping[str, npt.ArrayLike]
    ) -> dict[str, float]:
        """Value → its error; raises what `tuner.criterion.errors` raises."""
        criteria = {name: self._criteria[self.limits.of(name).metric] for name in reference}
        return criterion.errors(reference, values, criteria)


def resolve(name: str, folder: str) -> Criterion:
    """The criterion `name`; `module:function` is looked for in `folder` first.

    Raises MixPertError for a name that is none. A module is imported when it is first used.
    """
    module, colon, function = name.partition(":")
    if not colon:
        return criterion.resolve(name)
    return UserCriterion(module, function, folder)


@dataclass(frozen=True, slots=True)
class UserCriterion:
    """A function(reference, value) → error, of the user's, called in a process of its own."""

    module: str
    function: str
    folder: str

    def __call__(self, reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
        """Raises ProgramError if the function fails, hangs, or returns no number."""
        with files.temporary_folder() as folder:
            np.save(Path(folder) / "reference.npy", reference, allow_pickle=False)
            np.save(Path(folder) / "value.npy", value, allow_pickle=False)
            ended = process.run(
                process.python(
                    "mixpert_py.tuning.judge", self.module, self.function, self.folder, folder
                ),
                config.child_environment(),
                LIMIT,
            )
            answer = Path(folder) / "error.json"
            if ended.code == 0 and answer.exists():
                error = float(json.loads(answer.read_text()))
                if not error < 0:
                    return error
                raise ProgramError(
                    f"criterion {self.module}:{self.function} returned {error:g}; an error is ≥ 0"
                )
        raise ProgramError(
            f"criterion {self.module}:{self.function} failed; its last lines:\n{ended.last_lines()}"
        )


def main(module: str, function: str, path: str, folder: str) -> None:
    """The process: evaluate the function on two saved arrays."""
    files.hold(folder)
    sys.path.insert(0, path)
    error = getattr(import_module(module), function)(
        np.load(Path(folder) / "reference.npy"), np.load(Path(folder) / "value.npy")
    )
    (Path(folder) / "error.json").write_text(json.dumps(float(error)))
