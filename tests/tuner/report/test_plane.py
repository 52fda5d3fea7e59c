"""The accuracy-speed plane."""

import msgspec
import pytest

from mixpert_py.tuner.report.plane import Plane, Point, plane
from mixpert_py.tuner.report.record import Record
from tests.tuner.report.records import many, not_finite, small


def points(record: Record) -> dict[int, Point]:
    """Trial number → its point."""
    return {point.number: point for point in plane(record).points}


def test_every_plan_that_ran_has_its_point() -> None:
    record = small()
    found = points(record)
    ran = {at for at, trial in enumerate(record.trials, 1) if trial.problem is None}
    assert set(found) == ran
    assert len(ran) < len(record.trials)
    assert all(
        Plane.LEFT < point.x <= Plane.RIGHT and Plane.TOP <= point.y <= Plane.BOTTOM
        for point in found.values()
    )
    assert found[1].kind == "start"
    assert [at for at, point in found.items() if point.chosen] == [
        max(at for at, trial in enumerate(record.trials, 1) if trial.plan == record.plan)
    ]


def test_faster_is_left_and_over_budget_above_the_line() -> None:
    record = small()
    found = points(record)
    for one, point in found.items():
        for other, beside in found.items():
            if (record.trials[one - 1].time or 0) < (record.trials[other - 1].time or 0):
                assert point.x < beside.x
    budget = plane(record).budget
    assert budget
    for at, point in found.items():
        error = record.trials[at - 1].error
        assert error is not None
        assert (point.y < budget[0]) == (error > 1e-4)


def test_an_error_that_is_not_finite_is_above_and_an_unknown_time_nowhere() -> None:
    record = not_finite()
    found = points(record)
    unknown = {at for at, trial in enumerate(record.trials, 1) if trial.time is None}
    assert unknown == {1}
    assert unknown.isdisjoint(found)
    infinite = [at for at, trial in enumerate(record.trials, 1) if trial.error is None]
    assert infinite
    assert all(found[at].y < min(found[o].y for o in found if o != at) for at in infinite)
    assert all("not finite" in found[at].text for at in infinite)


@pytest.mark.parametrize(
    ("record", "budget", "labels"),
    [
        (many(0), "budget 1e-4", []),
        (small(budget=0.0), "budget 0", ["start, and chosen"]),
        (msgspec.structs.replace(small(), budget=None), None, ["chosen", "start"]),
        (msgspec.structs.replace(small(), trials=[]), "budget 1e-4", []),
    ],
    ids=["no-operator", "budget-zero", "any-error", "no-trial"],
)
def test_odd_searches_have_a_plane(record: Record, budget: str | None, labels: list[str]) -> None:
    picture = plane(record)
    assert (picture.budget and picture.budget[1]) == budget
    assert [label.text for label in picture.labels] == labels
    assert "nan" not in str(picture)


def covers(record: Record) -> list[tuple[str, int]]:
    """The names in the picture, each with a point that it covers."""
    picture = plane(record)
    found = []
    for label in picture.labels:
        width = Plane.LETTER * len(label.text)
        left = label.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width
        assert left > Plane.LEFT
        assert left + width < Plane.RIGHT
        found += [
            (label.text, point.number)
            for point in picture.points
            if left - 5 < point.x < left + width + 5 and abs(label.y - 5 - point.y) < 14
        ]
    return found


@pytest.mark.parametrize("beside", [(1.0, 1e-6), (1.02, 1e-6), (0.98, 1e-6), (1.0, 1.2e-6)])
@pytest.mark.parametrize("time", [1.0, 9.0, 0.1], ids=["inside", "right", "left"])
def test_names_cover_no_point(time: float, beside: tuple[float, float]) -> None:
    """The chosen plan has others right beside it, and the start may be anywhere."""
    record = small()
    start, *others = record.trials
    best = next(trial for trial in reversed(others) if trial.plan == record.plan)
    near = [
        msgspec.structs.replace(best, time=best.time * times, error=beside[1], plan={})
        for times in (beside[0] * 1.05, beside[0] * 1.1, beside[0] * 1.15)
    ]
    moved = msgspec.structs.replace(start, time=best.time * time, error=beside[1] * 2)
    best = msgspec.structs.replace(best, error=1e-6)
    crowded = msgspec.structs.replace(record, trials=[moved, *near, best])
    assert [label.text for label in plane(crowded).labels] == ["chosen", "start"]
    assert covers(crowded) == []
