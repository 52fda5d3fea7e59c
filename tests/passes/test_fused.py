"""Sums that are one call with their product, where the user asks for it."""

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree
from mixpert_py.passes.rewrite import same
from tests.every_check import examples
from tests.passes.sources import GAPS

FUSED = [
    # id, program, what becomes of it; @0 stands for `site="…"`
    ("sum", "z = a @ b + c", 'M.fused(a, b, c, form="ab+c", @0)'),
    ("difference", "z = a @ b - 1.5", 'M.fused(a, b, 1.5, form="ab-c", @0)'),
    ("other-first", "z = c + a @ b", 'M.fused(c, a, b, form="c+ab", @0)'),
    ("alpha", "z = alpha * (a @ b) + c", 'M.fused(alpha, (a, b), c, form="alpha*ab+c", @0)'),
    ("alpha-beta", "z = alpha*(a@b) - beta*c",
     'M.fused(alpha,(a,b), beta,c, form="alpha*ab-beta*c", @0)'),
    ("beta-alpha", "z = beta * c + alpha * (a @ b)",
     'M.fused(beta, c, alpha, (a, b), form="beta*c+alpha*ab", @0)'),
    ("any-alpha", "z = f(x @ y) * (a.T @ g(b)) + c",
     'M.fused(f(M.matmul(x, y, @0)), (a.T, g(b)), c, form="alpha*ab+c", @0)'),
    ("any-other-first", "z = f(x) * y.z - a.T @ g(b)",
     'M.fused(f(x) * y.z, a.T, g(b), form="c-ab", @0)'),
    ("brackets-of-operands", "z = (alpha) * (((a) @ (b))) + (c)",
     'M.fused((alpha), (((a), (b))), (c), form="alpha*ab+c", @0)'),
    ("brackets-of-beta", "z = (beta * c) + a @ b", 'M.fused((beta * c), a, b, form="c+ab", @0)'),
    ("two-products", "z = x @ y + a @ b",
     'M.fused(M.matmul(x, y, @0), a, b, form="c+ab", @0)'),
    ("three-factors", "z = a @ b @ d + c",
     'M.fused(M.matmul(a, b, @0), d, c, form="ab+c", @0)'),
    ("longer-sum", "z = a @ b + c + d", 'M.fused(a, b, c, form="ab+c", @0) + d'),
    ("glued", "def f(): return(c)+a@b",
     'def f(): return M.fused( (c),a,b, form="c+ab", @0)'),
    ("over-lines", "z = (a @ b  # +\n  +\\\n  c)",
     'z = (M.fused(a, b  # +\n  ,\\\n  c, form="ab+c", @0))'),
    ("tuple", "z = (x, y) + a @ b", 'M.fused((x, y), a, b, form="c+ab", @0)'),
    ("assign", "c += a @ b", 'c = M.fused(c, a, b, form="c+=ab", @0)'),
    ("assign-minus", "é  -=\t2 * (a@f(b)) # c",
     'é = M.fused(é, 2, (a,f(b)), form="c-=alpha*ab", site  =\t@ID) # c'),
    ("attribute", "c.x += a @ b", 'M.target(c).x.fused(a, b, form="c+=ab", @0)'),
    ("element", "c[i:, f(2)]  -=\ta@b.T # c",
     'M.target(c)[i:, f(2)].fused(a,b.T, form="c-=ab", site  =\t@ID) # c'),
    ("element-alpha", "(c).x[0] -= 2 * (a @ (b))",
     'M.target((c).x)[0].fused(2, (a, (b)), form="c-=alpha*ab", @0)'),
    ("product-in-element", "c[x @ y] += a @ b",
     'M.target(c)[M.matmul(x, y, @0)].fused(a, b, form="c+=ab", @0)'),
    ("assign-sum", "c += x + a @ b", 'c += M.fused(x, a, b, form="c+ab", @0)'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "expected"), [pytest.param(p, e, id=name) for name, p, e in FUSED]
)
def test_fused(program: str, expected: str) -> None:
    result = fuse(program)
    body = result.replace("import mixpert_py as _mixpert  # added by mixpert rewrite\n", "", 1)
    plain = re.sub(r'site ?= ?"[^"]+"', "@0", body).replace("_mixpert.", "M.")
    plain = re.sub(r'"m:[^"]+"', "@ID", plain)
    assert plain.removeprefix("" if "z =" in expected else "z = ") == expected


@pytest.mark.parametrize(
    "program",
    [
        "z = (a @ b) + c",
        "z = c + (a @ b)",
        "z = (alpha * (a @ b)) + c",
        "z = a @ b + f(c)",
        "z = a @ b + c.T",
        "z = a @ b + c[0]",
        "z = a @ b + (beta * c)",
        "z = a @ b + f(x) * c",
        "z = a @ b * alpha + c",
        "z = a @ b / 2 + c",
        "z = -(a @ b) + c",
        "z = a @ b * c",
        "z = a @ b + -c",
        "z = a @ b + 'c'",
        "z = np.dot(a, b) + c",
        "c += (a @ b)",
        "c += a @ b, d",
        "c *= a @ b",
        "(c) += a @ b",
        "(c[0]) += a @ b",
        "z = f'{a @ b + c}'",
        "def f(x: A @ B + C): c @ d",
    ],
)
def test_what_is_not_certain_is_the_plain_product(program: str) -> None:
    assert fuse(program) == rewrite(program.encode(), "m").decode()


def fuse(program: str) -> str:
    """The fused program, after all that holds of every rewritten one."""
    source = program.encode()
    result = rewrite(source, "m", fuse=True)
    assert rewrite(result, "m", fuse=True) == rewrite(result, "m") == result
    assert same(ast.parse(result), rewrite_tree(source, "m", "m.py", fuse=True))
    plain, fused = analyze(source, "m"), analyze(source, "m", fuse=True)
    assert sorted(site.id for site in plain) == sorted(site.id for site in fused)
    return result.decode()


def test_equal_products_keep_their_numbers() -> None:
    program = "def f(c, s): return s @ s + s @ s * (s @ s), c + s @ s\n"
    ids = {site.span[1]: site.id for site in analyze(program.encode(), "m")}
    for site in analyze(program.encode(), "m", fuse=True):
        assert ids.get(site.span[1], site.id) == site.id


SUMS = [
    "{a}{g}@{g}{b}{g}+{g}c",
    "c{g}-{g}{a}{g}@{g}{b}",
    "{a}{g}*{g}({g}{b}{g}@{g}x{g}){g}+{g}beta{g}*{g}c",
    "beta{g}*{g}c{g}-{g}({g}{a}{g}){g}*{g}({g}({g}{b}{g}@{g}{a}{g}){g})",
    "{a}{g}*{g}c{g}+{g}{b}{g}@{g}{a}",
]
OPERANDS = st.sampled_from(["a", "é", "x.T", "f( a , b )", "(a)", "( a + b )", "2.", "(a @ b)"])


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_every_gap_stays(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SUMS))
    text = text.replace("{a}", data.draw(OPERANDS)).replace("{b}", data.draw(OPERANDS))
    while "{g}" in text:
        text = text.replace("{g}", data.draw(GAPS), 1)
    fuse(f"z = ({text})\n")
    spaces = data.draw(st.sampled_from(["", " ", "\t", "\\\n "]))
    place = data.draw(st.sampled_from(["c", "c.x", "(c)[i]", "f( c ) .x [ 1: ]"]))
    fuse(f"{place}{spaces}+={spaces}a @ ({text})")
