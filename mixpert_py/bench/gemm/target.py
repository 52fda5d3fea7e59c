"""One line of the table of targets: what is measured, what it is to be, and what it was."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What is measured, where, and what it is to be."""

    section: str
    what: str
    at: str
    sense: Literal["≥", "≤"]
    wanted: float
    unit: str

    def row(self, measured: dict[str, float], detail: str = "") -> Record:
        """The line with what was measured: its median decides."""
        value = measured["median"]
        met = value >= self.wanted if self.sense == "≥" else value <= self.wanted
        return {**asdict(self), "measured": measured, "met": met, "detail": detail}

    def missing(self, why: str) -> Record:
        """The line where nothing could be measured."""
        return {**asdict(self), "measured": None, "met": False, "detail": why}


def once(value: float) -> dict[str, float]:
    """A figure that has no spread, such as an error."""
    return {"median": value, "lower": value, "upper": value, "runs": 1}
