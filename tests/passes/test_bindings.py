"""Two tables of names: no false rewrite in one, nearly every product found in the other."""

import pytest

from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.finder import find_products
from mixpert_py.passes.pipeline import analyze
from tests.passes.cases import names


def programs(templates: dict[str, str], calls: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """An id, a program, and the product in it, for each template and each call."""
    return [
        (
            f"{name}: {call}",
            text.replace("CALL", call).replace("NAME", call.partition("(")[0]) + "\n",
            call,
        )
        for name, text in templates.items()
        for call in calls
        if name not in names.NO_MODULE or call != "np.dot(a, b)"
    ]


NEGATIVE = [
    *programs(names.HIDDEN_MODULE, names.CALLS),
    *programs(names.HIDDEN_FUNCTION, names.FUNCTIONS),
]
POSITIVE = [
    *programs(names.BOUND_MODULE, names.CALLS),
    *((text, f"{text}\n", "") for text in (*names.OPERATORS, *names.MISSED)),
]


def sites(text: str) -> tuple[CallSite, ...]:
    compile(text, "m.py", "exec")
    return analyze(text.encode(), "m")


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text, _ in NEGATIVE])
def test_no_false_rewrite(text: str) -> None:
    """Where the name may be anything, the call decides by the function that it gets."""
    compile(text, "m.py", "exec")
    rewritten = find_products(text.encode(), "m").rewritten
    assert {product.spelling.RUNTIME for product in rewritten} <= {"xp_product"}


@pytest.mark.parametrize(
    ("text", "call"),
    [pytest.param(t, c, id=name) for name, t, c in POSITIVE if t[:-1] not in names.MISSED],
)
def test_every_product_is_found(text: str, call: str) -> None:
    found = sites(text)
    assert len(found) >= max(1, text.count(call) if call else text.count("@"))
    assert {site.reason for site in found} == {None}


@pytest.mark.parametrize("text", names.MISSED)
def test_a_miss_is_listed_with_its_reason(text: str) -> None:
    assert [bool(site.reason) for site in sites(f"{text}\n")] == [True]
