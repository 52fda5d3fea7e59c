"""Files as bytes: encodings and newlines that stay, and input that is refused in one line."""

import re

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree
from mixpert_py.passes.source import decode

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
