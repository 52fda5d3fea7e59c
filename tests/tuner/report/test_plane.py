"""The accuracy-speed plane."""

import re
from xml.etree import ElementTree

import msgspec
import pytest

from mixpert_py.tuner.report.plane import BOTTOM, LEFT, RIGHT, TOP, plane
from mixpert_py.tuner.report.record import Record
from tests.tuner.report.records import many, not_finite, small

# (class of the point, x, y, whether it is the chosen one)
Point = tuple[str, float, float, bool]


def points(record: Record) -> dict[int, Point]:
    """Trial number → its point."""
    found = {}
    for link in ElementTree.fromstring(plane(record)).iter("a"):
        shape = link.findall("*")[-1]
        at = {key: float(value) for key, value in shape.attrib.items()}
        x, y = (at["cx"], at["cy"]) if "cx" in at else (at["x"] + 5, at["y"] + 5)
        is_chosen = any(one.get("class") == "halo" for one in link)
        found[int(link.attrib["data-trial"])] = (link.attrib["class"], x, y, is_chosen)
    return found


def test_every_plan_that_ran_has_its_point() -> None:
    record = small()
    found = points(record)
    ran = {at for at, trial in enumerate(record.trials, 1) if trial.problem is None}
    assert set(found) == ran
    assert len(ran) < len(record.trials)
    assert all(LEFT < x <= RIGHT and TOP <= y <= BOTTOM for _, x, y, _ in found.values())
    assert found[1][0] == "point start"
    assert [at for at, point in found.items() if point[3]] == [
        max(at for at, trial in enumerate(record.trials, 1) if trial.plan == record.plan)
    ]


def test_faster_is_left_and_over_budget_above_the_line() -> None:
    record = small()
    found = points(record)
    for one, (_, x, _, _) in found.items():
        for other, (_, other_x, _, _) in found.items():
            if (record.trials[one - 1].time or 0) < (record.trials[other - 1].time or 0):
                assert x < other_x
    line = re.search(r'class="budget"[^>]* y1="([\d.]+)"', plane(record))
    assert line
    for at, (_, _, y, _) in found.items():
        error = record.trials[at - 1].error
        assert error is not None
        assert (y < float(line[1])) == (error > 1e-4)


def test_an_error_that_is_not_finite_is_above_and_an_unknown_time_nowhere() -> None:
    record = not_finite()
    found = points(record)
    unknown = {at for at, trial in enumerate(record.trials, 1) if trial.time is None}
    assert unknown == {1}
    assert unknown.isdisjoint(found)
    infinite = [at for at, trial in enumerate(record.trials, 1) if trial.error is None]
    assert infinite
    assert all(found[at][2] < min(found[o][2] for o in found if o != at) for at in infinite)
    assert "not finite" in plane(record)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (many(0), "budget 1e-4"),
        (small(budget=0.0), "start, and chosen"),
        (msgspec.structs.replace(small(), budget=None), "chosen"),
        (msgspec.structs.replace(small(), trials=[]), "error of the program"),
    ],
    ids=["no-operator", "budget-zero", "any-error", "no-trial"],
)
def test_odd_searches_have_a_plane(record: Record, said: str) -> None:
    text = plane(record)
    ElementTree.fromstring(text)
    assert said in text
    assert "nan" not in text
