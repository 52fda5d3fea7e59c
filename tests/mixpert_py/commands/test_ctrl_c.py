"""Ctrl-C on a terminal: one line of its own, and the exit code 130."""

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mixpert_py.passes.pipeline import analyze
from tests.mixpert_py.command import child_environment

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

import fcntl
import pty
import termios

PROGRAM = """\
import time
import numpy as np
a = np.random.default_rng(0).standard_normal((400, 400))
b = a @ a
print("slept", flush=True)
# Short ones: a signal that comes just before a sleep begins does not end it.
for _ in range(600): time.sleep(0.1)
"""
PLAN = """\
[[criterion]]
name = "b"
metric = "max"
budget = 1.0

[[site]]
id = "{site}"
scheme = "float32"
"""
PATIENCE = 30.0  # seconds
SIGN = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[\?25[hl]|(\r)|(\n)|([^\x1b\r\n])")


def on_a_terminal(folder: Path, *words: str, until: bytes) -> tuple[str, int]:
    """All that a command writes to a terminal on which Ctrl-C is typed once `until` stands there.

    Returns the exit code, too.
    """
    terminal, inside = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "mixpert_py", *words],
        cwd=folder,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        # Its controlling terminal is that one: only so does Ctrl-C reach it.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env=child_environment(TERM="xterm", COLUMNS="80"),
    )
    os.close(inside)
    written, typed, end = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # every process that had it open has ended
            break
        written += piece
        if not typed and until in written:
            os.write(terminal, b"\x03")
            typed = True
    os.close(terminal)
    return written.decode(), child.wait(PATIENCE)


def shown(written: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines, row, column = [""], 0, 0
    for sign in SIGN.finditer(written):
        count, command, back, down, letter = sign.groups()
        if command == "A":
            row = max(0, row - int(count or 1))
        elif command == "K":
            lines[row] = "" if count == "2" else lines[row][:column]
        elif back:
            column = 0
        elif down:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter:
            before = lines[row][:column].ljust(column)
            lines[row] = before + letter + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


RUNS = {
    "tune, after a run": (["tune", "--error", "1", "s.py"], b"run 2: "),
    "verify": (["verify", "s.mixpert.toml", "s.py"], b"run 1: "),
}


@pytest.mark.parametrize(("words", "until"), RUNS.values(), ids=RUNS)
def test_ctrl_c_has_a_line_of_its_own(tmp_path: Path, words: list[str], until: bytes) -> None:
    # The second run is the one that takes long, where the first is to end.
    text = PROGRAM
    if until == b"run 2: ":
        text = "import os\nruns = 600 * os.path.exists('ran')\nopen('ran', 'w').close()\n"
        text += PROGRAM.replace("range(600)", "range(runs)")
    (tmp_path / "s.py").write_text(text)
    (site,) = analyze(PROGRAM.encode(), "s")
    (tmp_path / "s.mixpert.toml").write_text(PLAN.format(site=site.id))
    written, code = on_a_terminal(tmp_path, *words, until=until)
    lines = [line for line in shown(written) if not line.startswith("run 1: native")]
    assert code == 130, written
    how_long = [line for line in lines if "runs the program once; its products then" in line]
    assert len(how_long) == (words[0] == "estimate")
    lines = [line for line in lines if line not in how_long]
    advice = "; --resume goes on from here" if words[0] == "tune" and "2" in str(until) else ""
    assert lines == [f"mixpert: interrupted{advice}"], written


def test_a_program_that_is_run_ends_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    written, code = on_a_terminal(tmp_path, "run", "s.py", until=b"slept")
    assert code == 130, written
    assert shown(written)[-1] == "KeyboardInterrupt"
