"""The staircase of accuracy and speed: its rows, its sentences and its picture."""

from itertools import pairwise

import msgspec
import pytest

from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Record, StepEntry
from mixpert_py.tuner.report.staircase import (
    Staircase,
    notes,
    staircase,
    step_names,
    step_rows,
)
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import small


def stepped(*steps: tuple[float, float, float], **changes: object) -> Record:
    """A record with steps of these budgets, errors and gains."""
    entries = [
        StepEntry(budget=b, error=e, gain=g, program=g - 0.01, lowered=at, schemes={})
        for at, (b, e, g) in enumerate(steps, 1)
    ]
    return msgspec.structs.replace(small(), steps=entries, **changes)  # type: ignore[arg-type]


THREE = (1e-8, 3e-9, 1.2), (1e-5, 8e-6, 2.0), (1e-2, 5e-3, 12.0)


def test_a_row_for_the_program_and_for_each_step() -> None:
    record = stepped(*THREE)
    assert step_names(record)[-2:] == ("of whole runs", "products lowered")
    assert step_rows(record) == [
        ("as it is", "0", "1.00×", "1.00×", "0 of 3"),
        ("1e-8", "3.0e-09", "1.20×", "1.19×", "1 of 3"),
        ("1e-5", "8.0e-06", "2.00×", "1.99×", "2 of 3"),
        ("1e-2", "5.0e-03", "12.00×", "11.99×", "3 of 3"),
    ]


def test_predicted_times_have_no_whole_runs() -> None:
    record = stepped(*THREE, device="NVIDIA H200")
    assert step_names(record) == ("budget", "error", "gain, predicted", "products lowered")
    assert step_rows(record)[1] == ("1e-8", "3.0e-09", "1.20×", "1 of 3")
    assert not any("Slice products" in note for note in notes(record))


def test_slice_products_are_no_times() -> None:
    record = stepped(*THREE, unit="products")
    assert "fewer products, predicted" in step_names(record)
    assert "Slice products are counted, which are no times." in notes(record)


def test_errors_are_parts_of_budgets_where_those_differ() -> None:
    record = stepped((0.01, 0.004, 1.2), criterion=None)
    assert step_names(record)[1] == "error / budget"
    assert step_rows(record)[1][:2] == ("1 %", "0.4 %")


@pytest.mark.parametrize(
    ("steps", "changes", "words"),
    [
        (THREE, {}, "Each step is faster than all above it"),
        (THREE, {"left_out": 1}, "One plan that the search found is left out"),
        (THREE, {"left_out": 2}, "2 plans that the search found are left out"),
        ((), {}, "There is no step: no plan was faster"),
        ((), {"unclear": True}, "There is no step: this machine did not tell"),
    ],
)
def test_sentences_say_what_a_step_is_and_what_is_none(
    steps: tuple[tuple[float, float, float], ...], changes: dict[str, object], words: str
) -> None:
    assert words in " ".join(notes(stepped(*steps, **changes)))


def test_stairs_go_up_and_to_the_right() -> None:
    picture = staircase(stepped(*THREE))
    assert picture
    places = [(stair.x, stair.y) for stair in picture.stairs]
    assert places == sorted(places, key=lambda place: (place[0], -place[1]))
    for x, y in places:
        assert Staircase.LEFT < x <= Staircase.RIGHT
        assert Staircase.TOP <= y <= Staircase.BOTTOM
    edge = [tuple(map(float, place.split(","))) for place in picture.path.split()]
    corners = [(round(x, 1), round(y, 1)) for x, y in places]
    assert [place for place in edge if place in corners]
    assert all(corner in edge for corner in corners)
    for (x, y), (to_x, to_y) in pairwise(edge):
        assert (x == to_x) != (y == to_y), "each line is level or upright"
        assert to_x >= x
        assert to_y <= y
    assert [stair.name for stair in picture.stairs] == ["1.20×", "2.00×", "12.00×"]
    assert picture.stairs[-1].anchor == "end"
    assert picture.stairs[0].anchor == "start"


def test_an_exact_step_lies_on_its_own_line() -> None:
    picture = staircase(stepped((1e-15, 0.0, 1.5), *THREE[1:]))
    assert picture
    assert picture.stairs[0].y == Staircase.BOTTOM - Staircase.GUTTER / 2


def test_of_names_that_would_meet_one_is_left_out() -> None:
    picture = staircase(stepped((1e-6, 9.0e-7, 2.0), (1e-5, 1.1e-6, 2.05), (1e-1, 0.1, 30.0)))
    assert picture
    assert [stair.name for stair in picture.stairs] == ["", "2.05×", "30.00×"]


@pytest.mark.parametrize("steps", [None, []])
def test_without_a_step_there_is_no_picture(steps: list[StepEntry] | None) -> None:
    record = msgspec.structs.replace(small(), steps=steps)
    assert staircase(record) is None
    text = page(record, Program("s.py"))
    assert ('id="staircase"' in text) == (steps is not None)
    assert 'class="stairs"' not in text
    assert ("## Accuracy and speed" in markdown(record, Program("s.py"))) == (steps is not None)


def test_the_page_has_the_picture_and_the_table() -> None:
    text = page(stepped(*THREE), Program("s.py"))
    assert text.count('class="stairs"') == 1
    assert "Within 1e-5: error 8.0e-06, gain 2.00×, products lowered: 2" in text
    assert '<td class="right">11.99×</td>' in text
