"""The staircase of accuracy and speed: its rows, its sentences and its picture."""

import msgspec
import pytest

from mixpert_py.tuner.report import charts
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Record, StepEntry
from mixpert_py.tuner.report.staircase import notes, step_names, step_rows
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import small


def stepped(*steps: tuple[float, float, float], **changes: object) -> Record:
    """A record with steps of these budgets, errors and gains."""
    entries = [
        StepEntry(budget=b, error=e, gain=g, lowered=at, schemes={})
        for at, (b, e, g) in enumerate(steps, 1)
    ]
    return msgspec.structs.replace(small(), steps=entries, **changes)  # type: ignore[arg-type]


THREE = (1e-8, 3e-9, 1.2), (1e-5, 8e-6, 2.0), (1e-2, 5e-3, 12.0)


def test_a_row_for_the_program_and_for_each_step() -> None:
    record = stepped(*THREE)
    assert step_names(record) == ("budget", "error", "gain", "products lowered")
    assert step_rows(record) == [
        ("as it is", "0", "1.00×", "0 of 3"),
        ("1e-8", "3.0e-09", "1.20×", "1 of 3"),
        ("1e-5", "8.0e-06", "2.00×", "2 of 3"),
        ("1e-2", "5.0e-03", "12.00×", "3 of 3"),
    ]


def test_a_predicted_gain_says_so() -> None:
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


@pytest.mark.parametrize("steps", [None, []])
def test_without_a_step_there_is_no_picture(steps: list[StepEntry] | None) -> None:
    record = msgspec.structs.replace(small(), steps=steps)
    assert charts.staircase(record) == ""
    text = page(record, Program("s.py"))
    assert ('id="staircase"' in text) == (steps is not None)
    assert ("## Accuracy and speed" in markdown(record, Program("s.py"))) == (steps is not None)


def test_the_page_has_the_picture_and_the_table() -> None:
    text = page(stepped(*THREE), Program("s.py"))
    for name in ("1.20×  within 1e-8", "2.00×  within 1e-5", "12.00×  within 1e-2"):
        assert name in text
    assert '<td class="right">12.00×</td>' in text
