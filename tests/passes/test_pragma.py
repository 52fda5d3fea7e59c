"""Comments that decide about products: found as comments, and on their own lines only."""

import pytest

from mixpert_py.passes.pipeline import analyze, pragmas, rewrite
from mixpert_py.plan import Plan, Site

# Text, and of each product whether it is rewritten.
OFF = [
    ("line", "a @ b  # mixpert: off\na @ c\n", [False, True]),
    ("first of several", "f(a @ (  # mixpert: off\n b))\na @ c\n", [False, True]),
    ("last of several", "x = (a\n  @ b)  #mixpert:off\na @ c\n", [False, True]),
    ("two on a line", "a @ b, c @ d  # mixpert: off # slow\n", [False, False]),
    ("line before", "# mixpert: off\na @ c\n", [True]),
    ("file", "a @ b\nx.dot(y)\n# mixpert: off-file\n", [False, False]),
    ("string", "x = '# mixpert: off-file'; a @ b\n", [True]),
    ("other words", "a @ b  # mixpert: offline\na @ b  # say mixpert: off\n", [True, True]),
    ("carriage returns", "x = 1\ra @ b  # mixpert: off\ra @ c\r", [False, True]),
]


@pytest.mark.parametrize(("text", "expected"), [pytest.param(t, e, id=name) for name, t, e in OFF])
def test_off(text: str, expected: list[bool]) -> None:
    sites = analyze(text.encode(), "m")
    assert [site.reason is None for site in sites] == expected
    assert all("mixpert: off" in site.reason for site in sites if site.reason)
    assert (rewrite(text.encode(), "m") == text.encode()) is not any(expected)


UNKNOWN = [
    ("word", "x = 1\na @ b  # mixpert: nonsense\n", {2: "# mixpert: nonsense"}),
    ("case", "a @ b  # Mixpert: Off\n", {1: "# Mixpert: Off"}),
    ("more", "a @ b  #mixpert:off, it is slow\n", {1: "#mixpert:off, it is slow"}),
    ("long", f"a @ b  # mixpert: {'x' * 99}\n", {1: f"# mixpert: {'x' * 29}"}),
    ("string", "x = '# mixpert: nonsense'; a @ b\n", {}),
    ("in passing", "a @ b  # say mixpert: nonsense\na @ b  # mixpert is a name\n", {}),
    ("known", "a @ b  # mixpert: off # slow\na @ b  # mixpert: scheme=new\n", {}),
]


@pytest.mark.parametrize(("text", "expected"), [pytest.param(t, e, id=i) for i, t, e in UNKNOWN])
def test_what_is_meant_for_us_and_unknown(text: str, expected: dict[int, str]) -> None:
    assert pragmas(text.encode(), "m").unknown == expected


def test_scheme() -> None:
    source = b"a @ b  # mixpert: scheme=int8x6\na @ c\n"
    first, second = analyze(source, "m")
    said = rewrite(source, "m", scheme="float32").decode()
    assert f'site="{first.id}", scheme="int8x6")  # mixpert' in said
    assert f'site="{second.id}", scheme="float32")' in said
    plan = Plan(site=[Site(id=first.id, scheme="int8x3")])
    assert 'scheme="int8x6")' in rewrite(source, "m", plan).decode()
