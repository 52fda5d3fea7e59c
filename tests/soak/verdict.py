"""The verdict of a gate: whether it is passed, and what was done and found.

Saved verdicts are a table of docs/measured.md: see `mixpert_py/bench/readme.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.bench import machine
from mixpert_py.errors import MixPertError

RESULT = machine.RESULTS / "soak.json"
ORDER = (
    *("products", "contract", "load", "threads", "streams", "memory", "cold", "planted"),
    "plans",
)

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a gate: what it did and found, in words, and whether it is passed.

    on_gpu: whether it ran on a GPU; a gate has one verdict for the host and one for GPUs. figures:
    numbers that may be wanted later, as JSON takes them.
    """

    gate: str
    did: str
    found: str
    passed: bool
    on_gpu: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.gate} {'passed' if self.passed else 'FAILED'}: {self.did}: {self.found}"

    def record(self) -> Record:
        """The verdict with the facts about this machine."""
        facts = machine.machine()
        if self.on_gpu:
            facts |= machine.device(machine.gpu())
        return {**asdict(self), "figures": dict(self.figures), "machine": facts}


def keep(record: Record, path: Path = RESULT) -> None:
    """Write a verdict in place of the one that its gate had on a machine of this kind before."""
    verdicts = read(path) if path.exists() else {}
    verdicts[_name(record)] = record
    ordered = sorted(verdicts.items(), key=lambda one: (ORDER.index(one[1]["gate"]), one[0]))
    text = json.dumps(dict(ordered), indent=1, ensure_ascii=False) + "\n"
    files.replace(path, text.encode())


def read(path: Path = RESULT) -> dict[str, Record]:
    """Verdicts by name. Raises MixPertError where the file holds something else."""
    try:
        found: dict[str, Record] = json.loads(path.read_text("utf-8"))
        if {_name(record) for record in found.values()} == set(found):
            return found
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise MixPertError(f"{path}: not a result of `python -m tests.soak`")


def _name(record: Record) -> str:
    return f"{record['gate']}, GPU" if record["on_gpu"] else str(record["gate"])
