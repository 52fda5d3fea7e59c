"""What is found in a source, where it is said to be, and what comments and imports say of it."""

import ast
import re
from collections.abc import Iterator

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.passes.cross_check import refusals
from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.finder import CallSite, find_products
from mixpert_py.passes.pipeline import analyze, pragmas, rewrite, rewrite_tree
from mixpert_py.passes.scopes import MAX_PARTS, read_scopes
from mixpert_py.passes.source import decode, parse
from mixpert_py.plan import SITE_ID, Plan, Site
from tests.passes.cases import names

MARK = b"import mixpert_py as _mixpert  # added by mixpert rewrite"

FILES = [
    # id, file, what becomes of it: I the import without its newline, @0 for `site="..."`
    ("crlf", b"x = 1\r\ny = (a\r\n @ b)\r\n",
     b"I\r\nx = 1\r\ny = (M.matmul(a\r\n , b, @0))\r\n"),
    ("cr", b"x = 1\ry = a @ b\r", b"I\rx = 1\ry = M.matmul(a, b, @0)\r"),
    ("mixed-newlines", b"x = 1\r\ny = a @ b\nz = 2\r",
     b"I\r\nx = 1\r\ny = M.matmul(a, b, @0)\nz = 2\r"),
    ("continued-before-def", b"y = a \\\r\n@ b\r\ndef f(): pass\r\n",
     b"I\r\ny = M.matmul(a \\\r\n, b, @0)\r\ndef f(): pass\r\n"),
    ("no-last-newline", b"y = a @ b", b"I\ny = M.matmul(a, b, @0)"),
    ("bom", b"\xef\xbb\xbfy = a @ b\n", b"\xef\xbb\xbfI\ny = M.matmul(a, b, @0)\n"),
    ("bom-and-coding", b"\xef\xbb\xbf# coding: utf-8\r\ny = a @ b\r\n",
     b"\xef\xbb\xbf# coding: utf-8\r\nI\r\ny = M.matmul(a, b, @0)\r\n"),
    ("latin-1", b"# coding: latin-1\ns = '\xe9\xff'; y = a @ b\n",
     b"# coding: latin-1\nI\ns = '\xe9\xff'; y = M.matmul(a, b, @0)\n"),
    ("cp1252", b"# coding: cp1252\ny = '\x80' @ b\n",
     b"# coding: cp1252\nI\ny = M.matmul('\x80', b, @0)\n"),
    ("wide-characters", "é = 'ß😀' @ ü; z = é.dot(ü)\n".encode(),
     "I\né = M.matmul('ß😀', ü, @0); z = M.dot_method(é, ü, @0)\n".encode()),
    ("no-line-ends", "s = 'a\u2028\x85\x0b\x1c'; y = a @ b\n".encode(),
     "I\ns = 'a\u2028\x85\x0b\x1c'; y = M.matmul(a, b, @0)\n".encode()),
    ("tabs", b"if x:\n\tif y:\n\t\tz\t=\ta\t@\tb\n",
     b"I\nif x:\n\tif y:\n\t\tz\t=\tM.matmul(a\t,\tb, @0)\n"),
    ("trailing-spaces", b"y = a @ b   \n\n\n", b"I\ny = M.matmul(a, b, @0)   \n\n\n"),
    ("form-feed-alone", b"x = 1\n\x0c\ny = a @ b\n", b"I\nx = 1\n\x0c\ny = M.matmul(a, b, @0)\n"),
    ("form-feed-inside", b"y = (a @\x0c b)\n", b"I\ny = (M.matmul(a,\x0c b, @0))\n"),
    # LibCST would write what is around these products differently.
    ("form-feed-before", b"y = 1\n\x0cz = a @ b\n", b"I\ny = 1\n\x0cz = M.matmul(a, b, @0)\n"),
    ("space-before-colon", b"try: pass\nexcept OSError : x = a @ b\n",
     b"I\ntry: pass\nexcept OSError : x = M.matmul(a, b, @0)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), [pytest.param(s, e, id=i) for i, s, e in FILES])
def test_every_other_byte_stays(source: bytes, expected: bytes) -> None:
    result = rewrite(source, "m")
    plain = re.sub(rb'site="[^"]+"', b"@0", result)
    assert plain.replace(MARK, b"I").replace(b"_mixpert.", b"M.") == expected
    compile(result, "m.py", "exec")
    assert rewrite(result, "m") == result


def test_positions_count_characters_and_lines_as_python_does() -> None:
    source = decode("x\r\né😀y\rz\x0b\u2028\n".encode(), "m")
    assert source.line_starts == (0, 3, 7, 11)
    assert source.newline == "\r\n"
    assert source.text[source.offset(2, len("é😀".encode()))] == "y"
    assert source.position(5) == (2, 2)


HOSTILE = [
    ("syntax", b"x = = a @ b\n", "line 1"),
    ("unclosed", b"a @ (b\n", "line 1"),
    ("nul", b"a @ b\0", "m: "),
    ("utf-16", "a @ b\n".encode("utf-16"), "m: "),
    ("unknown-encoding", b"# coding: nosuch\na @ b\n", "nosuch"),
    ("not-a-text-encoding", b"# coding: hex\na @ b\n", "m: "),
    ("wrong-encoding", b"x = '\xff' @ b\n", "encoding"),
    ("encoding-against-bom", b"\xef\xbb\xbf# coding: latin-1\na @ b\n", "m: "),
    ("brackets", b"(" * 100_000 + b"a @ b" + b")" * 100_000, "too many nested"),
    ("minuses", b"a @ " + b"-" * 100_000 + b"1\n", "nested"),
    ("products", b"@".join([b"a"] * 50_000), "nested"),
    ("elif", b"if a @ b: x\n" + b"elif a: x\n" * 20_000, "nested"),
    ("long-line", b"x = [" + b"1," * 5_000_000 + b"a @ b]", "larger than 4 MiB"),
    ("many-tokens", b"x = [" + b"1," * 500_000 + b"a @ b]", "more than 1,000,000 words and signs"),
    ("long-chain", b"x = [" + b"1," * 30_000 + b"]" + b"@a" * 150, "nested too deeply"),
    ("long-number", b"x = a @ " + b"1" * 5_000, "line 1"),
]


@pytest.mark.parametrize(("source", "words"), [pytest.param(s, w, id=i) for i, s, w in HOSTILE])
def test_hostile_input_gives_one_line(source: bytes, words: str) -> None:
    for step in (analyze, rewrite, dependencies):
        with pytest.raises(SourceError) as raised:
            step(source, "m")
        message = str(raised.value)
        assert words in message
        assert "\n" not in message
        assert len(message) < 300


def test_deep_code_without_a_product_is_fine() -> None:
    source = b"x = " + b" + ".join([b"a"] * 700) + b"\n"
    assert rewrite(source, "m") == source


def test_nesting_of_a_person_is_fine() -> None:
    chain = b" @ ".join([b"a"] * 60)
    result = rewrite(b"def f():\n  if x:\n    return [[(" + chain + b")]]\n", "m")
    assert result.count(b"_mixpert.matmul(") == 59


def test_as_many_brackets_as_python_takes_are_fine() -> None:
    def lists(count: int) -> bytes:
        return b"[" * count + b"a @ b" + b"]" * count

    assert b"_mixpert.matmul(" in rewrite(lists(199), "m")
    with pytest.raises(SourceError, match="too many nested parentheses"):
        rewrite(lists(200), "m")  # its call is one bracket more than Python takes


def test_a_file_that_cannot_have_a_product_is_not_parsed() -> None:
    for source in (b"x = = 1\n", b"@decorated\ndef f(: pass\n", b"x = 1\0\n"):
        assert rewrite(source, "m") == source
        assert analyze(source, "m") == ()
        with pytest.raises(SourceError):  # a tree there is none
            rewrite_tree(source, "m", "m.py")


@pytest.mark.parametrize("length", [1 << 20, 300_001], ids=["characters", "words"])
def test_a_file_with_products_too_long_for_the_cross_check_is_skipped(length: int) -> None:
    more = b"x" * length if length == 1 << 20 else b"1," * (length // 2)
    for read in (analyze, rewrite):
        with pytest.raises(SourceError, match=r"^m: more than 150,000 words or 1 MiB in its prod"):
            read(b"a @ [" + more + b"]\n", "m")


def test_words_of_nested_products_count_once() -> None:
    source = b"import numpy as np\nnp.dot(np.dot(np.dot([" + b"1," * 40_000 + b"], a), b), c)\n"
    assert [site.reason for site in analyze(source, "m")] == [None] * 3
    assert rewrite(source, "m").count(b"_mixpert.dot(") == 3


@pytest.mark.parametrize("source", [b"x = 1\n(x): int = a @ b\n", b"assert(a if c else b)@(b)\n"])
def test_libcst_need_not_read_what_is_around_a_product(source: bytes) -> None:
    assert [site.reason for site in analyze(source, "m")] == [None]
    assert b"_mixpert.matmul(" in rewrite(source, "m")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(b"f(a,\n  b\n  @ c)\n", id="line within brackets"),
        pytest.param(b"x = a \\\n@ c\n", id="continued line"),
        pytest.param(b"x = '\\'' ; y = a @ b ; z = ''\n", id="escaped quote"),
        pytest.param(
            b'x = r"\\" + "" ; y = a @ b\n'.replace(b'r"\\"', b'r"\\\\"'), id="raw string"
        ),
        pytest.param(b"x = '''it's \"\"\" ''' ; y = a @ b\n", id="quotes within quotes"),
        pytest.param(b"# it's\ny = a @ b # don't\n", id="comments"),
        pytest.param(b"x = f'{a @ b}'\n", id="f-string"),
        pytest.param(b"x = Rb'' if''else a @ b\n", id="prefixes"),
    ],
)
def test_a_product_beside_or_in_strings_is_found(source: bytes) -> None:
    assert len(analyze(source, "m")) == 1


def test_words_in_strings_and_comments_are_not_parsed() -> None:
    source = b"'''\nx @ y, np.dot\n'''\n# a @ b\n@f(\n'dot')\ndef f(: pass\n"
    assert analyze(source, "m") == ()


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


LINE = "import mixpert_py as _mixpert  # added by mixpert rewrite"
SPLIT = f"{LINE}, which split this line"

IMPORTS = [
    # id, program, everything before the rewritten product
    ("code-first", "a @ b\n", "I"),
    ("shebang", "#!/bin/python\na @ b\n", "#!/bin/python\nI"),
    ("coding", "# coding: utf-8\na @ b\n", "# coding: utf-8\nI"),
    ("coding-in-line-2", "\n# coding: utf-8\na @ b\n", "\n# coding: utf-8\nI"),
    ("shebang-and-coding", "#!p\n# coding: utf-8\n\na @ b\n", "#!p\n# coding: utf-8\nI\n"),
    ("licence", "# Copyright\n# all\n\n# more\na @ b\n", "# Copyright\n# all\nI\n# more\n"),
    ("docstring", '"""doc"""\na @ b\n', '"""doc"""\nI'),
    ("long-docstring", '"""doc\n\nmore\n"""\n\na @ b\n', '"""doc\n\nmore\n"""\nI\n'),
    ("docstring-comment", "'doc'  # hi\na @ b\n", "'doc'  # hi\nI"),
    ("future", "from __future__ import annotations\na @ b\n",
     "from __future__ import annotations\nI"),
    ("docstring-futures", '"doc"\nfrom __future__ import division\n'
     "from __future__ import (\n  annotations,\n)\n\nimport os\na @ b\n",
     '"doc"\nfrom __future__ import division\nfrom __future__ import (\n  annotations,\n)\n\n'
     "Iimport os\n"),
    ("before-first-import", "# hi\n\nimport os\na @ b\n", "# hi\n\nIimport os\n"),
    ("before-from-import", '"doc"\n\nfrom os import path\na @ b\n',
     '"doc"\n\nIfrom os import path\n'),
    ("same-line-as-docstring", '"""doc"""; a @ b\n', '"""doc"""; J'),
    ("same-line-crlf", "'doc'; a @ b\r\n", "'doc'; J"),
    ("same-line-import", "'doc'; import os; a @ b\n", "'doc'; Jimport os; "),
    ("same-line-as-future", "from __future__ import annotations; a @ b\n",
     "from __future__ import annotations; J"),
    ("semicolon-then-newline", '"""doc""";\na @ b\n', '"""doc""";\nI'),
    ("continued-line", '"""doc"""; \\\na @ b\n', '"""doc"""; \\\nJ'),
    ("bytes-are-no-docstring", "b'doc'\na @ b\n", "Ib'doc'\n"),
    ("f-string-is-no-docstring", "f'doc'\na @ b\n", "If'doc'\n"),
    ("form-feed", "# hi\n\x0c\na @ b\n", "# hi\nI\x0c\n"),
    ("indented-comment", "  # hi\na @ b\n", "  # hi\nI"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "before"), [pytest.param(p, b, id=name) for name, p, b in IMPORTS]
)
def test_place_of_the_import(program: str, before: str) -> None:
    result = rewrite(program.encode(), "m").decode()
    newline = "\r\n" if "\r" in program else "\n"
    expected = before.replace("J", f"{newline}{SPLIT}{newline}").replace("I", f"{LINE}{newline}")
    assert result[: result.index("_mixpert.matmul")] == expected
    tree = ast.parse(program)
    assert ast.get_docstring(ast.parse(result)) == ast.get_docstring(tree)
    assert ast.get_docstring(rewrite_tree(program.encode(), "m", "m.py")) == ast.get_docstring(tree)


def test_a_name_already_in_use() -> None:
    result = rewrite(b"_mixpert = 1\n_mixpert_1 = 2\na @ b\n", "m").decode()
    assert "import mixpert_py as _mixpert_2  #" in result
    assert "_mixpert_2.matmul(a, b, " in result


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


PROGRAM = """\
import numpy as np

SCALE = np.eye(3)

def forward(x, w):
    h = x @ w
    return np.dot(h, w) @ SCALE
"""


def ids(program: str, module: str = "m") -> list[str]:
    return [site.id for site in analyze(program.encode(), module)]


EQUAL = [
    ("blank-lines", PROGRAM.replace("\n", "\n\n")),
    ("comments", PROGRAM.replace("\n    ", "\n    # why\n    ")),
    ("spaces", PROGRAM.replace(" @ ", "@").replace(", ", " ,  ")),
    ("brackets", PROGRAM.replace("x @ w", "((x) @ (w))")),
    ("lines", PROGRAM.replace("x @ w", "(x\n      @ w)")),
    ("renamed-locals", PROGRAM.replace("h", "hidden").replace("(x, w", "(inputs, w")
     .replace("x @", "inputs @").replace("fohiddenrward", "forward")),
    ("new-statement", PROGRAM.replace("    h =", "    print(x)\n    h =")),
    ("new-neighbour", PROGRAM.replace("    h =", "    g = x.T @ x @ w[0]\n    h =")),
    ("new-function", "def other(a, b):\n    return a @ b\n" + PROGRAM),
    ("crlf", PROGRAM.replace("\n", "\r\n")),
    ("docstring", '"""doc"""\n' + PROGRAM),
]  # fmt: skip


@pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in EQUAL])
def test_ids_stay(program: str) -> None:
    program = program.replace("forwardhidden", "forward")
    assert set(ids(PROGRAM)) <= set(ids(program))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("x @ w", "w @ x.T", id="operands"),
        pytest.param("SCALE", "OTHER", id="global"),
        pytest.param("np.dot(h, w)", "h.dot(w)", id="spelling"),
        pytest.param("h, w", "h, w.T", id="attribute"),
        pytest.param("def forward", "def backward", id="function"),
    ],
)
def test_ids_change(old: str, new: str) -> None:
    assert set(ids(PROGRAM)) != set(ids(PROGRAM.replace(old, new)))


