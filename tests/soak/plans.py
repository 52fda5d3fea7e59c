"""Mutated files of every kind that the commands read: plans, profiles, notebooks and others.

Each is what it should be or a MixPertError of one line, within a second and 256 MiB.
"""

import json
import resource
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from time import monotonic, process_time

import msgspec

from mixpert_py import files
from mixpert_py.errors import MixPertError
from mixpert_py.sources.rewriting import time_limit
from tests.soak.kinds import KINDS, Kind, WrongError
from tests.soak.verdict import Verdict

SLOWEST = 1.0  # seconds of computing that a file may take
MOST_MEMORY = 256 << 20  # bytes
PATIENCE = 30.0  # seconds of computing after which reading a file is stopped
ALSO_ONE_IN = 10  # of so many files one is written to as well, which takes longer
PIECE = 100  # files of one kind that are read before those of the next kind
MOST_SHOWN = 20
LONGEST = 1000  # characters of an error


class Done(msgspec.Struct):
    """The number of files of one kind that were read and refused, and the faults found.

    slowest: the seconds of computing that one took. largest: the bytes of memory that one took.
    """

    files: int = 0
    refused: int = 0
    slowest: float = 0.0
    largest: int = 0
    wrong: list[str] = []


class State(msgspec.Struct):
    """A sweep that can be resumed: the seed of its files, and what was read of each kind."""

    seed: int
    kinds: dict[str, Done] = {}


def gate(
    count: int,
    seconds: float,
    seed: int,
    report: Callable[[str], None],
    kinds: Collection[str] = tuple(KINDS),
    path: Path | None = None,
) -> Verdict:
    """Read `count` files of each kind, or as many as the seconds are enough for.

    path: a file with the state of the sweep, from which it continues. Raises MixPertError if that
    is no such file, or one of another seed.
    """
    state = _load(path, seed)
    begin = monotonic()
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        while waiting := [name for name in kinds if _done(state, name).files < count]:
            for name in waiting:
                _read_piece(Path(folder), name, count, state, report)
            if path is not None:
                files.replace(path, msgspec.json.encode(state))
            if monotonic() - begin > seconds:
                break
    return _verdict({name: _done(state, name) for name in kinds}, count, seed)


def _verdict(done: dict[str, Done], count: int, seed: int) -> Verdict:
    wrong = [line for one in done.values() for line in one.wrong]
    read = sum(one.files for one in done.values())
    refused = sum(one.refused for one in done.values())
    return Verdict(
        "plans",
        f"{read:,} mutated files read: {', '.join(done)}",
        f"{read - refused - len(wrong):,} valid, {refused:,} errors that say what is wrong, "
        f"{len(wrong)} of anything else",
        not wrong and all(one.files >= count for one in done.values()),
        figures={
            "seed": seed,
            "kinds": {name: msgspec.to_builtins(it) for name, it in done.items()},
        },
    )


def _load(path: Path | None, seed: int) -> State:
    if path is None or not path.exists():
        return State(seed)
    try:
        state = msgspec.convert(json.loads(path.read_text("utf-8")), State)
    except (ValueError, msgspec.ValidationError):
        raise MixPertError(f"{path}: not a state of `python -m tests.soak plans`") from None
    if state.seed != seed:
        raise MixPertError(f"{path}: of seed {state.seed}; wanted {seed}")
    return state


def _done(state: State, name: str) -> Done:
    return state.kinds.setdefault(name, Done())


def _read_piece(
    folder: Path, name: str, count: int, state: State, report: Callable[[str], None]
) -> None:
    kind, done = KINDS[name], _done(state, name)
    path = folder / name / kind.file
    path.parent.mkdir(exist_ok=True)
    for number in range(done.files + 1, min(done.files + PIECE, count) + 1):
        path.write_bytes(kind.make(Random(f"{state.seed} {name} {number}")))
        before, start = _memory(), process_time()
        refused, fault = judged(kind, path, also=number % ALSO_ONE_IN == 0)
        spent, taken = process_time() - start, _memory()[1] - before[0]
        if not fault and spent > SLOWEST:
            fault = f"{spent:.1f} s"
        if _memory()[1] > before[1]:
            done.largest = max(done.largest, taken)
            if not fault and taken > MOST_MEMORY:
                fault = f"{taken >> 20} MiB"
        done.files = number
        done.slowest = max(done.slowest, spent)
        if fault:
            done.wrong.append(f"{name}, file {number} of seed {state.seed}: {fault}")
            if len(done.wrong) <= MOST_SHOWN:
                report(done.wrong[-1])
        else:
            done.refused += refused


def _memory() -> tuple[int, int]:
    """The memory of this process in bytes: now, and at its peak."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[1]) * resource.getpagesize()
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def judged(kind: Kind, path: Path, also: bool = False) -> tuple[bool, str]:
    """Whether a file is refused, and the fault in how it was read, empty for none."""
    try:
        with time_limit(PATIENCE, str(path)):
            kind.read(path, also)
    except MixPertError as error:
        message = str(error)
        fine = message.isprintable() and 0 < len(message) < LONGEST
        return True, "" if fine else f"the error reads {message[:LONGEST]!r}"
    except WrongError as error:
        return False, str(error)
    except BaseException as error:
        return True, f"{type(error).__name__}: {str(error)[:200]!r}"
    return False, ""
