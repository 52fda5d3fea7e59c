"""Programs that hypothesmith writes, with products among what it writes: a thousand of them with
EVERY_CHECK=1, else a thirtieth.
"""

import ast

import libcst
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.every_check import EVERY_CHECK, examples
from tests.passes.properties import require_safe
from tests.passes.sources import FORMS, expressions, files

# A failing program is small as it is, and shrinking one takes minutes.
GENERATED = settings(
    deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)


@st.deferred
def programs() -> st.SearchStrategy[str]:
    """Deferred: hypothesmith reads Python's grammar for seconds, where this file is collected."""
    import hypothesmith

    return hypothesmith.from_grammar()


@st.deferred
def operands() -> st.SearchStrategy[str]:
    import hypothesmith

    return hypothesmith.from_node(libcst.BinaryOperation)


HEAD = "import numpy as np\nfrom numpy import matmul as mm\n"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(GENERATED, max_examples=960 if EVERY_CHECK else 32)
@given(programs, st.sampled_from(FORMS), expressions(depth=2))
def test_products_in_a_generated_program(program: str, form: str, expression: str) -> None:
    """Before and after lines, comments and letters as the grammar allows them."""
    text = f"{program}\n{HEAD}{form.replace('{}', expression)}\n{program}"
    require_safe(accepted(text))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(GENERATED, max_examples=60 if EVERY_CHECK else 3)
@given(operands)
def test_products_of_generated_operands(operand: str) -> None:
    text = f"{HEAD}z = ({operand})@({operand}), np.dot({operand},\t{operand}), ({operand}).dot (w)"
    assert require_safe(accepted(text)) >= 3


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=examples(150), deadline=None)
@given(files())
def test_products_in_any_spacing(source: bytes) -> None:
    require_safe(accepted(source))


def accepted(text: str | bytes) -> bytes:
    """The text as a file; the example counts only if Python accepts it."""
    try:
        source = text.encode() if isinstance(text, str) else text
        ast.parse(source)
    except (SyntaxError, ValueError):
        assume(False)
    return source
