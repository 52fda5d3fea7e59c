"""The pages that people read, and the commands in them."""

import re
import shlex
from collections.abc import Iterator

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


def commands(line: str) -> list[tuple[str, ...]]:
    """The words of each command in a line of shell; of a pipe, those of the first alone."""
    split = shlex.shlex(line, posix=True, punctuation_chars="&|;")
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


def typed(text: str) -> Iterator[str]:
    """The lines of shell in a page's blocks, and its code that begins as one."""
    for _, language, block in BLOCK.findall(text):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        if prompted and language in ("", "console"):
            lines = prompted
        elif language not in SHELLS and not (language == "" and _is_command(lines[0])):
            continue
        yield from (line for line in lines if line and not line.startswith("#"))
    for span in SPAN.findall(BLOCK.sub("", text)):
        line = " ".join(span.split())
        if _is_command(line):
            yield line


def _is_command(line: str) -> bool:
    words = [word for word in line.split() if not VARIABLE.match(word)]
    return bool(words) and words[0] in PROGRAMS
