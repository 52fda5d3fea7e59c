"""Why a trial was kept or undone, and why an operator was lowered no further."""

from enum import StrEnum


class Reason(StrEnum):
    """Said of a trial: KEPT and the five refusals; of an operator: all but KEPT."""

    KEPT = "kept"
    NOT_FASTER = "not faster"
    NO_GAIN = "no gain"
    NOT_TAKEN = "took no call"
    OVER_BUDGET = "over budget"
    FAILED = "failed"

    BOTTOM = "lowest rung"
    LOCKED = "locked"
    NEVER_RAN = "never ran"
    TOO_SHORT = "too short"
    PREDICTED = "predicted over budget"
    HOLD_OUT = "over budget on the hold-out"
    SEARCHED = "as the best plan has it"
    RAISED = "raised for a successor"
    START_OVER_BUDGET = "over budget at the start"
    INTERRUPTED = "interrupted"
