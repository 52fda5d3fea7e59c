"""The bytes of a Python file as text, with positions as `ast` counts them, and its pragmas."""

import ast
import bisect
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mixpert_py.errors import SourceError
from mixpert_py.passes import MAX_BYTES

# A syntax tree takes half a kilobyte for each word or sign of the text, and is to fit a gigabyte.
MAX_TOKENS = 1_000_000
# Fields of nodes that hold text or numbers; those named `name` and `names` are nodes in some.
PLAIN_FIELDS = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level"}
    | {"lineno", "module", "rest", "simple", "str", "tag", "type_comment"}
)
NODES_NAMED = frozenset({("Import", "names"), ("ImportFrom", "names"), ("TypeAlias", "name")})


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """Maps each kind of node to its fields that may hold nodes; filled on demand."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        found = [
            name
            for name in kind._fields
            if name not in PLAIN_FIELDS
            and (name not in ("name", "names") or (kind.__name__, name) in NODES_NAMED)
            and (kind, name) not in ((ast.Constant, "value"), (ast.MatchSingleton, "value"))
        ]
        self[kind] = tuple(found)
        return self[kind]


FIELDS = _Fields()

BOM = b"\xef\xbb\xbf"
NEWLINE = re.compile(r"\r\n|\r|\n")
TOKEN = re.compile(r"\w+|[^\w \t]")
# Pragmas: comments by which a program's author decides about products. `# mixpert: off` and
# `# mixpert: scheme=NAME` concern those that begin or end on their line, `# mixpert: off-file` all.
PRAGMA = re.compile(r"#\s*mixpert:\s*(?:(?P<off>off|off-file)|scheme=(?P<scheme>[\w-]+))\s*(?:#|$)")
# Comments that are addressed to MixPert, with a known pragma or not.
ADDRESSED = re.compile(r"#\s*mixpert:", re.IGNORECASE)
MAX_COMMENT = 40


@dataclass(frozen=True)
class Source:
    """A decoded file. `bom` + `text` encoded with `encoding` is the file, byte for byte."""

    module: str
    text: str
    encoding: str
    bom: bytes

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset of each line. Only \\n, \\r\\n and \\r end a line, as in Python's tokenizer."""
        return (0, *(match.end() for match in NEWLINE.finditer(self.text)))

    @cached_property
    def newline(self) -> str:
        first = NEWLINE.search(self.text)
        return first[0] if first else "\n"

    def offset(self, line: int, column: int) -> int:
        """Offset in `text` of a position of `ast`: 1-based line, 0-based column in UTF-8 bytes."""
        start = self.line_starts[line - 1]
        if self.text.isascii():
            return start + column
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        before = self.text[start:end].encode("utf-8", "surrogatepass")[:column]
        return start + len(before.decode("utf-8", "surrogatepass"))

    def position(self, offset: int) -> tuple[int, int]:
        """Line (1-based) and column (0-based, in characters) of an offset."""
        line = bisect.bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Offsets of a node's beginning and end, without its own parentheses."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno, node.end_col_offset)

    def encode(self, text: str) -> bytes:
        """A changed text as bytes, with the file's encoding and BOM."""
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"{self.module}: cannot be written as {self.encoding}") from error


def decode(raw: bytes, module: str) -> Source:
    """Decode a file as Python would. Raises SourceError if it is too large, or if that fails."""
    if len(raw) > MAX_BYTES:
        raise SourceError(f"{module}: larger than {MAX_BYTES >> 20} MiB; such a file is skipped")
    bom = BOM if raw.startswith(BOM) else b""
    body = raw[len(bom) :]
    try:
        lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # a lone \r ends one too
        encoding, _ = tokenize.detect_encoding(io.BytesIO(lines).readline)
        encoding = encoding.removesuffix("-sig")
        text = body.decode(encoding)
        same = text.encode(encoding) == body
    except (SyntaxError, LookupError, ValueError, RecursionError) as error:
        why = "it has NUL bytes, so it is no source" if b"\0" in raw else one_line(error)
        raise SourceError(f"{module}: cannot be decoded: {why}") from None
    if not same:
        raise SourceError(f"{module}: decoding as {encoding} and encoding again changes the file")
    return Source(module, text, encoding, bom)


