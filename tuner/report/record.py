"""A search's outcome as plain data for JSON."""

from math import isfinite
from typing import Any

from mixpert_py.tuner.outcome import Outcome, Verdict
from mixpert_py.tuner.trial import Trial


def record(
    outcome: Outcome, criterion: str = "frobenius", predicted: bool = False
) -> dict[str, Any]:
    """Everything the table shows and every trial. Numbers that are not finite become None.

    unit: "seconds", or "products" where times are predicted cost units.
    """
    return {
        "unit": "products" if predicted else "seconds",
        "interrupted": outcome.interrupted,
        "criterion": criterion,
        "budget": _number(outcome.budget),
        "error": _number(outcome.best.error),
        "time_before": _number(outcome.start.seconds),
        "time_after": _number(outcome.best.seconds),
        "plan": dict(outcome.plan),
        "operators": [_operator(verdict, outcome.share(verdict)) for verdict in outcome.verdicts],
        "trials": [_trial(trial) for trial in outcome.trials],
    }


def _operator(verdict: Verdict, share: float) -> dict[str, Any]:
    operator = verdict.operator
    return {
        "id": operator.id,
        "line": operator.line,
        "expression": operator.expression,
        "calls": operator.calls,
        "shapes": [list(shape) for shape in operator.shapes],
        "locked": operator.locked,
        "share": _number(share),
        "before": verdict.before,
        "after": verdict.after,
        "time_before": _number(verdict.seconds_before),
        "time_after": _number(verdict.seconds_after),
        "local_error": _number(verdict.local_error),
        "local_errors": {name: _number(e) for name, e in operator.local_errors.items()},
        "reason": str(verdict.reason),
        "detail": verdict.detail,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "changed": {site: trial.plan[site] for site in trial.changed},
        "plan": dict(trial.plan),
        "time": _number(trial.measurement.seconds),
        "error": _number(trial.measurement.error),
        "problem": trial.measurement.problem,
        "gain": _number(trial.gain),
        "reason": str(trial.reason),
    }


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None
