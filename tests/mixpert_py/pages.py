"""The pages that people read, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mixpert_py.command import ROOT

README = ROOT / "README.md"
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (
        README,
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "samples").rglob("*.md")),
    )
}
SHELLS = ("sh", "bash", "shell", "console")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
PROGRAMS = ("mixpert", "python", "python3", "pip", "pytest", "ruff", "mypy", "eval", ".", ".ci/run")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")


@dataclass(frozen=True, slots=True)
class Typed:
    """A line of shell in a page. is_whole: it stands in a block, and is not named in a sentence."""

    page: str
    line: str
    is_whole: bool

    def commands(self) -> list[tuple[str, ...]]:
        """The words of each of its commands; of a pipe, those of the first alone."""
        split = shlex.shlex(self.line, posix=True, punctuation_chars="&|;")
        split.whitespace_split = True
        found: list[list[str]] = [[]]
        piped = False
        for word in split:
            if set(word) <= set("&|;"):
                piped = word == "|"
                found.append([])
            elif not piped:
                found[-1].append(word)
        return [tuple(words) for words in found if words]


def typed(name: str, text: str) -> Iterator[Typed]:
    """The lines of shell in a page's blocks, and its code that begins as one."""
    for _, language, block in BLOCK.findall(text):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        if prompted and language in ("", "console"):
            lines = prompted
        elif language not in SHELLS and not (language == "" and _is_command(lines[0])):
            continue
        for line in lines:
            if line and not line.startswith("#"):
                yield Typed(name, line, is_whole=True)
    for span in SPAN.findall(BLOCK.sub("", text)):
        line = " ".join(span.split())
        if _is_command(line):
            yield Typed(name, line, is_whole=False)


def _is_command(line: str) -> bool:
    words = [word for word in line.split() if not VARIABLE.match(word)]
    return bool(words) and words[0] in PROGRAMS
