"""Two tables of names: no false rewrite in one, nearly every product found in the other."""

from collections.abc import Iterator

import pytest

from mixpert_py.passes.finder import CallSite, find_products
from mixpert_py.passes.pipeline import analyze
from tests.passes.cases import names

HIDDEN = [
    *((name, text, names.CALLS) for name, text in names.HIDDEN_MODULE.items()),
    *((name, text, names.FUNCTIONS) for name, text in names.HIDDEN_FUNCTION.items()),
]


def programs(name: str, text: str, calls: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """A template's programs, each with the product in it."""
    for call in calls:
        if name not in names.NO_MODULE or call != "np.dot(a, b)":
            yield text.replace("CALL", call).replace("NAME", call.partition("(")[0]) + "\n", call


def sites(text: str) -> tuple[CallSite, ...]:
    compile(text, "m.py", "exec")
    return analyze(text.encode(), "m")


@pytest.mark.parametrize(("name", "text", "calls"), HIDDEN, ids=[row[0] for row in HIDDEN])
def test_no_false_rewrite(name: str, text: str, calls: tuple[str, ...]) -> None:
    """Where the name may be anything, the call decides by the function that it gets."""
    for program, call in programs(name, text, calls):
        compile(program, "m.py", "exec")
        rewritten = find_products(program.encode(), "m").rewritten
        assert {product.spelling.RUNTIME for product in rewritten} <= {"xp_product"}, call


def test_every_operator_is_found_and_a_miss_is_listed_with_its_reason() -> None:
    for text in names.OPERATORS:
        found = sites(f"{text}\n")
        assert len(found) >= max(1, text.count("@")), text
        assert {site.reason for site in found} == {None}, text
    for text in names.MISSED:
        assert [bool(site.reason) for site in sites(f"{text}\n")] == [True], text
