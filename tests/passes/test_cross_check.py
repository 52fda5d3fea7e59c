"""A product is rewritten only where LibCST sees the same product at the same place."""

import ast
import re

import libcst as cst
import pytest
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    PositionProvider,
    ScopeProvider,
)

from mixpert_py.errors import SourceError
from mixpert_py.passes import cross_check
from mixpert_py.passes.cross_check import Claim, refusals
from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.passes.source import decode
from tests.passes.sources import EVERYWHERE

NO_NAMES = frozenset[str]()
NUMPY = frozenset({"numpy.dot"})
HEAD = "import numpy as np\nfrom numpy import dot\n"

CLAIMS = [
    # id, statement, the product in it, whether it is an operator, its names, the refusal
    ("operator", "x = a @ b", "a @ b", True, NO_NAMES, None),
    ("statement", "a @= b", "a @= b", True, NO_NAMES, None),
    ("function", "np.dot(a, b)", "np.dot(a, b)", False, NUMPY, None),
    ("own name", "dot(a, b)", "dot(a, b)", False, NUMPY, None),
    ("method", "a.dot(b)", "a.dot(b)", False, NO_NAMES, None),
    ("too long", "x = a @ b ", "a @ b ", True, NO_NAMES, "does not find it at this position"),
    ("too short", "x = aa @ b", "a @ b", True, NO_NAMES, "does not find it at this position"),
    ("another operator", "x = a * b", "a * b", True, NO_NAMES, "does not find it"),
    ("a call as an operator", "x = f(a)", "f(a)", True, NO_NAMES, "finds no @ here"),
    ("another module", "np.dot(a, b)", "np.dot(a, b)", False, {"cupy.dot"}, "resolves the name"),
    ("one of two", "dot(a, b)", "dot(a, b)", False, {"cupy.dot", "numpy.dot"}, "resolves the name"),
    ("hidden", "def f(np): np.dot(a, b)", "np.dot(a, b)", False, NUMPY, "resolves the name"),
    ("an operator as a call", "x = a @ b", "a @ b", False, NUMPY, "resolves the name"),
    ("a function as a method", "np.dot(a, b)", "np.dot(a, b)", False, NO_NAMES, "resolves the"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "product", "operator", "names", "refusal"),
    [pytest.param(*row[1:], id=row[0]) for row in CLAIMS],
)
def test_a_claim_is_confirmed_or_refused(
    statement: str, product: str, operator: bool, names: set[str], refusal: str | None
) -> None:
    source = decode(f"{HEAD}{statement}\n".encode(), "m")
    start = source.text.index(product, len(HEAD))
    claim = Claim(
        (start, start + len(product)), operator, frozenset(names), re.split(r"\W", product)[0]
    )
    [reason] = refusals(source, ast.parse(source.text), [claim])
    if refusal is None:
        assert reason is None
    else:
        assert reason is not None
        assert refusal in reason


PROGRAM = b"import numpy as np\nx = a @ b\ny = np.dot(a, b)\nz = a.dot(b)\n"


@pytest.mark.parametrize(
    ("sees", "reasons"),
    [
        pytest.param(NUMPY, ["finds no @", None, "resolves the name"], id="numpy.dot"),
        pytest.param({"mine.dot"}, ["finds no @", "resolves the name", None], id="mine.dot"),
        pytest.param(
            cross_check.OPERATOR, [None, "resolves the name", None], id="an operator"
        ),
    ],
)  # fmt: skip
def test_a_refused_product_is_not_rewritten(
    monkeypatch: pytest.MonkeyPatch, sees: set[str], reasons: list[str | None]
) -> None:
    answer = dict.fromkeys(PLACES, frozenset(sees))
    monkeypatch.setattr(cross_check, "read", lambda text, places: answer)
    source = PROGRAM + f"# LibCST sees {sees}\n".encode()  # a file that was not analysed before
    sites = analyze(source, "m")
    assert [site.reason and site.reason.removeprefix("LibCST ") for site in sites] == [
        reason and next(r for r in REASONS if r.startswith(reason)) for reason in reasons
    ]
    lines = rewrite(source, "m").splitlines()
    for site, line in zip(sites, (b"x = a @ b", b"y = np.dot(a, b)", b"z = a.dot(b)"), strict=True):
        assert (line in lines) is (site.reason is not None)


PLACES = [(2, 4, 2, 9), (3, 4, 3, 16), (4, 4, 4, 12)]
REASONS = [
    "does not find it at this position",
    "finds no @ here",
    "resolves the name differently",
]


@pytest.mark.parametrize(
    ("read", "refused"),
    [
        pytest.param("x = a  @ b; y = np.dot(a, b); z = a.dot(b)", [], id="other spaces"),
        pytest.param("x = a @ c; y = np.dot(a, b); z = a.dot(b)", [0], id="another operand"),
        pytest.param("y = np.dot(a, b); x = a @ b; z = a.dot(b)", [0, 1], id="another order"),
    ],
)
def test_a_product_that_libcst_reads_otherwise_is_left(
    monkeypatch: pytest.MonkeyPatch, read: str, refused: list[int]
) -> None:
    tree = cross_check._Tree(f"import numpy as np\n{read}\n")
    monkeypatch.setattr(cross_check, "_Tree", lambda text: tree)
    sites = analyze(PROGRAM + f"# LibCST reads {read!r}\n".encode(), "m")
    assert [i for i, site in enumerate(sites) if site.reason == f"LibCST {REASONS[0]}"] == refused


def test_a_file_whose_products_libcst_does_not_find_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = cross_check._Tree("import numpy as np\nx = a @ b; y = np.dot(a, b)\n")
    monkeypatch.setattr(cross_check, "_Tree", lambda text: tree)
    with pytest.raises(SourceError, match=r"^m: LibCST finds fewer or more calls and"):
        analyze(PROGRAM + b"# LibCST reads fewer products\n", "m")


def test_the_quicker_walks_see_what_those_of_libcst_do() -> None:
    text = f"{EVERYWHERE}x @= (\n  é @ f(1) @ (b @ c)); a[f(x)].y, *z = [b] = lambda: a @ b\n"
    tree = cross_check._Tree(text)
    wrapper = MetadataWrapper(tree.module, unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    assert cross_check._places(text, text.split("\n")) == [
        (span.start.line, span.start.column, span.end.line, span.end.column)
        for span in map(positions.__getitem__, tree.products)
    ]
    # The scopes learn of these by themselves.
    named = (cst.FunctionDef, cst.ClassDef, cst.Param)
    defined = {node.name for node in positions if isinstance(node, named)}
    contexts = wrapper.resolve(ExpressionContextProvider).items()
    names = {node: context for node, context in contexts if isinstance(node, cst.Name)}
    assert tree.targets == {n for n in names if names[n] is ExpressionContext.STORE} - defined
    theirs, ours = wrapper.resolve(ScopeProvider), tree.scopes()
    calls = [node for node in theirs if isinstance(node, cst.Call)]
    assert len(calls) > 45
    for call in calls:
        one, other = theirs[call], ours[call]
        assert type(one) is type(other)
        assert one.get_qualified_names_for(call) == other.get_qualified_names_for(call)
        assert one._assignment_count == other._assignment_count