def has_tokens(text: str, more_than: int) -> bool:
    """Whether a text has more than this number of tokens: words, signs and line ends."""
    return len(text) > more_than and sum(1 for _ in TOKEN.finditer(text)) > more_than


def parse(text: str, module: str) -> ast.Module:
    """The syntax tree. Raises SourceError if Python does not accept the text."""
    return parse_with_warnings(text, module)[0]


def parse_with_warnings(text: str, module: str) -> tuple[ast.Module, bool]:
    """The syntax tree, and whether the parser warned. Raises SourceError if it does not parse."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return ast.parse(text), bool(caught)
    except SyntaxError as error:
        raise SourceError(f"{module}: line {error.lineno or 1}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise SourceError(f"{module}: nested too deeply for Python's parser") from None
    except ValueError as error:
        raise SourceError(f"{module}: cannot be parsed: {one_line(error)}") from None


@contextmanager
def refusing_depth(module: str) -> Iterator[None]:
    """Turn a RecursionError into a SourceError, because a deep caller leaves little depth."""
    try:
        yield
    except RecursionError:
        raise SourceError(f"{module}: nested too deeply; the file is skipped") from None


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes of `ast.iter_child_nodes` except contexts, in a fifth of its time."""
    names = FIELDS[type(node)]
    found: list[Any] = []
    if not names:  # two nodes of three
        return found
    for name in names:
        below = getattr(node, name, None)
        if type(below) is list:
            found += below
        elif below is not None:
            found.append(below)
    # `**more` in a dict has no key, and an argument that is only a keyword may have no default.
    return [part for part in found if part is not None] if None in found else found


def preorder(node: ast.AST) -> Iterator[ast.AST]:
    """A node and everything below it, in the order of the source. Does not recurse."""
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        below = children(here)
        below.reverse()
        stack += below


def one_line(error: BaseException) -> str:
    """An exception's message without its newlines."""
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Pragmas:
    """The pragmas of a file.

    off: line numbers. schemes: maps lines to the schemes that they ask for. unknown: maps lines to
    comments that begin as a pragma but are none, cut to MAX_COMMENT characters.
    """

    off_file: bool
    off: frozenset[int]
    schemes: dict[int, str]
    unknown: dict[int, str] = field(default_factory=dict)

    def reason(self, first: int, last: int) -> str | None:
        """The reason to leave a product on these lines alone, or None."""
        if self.off_file:
            return "`# mixpert: off-file`"
        return "`# mixpert: off`" if {first, last} & self.off else None

    def scheme(self, first: int, last: int) -> str | None:
        return self.schemes.get(first) or self.schemes.get(last)


def read_pragmas(text: str) -> Pragmas:
    """The pragmas of a text that Python accepts."""
    pragmas = Pragmas(False, frozenset(), {})
    if not ADDRESSED.search(text):
        return pragmas
    off = set()
    off_file = False
    lines = io.StringIO(NEWLINE.sub("\n", text))
    for token in tokenize.generate_tokens(lines.readline):
        if token.type != tokenize.COMMENT or not ADDRESSED.match(token.string):
            continue
        found = PRAGMA.match(token.string)
        if found is None:
            pragmas.unknown[token.start[0]] = token.string[:MAX_COMMENT]
        elif found["scheme"]:
            pragmas.schemes[token.start[0]] = found["scheme"]
        elif found["off"] == "off":
            off.add(token.start[0])
        else:
            off_file = True
    return Pragmas(off_file, frozenset(off), pragmas.schemes, pragmas.unknown)
