"""Processes that start at the same time and find empty caches: none fails, no file is broken."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha1, sha256
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple

from mixpert_py.runtime.code_cache import DIGEST
from tests.soak import fresh_home
from tests.soak.verdict import Verdict

LAST = 60.0  # seconds of a process that compiles nothing
CUPY_DIGEST = 40  # hexadecimal digits of SHA-1, before the code in a file of CuPy's


class Answer(NamedTuple):
    """The answer of a process; `found` is None where it failed, and `message` is its last line."""

    found: dict[str, Any] | None
    message: str


def gate(backend: str, processes: int, patience: float) -> Verdict:
    """Start the processes, and one more when all are done, which has to find every cache filled.

    backend: "cuda", or "reference" where kernels are compiled and not run. patience: seconds for
    all but the last, which has LAST.
    """
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        home, begin = Path(folder), monotonic()
        answers = storm(backend, home, processes, begin + patience)
        spent = monotonic() - begin
        before = _times(home)
        (last,) = storm(backend, home, 1, monotonic() + LAST)
        after = _times(home)
        files, broken = _looked_at(home)
    faults = list(_faults(answers, last))
    if before != after:
        faults.append("a process that came after them wrote the caches anew")
    return Verdict(
        "cold",
        f"{processes} processes at once with empty caches of code and kernels",
        f"{len(faults)} errors, {len(broken)} broken of {files} files",
        not faults and not broken and files > 0,
        on_gpu=backend == "cuda",
        figures={"faults": faults[:20], "broken": broken, "seconds": round(spent, 1)},
    )


def storm(backend: str, home: Path, count: int, end: float) -> list[Answer]:
    """The answers of `count` processes that begin at the same moment, when all have started."""
    command = fresh_home.command("tests.soak.cold_start", backend, str(home))
    environment, started = fresh_home.environment(home), []
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        try:
            for number in range(count):
                with (Path(folder) / str(number)).open("wb") as errors:
                    started.append(
                        subprocess.Popen(
                            command,
                            env=environment,
                            cwd=fresh_home.ROOT,
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            stderr=errors,
                            text=True,
                        )
                    )
            for child in started:
                _pipe(child.stdout).readline()
            for child in started:
                with suppress(BrokenPipeError):  # it has failed, and its output is read below
                    _pipe(child.stdin).write("go\n")
                    _pipe(child.stdin).flush()
            return [
                _answer(child, Path(folder) / str(number), end)
                for number, child in enumerate(started)
            ]
        finally:
            for child in started:
                child.kill()
                child.wait()


def _answer(child: "subprocess.Popen[str]", errors: Path, end: float) -> Answer:
    try:
        text, _ = child.communicate(timeout=max(end - monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return Answer(None, "it took too long")
    if child.returncode:
        output = errors.read_text(errors="replace").strip().splitlines() or ["no output"]
        return Answer(None, f"exit code {child.returncode}: {output[-1][:300]}")
    return Answer(json.loads(text), "")


def _faults(answers: list[Answer], last: Answer) -> Iterator[str]:
    """Processes that failed, or made other products than the one that came after them."""
    for number, answer in enumerate([*answers, last]):
        if answer.found is None:
            yield f"process {number}: {answer.message}"
        elif last.found is not None and answer.found["products"] != last.found["products"]:
            yield f"process {number} made other products than the last one"
    if last.found is not None and last.found["compiled"]:
        yield "a process that came after them compiled kernels"


def _looked_at(home: Path) -> tuple[int, list[str]]:
    """The number of files in the caches, and the names of those that are foreign or not whole."""
    count, broken = 0, []
    for path in sorted((home / ".cache" / "mixpert").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            whole = content[DIGEST : 2 * DIGEST] == sha256(content[2 * DIGEST :]).digest()
            count += 1
            if not whole or not re.fullmatch("[0-9a-f]{64}", path.name):
                broken.append(path.name)
    for path in sorted((home / "cupy").glob("*")):
        content = path.read_bytes()
        whole = content[:CUPY_DIGEST].decode("latin-1") == sha1(content[CUPY_DIGEST:]).hexdigest()
        count += 1
        if not whole or path.suffix != ".cubin":
            broken.append(path.name)
    return count, broken


def _times(home: Path) -> dict[str, int]:
    """The time at which each file of the caches was written."""
    return {
        str(path): path.stat().st_mtime_ns
        for folder in (home / ".cache" / "mixpert", home / "cupy")
        for path in folder.rglob("*")
        if path.is_file()
    }


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
