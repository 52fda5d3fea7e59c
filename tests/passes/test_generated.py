"""Programs that hypothesmith writes, with products among what it writes: a thousand of them with
EVERY_CHECK=1, else a thirtieth.
"""

import ast

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.every_check import EVERY_CHECK, examples
from tests.passes.properties import require_safe

# Stretches of text between two tokens, as nobody writes them.
GAPS = st.sampled_from(
    ["", " ", "  ", "\t", " \t", "\x0c", "\n", " \n  ", " # @ ( , é\n", "\\\n ", "\n#.dot(\n\n "]
)
NAMES = st.sampled_from(["a", "b1", "é", "x.T", "x [0]", "f( a , b )", "'@,(#'", "1", "2.", "-a"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0:
        return draw(NAMES)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))

    def gap() -> str:
        return draw(GAPS)

    match draw(st.integers(0, 6)):
        case 0:
            return f"{left}{gap()}@{gap()}{right}"
        case 1:
            return f"({gap()}{left}{gap()})"
        case 2:
            return f"({left}){gap()}.{gap()}dot{gap()}({gap()}{right}{gap()})"
        case 3:
            return f"np{gap()}.{gap()}dot{gap()}({left}{gap()},{gap()}{right}{gap()},{gap()})"
        case 4:
            return f"(mm){gap()}({gap()}{left},{right},out{gap()}={gap()}c{gap()})"
        case 5:
            return f"{left}{gap()}@{gap()}({gap()}{right}{gap()}){gap()}@{gap()}{left}"
        case _:
            return draw(NAMES)


FORMS = [
    "é  @=({}) ; x . y@=({}\n)#@=\né [ {} ]\t@=é",
    "z = ({})",
    "def g():\n  return({})@a",
    "def g(): return{}",
    "[0for i in({})@b]",
    "if a:\n\tz=[{},\n{}]\n\x0c",
    "class C:\n    z = ({}) ; y=a@b # a@b",
]
HEADS = [
    "import numpy as np\nfrom numpy import matmul as mm\n",
    "#!/bin/python\n# coding: {}\n'doc'\nfrom numpy import matmul as mm; import numpy as np\n",
    "'doc' ; import numpy as np;from numpy import matmul as mm\n",
    "\n# coding: {}\n\n'''doc\n'''; \\\n  \nimport numpy as np, os\nmm = np.matmul\n",
]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    encoding = draw(st.sampled_from(["utf-8", "latin-1", "cp1252"]))
    head = draw(st.sampled_from(HEADS))
    utf8 = encoding == "utf-8" or "coding" not in head
    body = []
    for form in draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=3)):
        expression = draw(expressions())
        body.append(form.replace("{}", expression))
    newlines = draw(st.sampled_from(["\n", "\r\n", "\r", "mixed"]))
    text = head.format(encoding) + "\n".join(body) + draw(st.sampled_from(["", "\n", "\n\n\t\n"]))
    if newlines == "mixed":
        lines = text.split("\n")
        ends = [draw(st.sampled_from(["\n", "\r\n", "\r"])) for _ in lines[1:]]
        text = "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))
    else:
        text = text.replace("\n", newlines)
    bom = b"\xef\xbb\xbf" if utf8 and draw(st.booleans()) else b""
    return bom + text.encode("utf-8" if utf8 else encoding)


# A failing program is small as it is, and shrinking one takes minutes.
GENERATED = settings(
    deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)


@st.deferred
def programs() -> st.SearchStrategy[str]:
    """Deferred: hypothesmith reads Python's grammar for seconds, where this file is collected."""
    import hypothesmith

    return hypothesmith.from_grammar()


HEAD = "import numpy as np\nfrom numpy import matmul as mm\n"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(GENERATED, max_examples=960 if EVERY_CHECK else 32)
@given(programs, st.sampled_from(FORMS), expressions(depth=2))
def test_products_in_a_generated_program(program: str, form: str, expression: str) -> None:
    """Before and after lines, comments and letters as the grammar allows them."""
    text = f"{program}\n{HEAD}{form.replace('{}', expression)}\n{program}"
    require_safe(accepted(text))


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
