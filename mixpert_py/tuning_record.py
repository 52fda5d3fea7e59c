"""What a tuning leaves for its report: the search, its verification, and what was tuned where."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuner.report.record import VerificationEntry

if TYPE_CHECKING:
    from mixpert_py.tuning import Tuned
    from mixpert_py.verification import Verification


def record(tuned: "Tuned", path: str) -> dict[str, Any]:
    """All of it as plain data for JSON; `tuner.report.record.read` reads it again."""
    search = report_record.record(tuned.outcome, tuned.plan.criterion[0].metric, tuned.predicted)
    entry: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            search,
            plan_file=path,
            schemes=tuned.plan.schemes(),
            verification=_verification(tuned.verification),
            reverted=tuned.reverted,
            hold_out=report_record.finite(tuned.hold_out),
            provenance=tuned.plan.provenance,
        )
    )
    return entry


def _verification(found: "Verification") -> VerificationEntry:
    numbers = {
        name: value if isinstance(value, str) else report_record.finite(value)
        for name, value in asdict(found).items()
    }
    return msgspec.convert(numbers, VerificationEntry)
