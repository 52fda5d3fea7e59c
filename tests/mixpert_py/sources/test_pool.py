"""Work in several processes, some of which die."""

import os
import signal
from pathlib import Path

import pytest

from mixpert_py.sources.pool import each
from tests.mixpert_py.command import forked

DEADLY = {0, 7, 8, 30, 99}
KILLER = """
import os
import signal
from mixpert_py.sources import rewriting
from mixpert_py.cli import main

rewrite_source = rewriting.rewrite_source


def rewrite_or_die(source, *rest):
    if b"deadly" in source:
        os.kill(os.getpid(), signal.SIGKILL)
    return rewrite_source(source, *rest)


rewriting.rewrite_source = rewrite_or_die
if __name__ == "__main__":
    main()
"""


def squared(number: int) -> int:
    if number in DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def inverted(number: int) -> float:
    return 1 / number


def negative(number: int) -> int:
    return -number


@pytest.mark.parametrize("count", [1, 5, 100], ids="{} items".format)
def test_only_what_kills_is_lost(count: int) -> None:
    wanted = [-n if n in DEADLY else n * n for n in range(count)]
    assert list(each(squared, range(count), 2, negative)) == wanted


def test_all_may_be_lost() -> None:
    assert list(each(squared, [0] * 5, 2, str)) == ["0"] * 5


def test_errors_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(each(inverted, [2, 1, 0, 3], 2, negative))


def test_the_results_can_be_left_unread() -> None:
    first = each(squared, range(1, 100), 2, negative)
    assert next(first) == 1
    first.close()
    assert list(first) == []


@pytest.mark.parametrize("command", ["rewrite -w", "rewrite --check", "sites"])
def test_a_command_goes_on_with_the_other_files(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(20):
        (folder / f"m{number:02}.py").write_text("c = a @ b\n")
    for number in (3, 12):
        (folder / f"m{number:02}.py").write_text("deadly = a @ b\n")
    (tmp_path / "killer.py").write_text(KILLER)
    done = forked(str(tmp_path / "killer.py"), *command.split(), "-j", "2", ".", folder=folder)
    assert done.code == 2
    said = "its process was killed, or ran out of memory; the file is skipped"
    assert done.err.splitlines() == [f"mixpert: ./m{n}.py: {said}" for n in ("03", "12")]
    assert all(f"m{n:02}.py" in done.out for n in range(20) if n not in (3, 12))
    rewritten = [b"_mixpert" in path.read_bytes() for path in sorted(folder.iterdir())]
    assert rewritten == [command == "rewrite -w" and n not in (3, 12) for n in range(20)]
