"""What a gate says: whether it is passed, and what was done and found; kept, and as a table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mixpert_py import files
from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables
from mixpert_py.errors import MixPertError

RESULT = machine.RESULTS / "soak.json"
ORDER = ("products", "load", "threads", "streams", "memory", "cold", "planted", "plans")
COLUMNS = ("gate", "on", "what was done", "what was found", "")

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """did, found: in words. on_gpu: that of a GPU is another one than that of the host.

    figures: what may be wanted later, as JSON takes it.
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
        """The verdict, and the machine that this is."""
        facts = machine.machine()
        if self.on_gpu:
            facts |= machine.device(machine.gpu())
        return {**asdict(self), "figures": dict(self.figures), "machine": facts}


def keep(record: Record, path: Path = RESULT) -> None:
    """Put a verdict in the place of the one that its gate had on such a machine before."""
    kept = read(path) if path.exists() else {}
    kept[_name(record)] = record
    ordered = sorted(kept.items(), key=lambda one: (ORDER.index(one[1]["gate"]), one[0]))
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
    raise MixPertError(f"{path}: not a result of `mixpert bench soak`")


def part() -> str | None:
    """The table of what is kept; None where nothing is."""
    return markdown(read()) if RESULT.exists() else None


def markdown(found: Mapping[str, Record]) -> str:
    """A row a gate, and where and when they ran."""
    rows = [
        [
            f"`{record['gate']}`",
            record["machine"].get("device", "the host"),
            record["did"],
            record["found"],
            "passed" if record["passed"] else "**failed**",
        ]
        for record in found.values()
    ]
    hosts = dict.fromkeys(
        f"{it['cpu']}, {it['cores']} cores"
        for it in (record["machine"] for record in found.values())
        if "device" not in it
    )
    dates = sorted(record["machine"]["date"] for record in found.values())
    said = f"The host: {'; '.join(hosts)}. " if hosts else ""
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{tables.markdown(COLUMNS, rows)}\n\n{said}{when}: `mixpert bench soak GATE --save`.\n"


def _name(record: Record) -> str:
    return f"{record['gate']}, GPU" if record["on_gpu"] else str(record["gate"])
