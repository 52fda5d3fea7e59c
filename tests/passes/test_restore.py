"""A rewritten text gives back the bytes it was made from, and an edited one all that is certain."""

import ast

import pytest
from hypothesis import assume, given, settings

from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.passes.restore import CHANGED, restore
from mixpert_py.plan import Plan, Site
from tests.every_check import examples
from tests.passes.properties import require_safe
from tests.passes.sources import files


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=examples(150), deadline=None)
@given(files())
def test_any_spacing_comes_back(source: bytes) -> None:
    try:
        ast.parse(source)
    except SyntaxError:
        assume(False)
    require_safe(source)


PROGRAM = b"""\
import numpy as np


def f(x, w):
    y = x @ w
    return np.dot(y, w) + y.dot( w )
"""


def test_the_plans_schemes_go_as_well() -> None:
    sites = analyze(PROGRAM, "m")
    plan = Plan(site=[Site(id=sites[0].id, scheme="int8x6", block=256)])
    for rewritten in (rewrite(PROGRAM, "m", plan), rewrite(PROGRAM, "m", plan, "float32")):
        back = restore(rewritten, "m")
        assert back.source == PROGRAM
        assert [site.id for site in back.sites] == [site.id for site in sites]
        assert [site.kind for site in back.sites] == ["matmul", "dot", "dot"]
        assert [site.line for site in back.sites] == [6, 7, 7]


def test_a_product_that_was_added_later_comes_back_too() -> None:
    once = rewrite(PROGRAM, "m")
    twice = rewrite(once + b"z = a@ b\n", "m")
    assert restore(twice, "m").source == PROGRAM + b"z = a@ b\n"


def test_products_beside_and_within_an_f_string() -> None:
    source = b"x = (f'''\\\n\n{f(a @ b)}\n{g(\na @ b)}''' f'{a @ b}', a @ b)\nx @= f'{a @ b}'\n"
    rewritten = rewrite(source, "m")
    assert rewritten.count(b"_mixpert.") == 2
    assert restore(rewritten, "m").source == source


def test_ids_in_an_encoding_without_the_letters() -> None:
    source = b"# coding: latin-1\na @ '\xe9'\n"
    assert restore(rewrite(source, "gr\u00f6\u00dfe\u2192"), "m").source == source


EDITED = [
    # id, what of the rewritten PROGRAM is replaced by what; the same of the restored PROGRAM
    ("renamed function", "def f(", "def g(", "def f(", "def g("),
    ("other operand", "(x, w, site", "(x, 2 ** w, site", "x @ w", "x @ 2 ** w"),
    ("moved import", "import numpy as np\n", "import os, numpy as np\n",
     "import numpy as np\n", "import os, numpy as np\n"),
    ("new statement", "    y = ", "    y = 1\n    y = ", "    y = ", "    y = 1\n    y = "),
    ("new product", "    y = ", "    z = w @ w\n    y = ", "    y = ", "    z = w @ w\n    y = "),
    ("other newline", "\n\n\n", "\r\n\r\n", "\n\n\n", "\r\n\r\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "was", "becomes"), [row[1:] for row in EDITED], ids=[row[0] for row in EDITED]
)
def test_edits_elsewhere_are_kept(old: str, new: str, was: str, becomes: str) -> None:
    rewritten = rewrite(PROGRAM, "m").decode()
    assert old in rewritten
    back = restore(rewritten.replace(old, new, 1).encode(), "m")
    assert back.source.decode() == PROGRAM.decode().replace(was, becomes, 1)
    assert all(site.reason is None for site in back.sites)


CHANGES = [
    # id, what of the rewritten PROGRAM is replaced by what: the call of `x @ w` is no longer ours
    ("reformatted", "matmul(x, w, site", "matmul(\n        x, w, site"),
    ("space before the bracket", "matmul(x, w", "matmul (x, w"),
    ("space before the comma", "(x, w, site", "(x, w , site"),
    ("two spaces", "w, site", "w,  site"),
    ("around the equals sign", "site=", "site ="),
    ("other quotes", 'site="m:f/matmul~145133#0"', "site='m:f/matmul~145133#0'"),
    ("operand by keyword", "x, w, site", "x, b=w, site"),
    ("third operand", "x, w, site", "x, w, y, site"),
    ("starred operands", "x, w, site", "*x, site"),
    ("option", "x, w, site", 'x, w, backend="reference", site'),
    ("option at the end", '#0")\n', '#0", backend="reference")\n'),
    ("operand of lower precedence", "x, w, site", "x, 2 * w, site"),
    ("no operand", "x, w, site", "x, site"),
    ("computed scheme", '#0")\n', '#0", scheme=x)\n'),
    ("order", 'w, site="m:f/matmul~145133#0"', 'w, scheme="int8x6", site="m:f/matmul~145133#0"'),
    ("own id", "m:f/matmul~145133#0", "mine"),
    ("other function", "_mixpert.matmul", "_mixpert.inner"),
    ("brackets around the id", 'site="m:f/matmul~145133#0"', 'site=("m:f/matmul~145133#0")'),
]


@pytest.mark.parametrize(
    ("old", "new"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_changed_call_stays_with_a_reason(old: str, new: str) -> None:
    rewritten = rewrite(PROGRAM, "m").decode()
    assert old in rewritten
    changed = rewritten.replace(old, new, 1)
    back = restore(changed.encode(), "m")
    mine, *others = back.sites
    assert (mine.line, mine.reason) == (6, CHANGED)
    assert [site.reason for site in others] == [None, None]
    (unchanged,) = (line for line in changed.splitlines(keepends=True) if "return" in line)
    assert back.source.decode() == changed.replace(unchanged, PROGRAM.decode().splitlines(True)[-1])
    ast.parse(back.source)


def test_copies_of_a_call_under_two_schemes() -> None:
    rewritten = rewrite(b"a @ b\n", "m", scheme="int8x6").decode()
    call = rewritten.splitlines()[-1]
    back = restore(f"{rewritten}{call}\n{call.replace('int8x6', 'int8x3')}\n".encode(), "m")
    assert [site.reason for site in back.sites] == [None, None, CHANGED]
    assert back.source.decode().splitlines()[1:3] == ["a @ b", "a @ b"]


def test_the_import_stays_while_something_needs_it() -> None:
    rewritten = rewrite(b"a @ b\n", "m") + b"_mixpert.precision('int8x6')\n"
    back = restore(rewritten, "m")
    assert back.source.splitlines()[1:] == [b"a @ b", b"_mixpert.precision('int8x6')"]
    assert b"import mixpert_py as _mixpert" in back.source


def test_an_import_of_the_users_stays() -> None:
    source = b"import mixpert_py as _mixpert\na @ b\n"
    assert restore(rewrite(source, "m"), "m").source == source


def test_an_import_whose_calls_are_gone() -> None:
    first, _ = rewrite(b"a @ b\n", "m").splitlines(keepends=True)
    assert restore(first + b"x = 1\n", "m").source == b"x = 1\n"


def test_a_call_within_a_changed_call() -> None:
    rewritten = rewrite(b"a @ (b @ c)\n", "m").decode()
    outer = rewritten.index("_mixpert.matmul(a") + len("_mixpert.matmul(")
    back = restore(f"{rewritten[:outer]} {rewritten[outer:]}".encode(), "m")
    assert [site.reason for site in back.sites] == [CHANGED, None]
    assert b"matmul( a, (b @ c), site" in back.source