def test_the_hash_outlives_the_functions_name() -> None:
    before, after = ids(PROGRAM), ids(PROGRAM.replace("forward", "backward"))
    assert [i.partition("/")[2] for i in before] == [i.partition("/")[2] for i in after]


QUALNAMES = [
    ("a @ b", "<module>"),
    ("def f():\n    a @ b", "f"),
    ("async def f():\n    a @ b", "f"),
    ("class C:\n    x = a @ b", "C"),
    ("class C:\n    def f(self): a @ b", "C.f"),
    ("class C:\n    class D:\n        def f(self): a @ b", "C.D.f"),
    ("def f():\n    def g(): a @ b", "f.<locals>.g"),
    ("def f():\n    class C:\n        def g(self): a @ b", "f.<locals>.C.g"),
    ("f = lambda: a @ b", "<lambda>"),
    ("def f(): return lambda: a @ b", "f.<locals>.<lambda>"),
    ("[a @ b for a in x]", "<module>"),
    ("def f(): return [a @ b for a in x]", "f"),
    ("def f(): return [lambda: a @ b for a in x]", "f.<locals>.<lambda>"),
    ("class C:\n    x = [a @ b for a in x]", "C"),
    ("def f(x=a @ b): pass", "<module>"),
    ("class C:\n    def f(self, x=a @ b): pass", "C"),
    ("@d(a @ b)\ndef f(): pass", "<module>"),
    ("class C(a @ b): pass", "<module>"),
    ("def f():\n    global g\n    def g(): a @ b", "g"),
    ("def grüße(): a @ b", "grüße"),
]


