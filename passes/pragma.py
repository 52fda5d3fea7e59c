"""Pragmas: comments by which a program's author decides about products.

`# mixpert: off` and `# mixpert: scheme=NAME` concern the products that begin or end on their line,
`# mixpert: off-file` the whole file.
"""

import io
import re
import tokenize
from dataclasses import dataclass, field

from mixpert_py.passes.source import NEWLINE

PRAGMA = re.compile(r"#\s*mixpert:\s*(?:(?P<off>off|off-file)|scheme=(?P<scheme>[\w-]+))\s*(?:#|$)")
# Comments that are addressed to MixPert, with a known pragma or not.
ADDRESSED = re.compile(r"#\s*mixpert:", re.IGNORECASE)
MAX_COMMENT = 40


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
        """The scheme for a product on these lines, or None."""
        return self.schemes.get(first) or self.schemes.get(last)


def read(text: str) -> Pragmas:
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
