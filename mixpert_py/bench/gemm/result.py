"""Results of `mixpert bench gemm` in a file: written after every step, so that a run can go on."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.bench.gemm.sizes import Section, error_line
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.errors import MixPertError


class Result:
    """A result that grows, section by section: {"machine": …, "sections": {name: rows}}.

    path: the file that it is written to, and with `resume` read from first. Raises MixPertError
    where that file is of another suite or device, or is no result.
    """

    def __init__(self, suite: str, machine: Record, path: Path | None, resume: bool) -> None:
        self.path = path
        self.record: Record = {"suite": suite, "machine": machine, "sections": {}}
        if resume and path is not None and path.exists():
            before = read(path)
            if (before["suite"], before["machine"]["device"]) != (suite, machine["device"]):
                raise MixPertError(f"{path}: of another suite or device; give another file")
            self.record["sections"] = before["sections"]

    @property
    def sections(self) -> dict[str, list[Record]]:
        """The rows of every section measured so far, by its name."""
        found: dict[str, list[Record]] = self.record["sections"]
        return found

    def run(self, sections: Mapping[str, Section], say: Callable[[str], None]) -> None:
        """Measure sections; those that are there already stay."""
        for name, measure in sections.items():
            if name in self.sections:
                continue
            say(name)
            try:
                self.sections[name] = measure()
            except Exception as error:  # the sections after it are measured all the same
                say(f"{name}: {error_line(error)}")
                continue
            self.write()

    def write(self) -> None:
        """Replace the file in one step."""
        if self.path is not None:
            text = json.dumps(rounded(self.record), indent=1, ensure_ascii=False) + "\n"
            files.replace(self.path, text.encode())


def read(path: Path) -> Record:
    """Read a result from its file. Raises MixPertError where the file holds something else."""
    try:
        loaded: Record = json.loads(path.read_text("utf-8"))
        return {key: loaded[key] for key in ("suite", "machine", "sections")}
    except (ValueError, KeyError, TypeError) as error:
        raise MixPertError(f"{path}: not a result of `mixpert bench gemm`") from error


def rounded(value: object) -> Any:
    """A result with its floats rounded to the five digits that a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value
