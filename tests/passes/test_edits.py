"""Edits of a text: where its letters go, and inter-token text that comes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.passes.edits import (
    Edit,
    assignment_to_spacing,
    comma_to_method,
    comma_to_operator,
    method_to_comma,
    moved,
    operator_to_comma,
    spacing_to_assignment,
    splice,
)

TEXT = "abcdefghijklmnopqrstuvwxyz"


@st.composite
def edits(draw: st.DrawFn) -> list[Edit]:
    """Replacements of spans that do not overlap, in any order."""
    bounds = sorted(draw(st.sets(st.integers(0, len(TEXT)), max_size=12)))
    spans = list(zip(bounds[::2], bounds[1::2], strict=False))
    replacements = st.sampled_from(["", "1", "12345"])
    return draw(st.permutations([Edit(a, b, draw(replacements), True, 0) for a, b in spans]))


@settings(deadline=None)
@given(edits())
def test_an_offset_moves_with_its_letter(several: list[Edit]) -> None:
    text, move = splice(TEXT, several), moved(several)
    for offset, letter in enumerate(TEXT):
        around = [edit for edit in several if edit.start <= offset < edit.end]
        if not around:
            assert text[move(offset)] == letter
        for edit in around:
            assert text.startswith(edit.replacement, move(offset))
    assert move(len(TEXT)) == len(text)


@pytest.mark.parametrize("before", ["", " ", "  ", "\n", " # @ ( ,\n "])
@pytest.mark.parametrize("after", ["", " ", "\t", "\n ", "\\\n", " # .dot(\n"])
def test_the_inverse_gives_the_text_back(before: str, after: str) -> None:
    operator = f"{before}@{after}"
    assert comma_to_operator(operator_to_comma(operator)) == operator
    assert spacing_to_assignment(assignment_to_spacing(f"{after}@={after}")) == f"{after}@={after}"
    method = f"{before}.{after}dot{before}({after}"
    assert comma_to_method(*method_to_comma(method)) == method
