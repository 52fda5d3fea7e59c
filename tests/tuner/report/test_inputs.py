"""The picture of a plan's errors on other inputs."""

import msgspec
import pytest

from mixpert_py.tuner.report.inputs import Inputs, inputs
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import InputEntry, Record
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import small


def tried(*errors: float | None, **changes: object) -> Record:
    """A record with these errors on other inputs."""
    entries = [InputEntry(arguments=f"--seed {at}", error=e) for at, e in enumerate(errors)]
    largest = max((error for error in errors if error is not None), default=None)
    given = {"hold_outs": entries, "hold_out": largest, "hold_out_rate": 0.05}
    return msgspec.structs.replace(small(), **given, **changes)  # type: ignore[arg-type]


def test_points_rise_from_the_most_accurate_input_to_the_budget() -> None:
    picture = inputs(tried(3e-5, 1e-7, 0.0, 2e-6))
    assert picture is not None
    assert [point.text for point in picture.points] == [
        "--seed 2: error 0",
        "--seed 1: error 1.0e-07",
        "--seed 3: error 2.0e-06",
        "--seed 0: error 3.0e-05",
    ]
    heights = [point.y for point in picture.points]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > picture.BOTTOM - Inputs.GUTTER  # exact: below the axis
    assert picture.budget == (pytest.approx(picture.budget[0]), "budget 1e-4")  # type: ignore[index]
    assert picture.TOP < picture.budget[0] < heights[-1]
    across = [point.x for point in picture.points]
    assert across == sorted(set(across))
    assert Inputs.LEFT < across[0] < across[-1] < Inputs.RIGHT


def test_shares_of_several_budgets_are_compared_with_one() -> None:
    picture = inputs(tried(0.2, 0.9, criterion=None, budget=None))
    assert picture is not None
    assert picture.budget is not None
    assert picture.budget[1] == "budget 1"
    assert inputs(tried(0.2, 0.9, budget=None)).budget is None  # type: ignore[union-attr]


def test_one_input_is_no_picture() -> None:
    assert inputs(small()) is None
    assert inputs(tried(1e-5)) is None
    assert inputs(tried(1e-5, None)) is None


@pytest.mark.parametrize("count", [0, 60])
def test_the_page_has_it_where_inputs_were_tried(count: int) -> None:
    text = page(tried(*(1e-6 * (1 + at) for at in range(count))), Program("s.py"))
    assert ('id="inputs"' in text) == (count > 1)
    assert text.count("<title>--seed") == count
    if count:
        assert "0 of 60 over: at most 5 % of such inputs" in text
