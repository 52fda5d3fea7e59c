"""What a tuning leaves for its report: the search, its verification, and what was tuned where."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mixpert_py.plan import Criterion
from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuner.report.record import ValueEntry, VerificationEntry

if TYPE_CHECKING:
    from mixpert_py.tuning.tuning import Tuned
    from mixpert_py.tuning.verification import Verification


def record(tuned: "Tuned", path: str) -> dict[str, Any]:
    """All of it as plain data for JSON; `tuner.report.record.read` reads it again."""
    search = report_record.record(tuned.outcome, tuned.limits.metric, tuned.predicted, tuned.device)
    entry: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            search,
            plan_file=path,
            schemes=tuned.plan.schemes(),
            values=value_entries(tuned.plan.criterion),
            verification=_verification(tuned.verification),
            reverted=tuned.reverted,
            hold_out=report_record.finite(tuned.hold_out),
            provenance=tuned.plan.provenance,
        )
    )
    return entry


def value_entries(criteria: Iterable[Criterion]) -> list[ValueEntry]:
    """What a plan lists of its values, for JSON."""
    return [
        ValueEntry(
            name=value.name,
            criterion=value.metric,
            budget=report_record.finite(value.budget),
            error=report_record.finite(value.achieved),
        )
        for value in criteria
    ]


def _verification(found: "Verification") -> VerificationEntry:
    finite = report_record.finite
    return VerificationEntry(
        error=finite(found.error),
        worst=found.worst,
        native_seconds=finite(found.native_seconds),
        seconds=finite(found.seconds),
        spread=finite(found.spread),
        native_lowered=finite(found.native_lowered),
        lowered=finite(found.lowered),
    )