@pytest.mark.parametrize(("program", "qualname"), QUALNAMES)
def test_qualname(program: str, qualname: str) -> None:
    [site] = ids(program + "\n")
    assert re.match(SITE_ID, site)
    assert site.startswith(f"m:{qualname}/matmul~")


def test_equal_products_are_numbered_in_each_function() -> None:
    program = "def f(a, b):\n    a @ b; b @ a; a @ b\ndef g(x, y): x @ y\n"
    first, second, third, other = ids(program)
    assert [i[-2:] for i in (first, second, third, other)] == ["#0", "#1", "#2", "#0"]
    assert len({i.partition("~")[2][:6] for i in (first, second, third, other)}) == 1


def test_a_site_says_where_it_is() -> None:
    source = "# é\nif x:\n    y = 'é', (a  # why\n        @ b)\n"
    assert analyze(source.encode(), "m") == (
        CallSite(
            id="m:<module>/matmul~19c998#0",
            kind="matmul",
            line=3,
            column=15,
            expression="a @ b",
            reason=None,
            span=(24, 44),
        ),
    )


PRODUCTS = [
    # id, text, sign, the refusal
    ("operator", "a @ b", "@", None),
    ("several lines", "a # one\n  @ b", "@", None),
    ("statement", "a[i] @= b", "@=", None),
    ("call", "np.dot(a,\nb)", "", None),
    ("another operator", "a * (b @ c)", "@", "LibCST finds no @ here"),
    ("a call as an operator", "f(a)", "@", "LibCST finds no @ here"),
    ("an operator as a call", "a @ b", "", "LibCST finds no call here"),
    ("another statement", "a += b @ c", "@=", "LibCST finds no @= here"),
    ("too long", "a @ b)", "@", "LibCST does not read it"),
    ("too short", "a @", "@", "LibCST does not read it"),
]


@pytest.mark.parametrize(
    ("text", "sign", "refusal"), [pytest.param(*row[1:], id=row[0]) for row in PRODUCTS]
)
def test_a_product_is_confirmed_or_refused(text: str, sign: str, refusal: str | None) -> None:
    assert refusals("m", [("x @ y", "@"), (text, sign)]) == [None, refusal]


ROWS = {
    "and": lambda n: "y = (" + " and ".join(["a"] * n) + ") @ x\n",
    "or": lambda n: "y = (" + " or ".join(["a"] * n) + ") @ x\n",
    "for": lambda n: "y = [a " + "for a in b " * n + "] @ x\n",
}


@pytest.mark.parametrize("kind", ROWS)
def test_long_rows_are_refused(kind: str) -> None:
    read_scopes(parse(ROWS[kind](MAX_PARTS), "m"), "m")
    with pytest.raises(
        SourceError, match=f"m: more than {MAX_PARTS} in a row; the file is skipped"
    ):
        read_scopes(parse(ROWS[kind](MAX_PARTS + 1), "m"), "m")
