"""The folder of one run: the job that a worker reads there, and what it leaves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mixpert_py.errors import ProgramError
from mixpert_py.runs.process import Ended
from mixpert_py.runs.worker import Job, Result


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of our own, empty before the run."""

    path: Path

    def write(self, code: bytes, job: Job) -> Path:
        """The job's file, beside the program's code, marshalled."""
        (self.path / "code.marshal").write_bytes(code)
        file = self.path / "job.json"
        # json and not msgspec: file names and arguments need not be valid Unicode.
        file.write_text(json.dumps(msgspec.to_builtins(job)))
        return file

    def result(self, program: str, ended: Ended, limit: float) -> Result:
        """What the worker says of the run. Raises ProgramError if it did not come to its end.

        program: its name in that message. limit: the seconds that it had.
        """
        said = ended.last_lines()
        if ended.code is None:
            how = f"still running after {limit:g} s, and was stopped"
        elif ended.code < 0:
            how = f"killed by signal {-ended.code}"
        elif ended.code > 0:
            how = f"ended with exit code {ended.code}"
        elif not (self.path / "result.json").exists():
            how = "left before its end (os._exit?)"
        else:
            result = msgspec.json.decode((self.path / "result.json").read_bytes(), type=Result)
            if not result.missing:
                return result
            how = f"has no numeric value for {', '.join(result.missing)}"
            said = ""
        raise ProgramError(f"{program}: {how}" + (f"; its last lines:\n{said}" if said else ""))

    def values(self, result: Result) -> dict[str, np.ndarray[Any, Any]]:
        """The variables, observed values and results of sinks that the run ended with."""
        return {
            name: np.load(self.path / file, allow_pickle=False)
            for name, file in result.values.items()
        }
