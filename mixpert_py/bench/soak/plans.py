"""Mutated plan files: each is a plan or a PlanError of one line, and nothing else."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time

from mixpert_py import config
from mixpert_py import plan as plan_file
from mixpert_py.bench.soak.verdict import Verdict
from mixpert_py.errors import PlanError

SLOWEST = 5.0  # seconds of computing that a file may take
WRITE_ONE_IN = 10  # plans that are written as well: writing takes ten times as long as reading
MOST_SHOWN = 20
LONGEST = 1000  # characters of an error

ID = "mlp:forward/matmul~8f3a#0"
SEEDS = (
    f"""\
# tuned on a quiet machine
schema = 1

[provenance]
source = "mlp.py"
blas_threads = 2
date = "2026-11-22"

[provenance.versions]
numpy = "2.4.6"

[[criterion]]
name = "logits"
metric = "frobenius"
budget = 1e-5
achieved = 9.1e-6
holdout = 8e-6

[[site]]
id = "{ID}"
scheme = "int8x6"  # by hand
expression = "x @ w1"
block = 128
locked = true
shapes = [[4096, 1024, 4096], [1, 1024, 10]]
calls = 12
error = 3.1e-7
native_ms = 4.1
ms = 1.2

[[site]]
id = "mlp:forward/einsum~8f3b#1"
scheme = "native"
""".encode(),
    f'site = [{{id = "{ID}", scheme = "float32"}}]\nprovenance = {{source = "a"}}\n'.encode(),
    f'provenance.versions.a = "1"\n[["site"]]\n\'id\' = "{ID}"\n"scheme" = "faithful"\n'.encode(),
    f"\ufeff[[site]]\r\nid = '''{ID}'''\r\nscheme = \"\"\"\r\nint8x3\"\"\"\r\n".encode(),
    b"",
)
WORDS = rb'''
nan -inf inf -1 -0.0 1e999 0x7f 0o7 1_0 0 3 0.25 1e-3 true false
1979-05-27 07:32:00 1979-05-27T07:32:00Z
"" '' "int8x3" "native" "\ud800" "\u0000" "\n" "__class__" ../../etc/passwd
[ ] [[ ]] { } [] {} = . , # " ' """  \ id site
'''.split()
TOKENS = [
    *WORDS,
    *(b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", "\u2028".encode(), b" # by hand\n"),
    *(b"schema = 2\n", b"[provenance]\n", b"[[site]]\n", b"[site]\n", b"a.b.c = 1\n"),
    *(b"9" * 40, b"x" * 5000, b"[" * 400, b"{a=" * 400, b"a." * 400),
]


def gate(count: int, seconds: float, seed: int, say: Callable[[str], None]) -> Verdict:
    """Read `count` files, or as many as the seconds are enough for."""
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    slowest, done, begin = 0.0, 0, monotonic()
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        path = Path(folder) / "p.toml"
        for done in range(1, count + 1):
            text = mutated(random.Random(f"{seed} {done}"))
            path.write_bytes(text)
            start = process_time()
            kind, fault = judged(path, written=done % WRITE_ONE_IN == 0)
            spent = process_time() - start
            if not fault and spent > SLOWEST:
                fault = f"{spent:.1f} s"
            kinds[kind] += 1
            slowest = max(slowest, spent)
            if fault:
                wrong.append(f"file {done} of seed {seed}: {fault}")
                if len(wrong) <= MOST_SHOWN:
                    say(wrong[-1])
            if monotonic() - begin > seconds:
                break
    found = (
        f"{kinds['plan']:,} plans, {kinds['PlanError']:,} errors that say what is wrong, "
        f"{len(wrong)} of anything else"
    )
    return Verdict(
        "plans",
        f"{done:,} mutated plan files read",
        found,
        not wrong and done == count,
        figures={"seed": seed, "slowest_s": round(slowest, 3), "wrong": wrong[:MOST_SHOWN]},
    )


def judged(path: Path, written: bool) -> tuple[str, str]:
    """What a file is, and what is wrong with that; nothing is, if nothing is said.

    written: a plan is also written over its file and read again.
    """
    try:
        plan = config.load_plan(path)
    except PlanError as error:
        said = str(error)
        fine = said.startswith(str(path)) and said.isprintable() and len(said) < LONGEST
        return "PlanError", "" if fine else f"the error reads {said[:LONGEST]!r}"
    except BaseException as error:
        return type(error).__name__, f"{type(error).__name__}: {str(error)[:200]!r}"
    try:
        for site in plan.site:
            if plan.find(site.id) is not site:
                return "plan", f"{site.id!r} is not found in the plan"
        if written:
            plan_file.save(plan, path)
            if config.load_plan(path) != plan:
                return "plan", "it reads otherwise when it has been written"
    except Exception as error:
        return "plan", f"written: {type(error).__name__}: {str(error)[:200]!r}"
    return "plan", ""


def mutated(rng: random.Random) -> bytes:
    """A plan file after one to four changes."""
    text = rng.choice(SEEDS[:1] * 6 + SEEDS[1:])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(CHANGES)(rng, text)
    return text


def _flipped(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]


def _cut(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randint(1, 30) :]


def _inserted(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(TOKENS) + text[at:]


def _replaced(rng: random.Random, text: bytes) -> bytes:
    """A word, a number or a quoted text by a token."""
    words = text.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(TOKENS)
    return b" ".join(words)


def _value(rng: random.Random, text: bytes) -> bytes:
    """What stands behind an equals sign by a token."""
    lines = text.split(b"\n")
    having = [number for number, line in enumerate(lines) if b"=" in line]
    if not having:
        return text
    number = rng.choice(having)
    lines[number] = lines[number].partition(b"=")[0] + b"= " + rng.choice(TOKENS)
    return b"\n".join(lines)


def _lines(rng: random.Random, text: bytes) -> bytes:
    """A line again, gone, or in another place."""
    lines = text.splitlines(keepends=True) or [b""]
    line = rng.choice(lines)
    if rng.random() < 0.6:
        lines.remove(line)
    if rng.random() < 0.6:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _spliced(rng: random.Random, text: bytes) -> bytes:
    other = rng.choice(SEEDS)
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _repeated(rng: random.Random, text: bytes) -> bytes:
    """Sometimes too large for a plan."""
    return (text * rng.choice((2, 3, 50)))[: plan_file.MAX_BYTES + rng.randrange(3)]


CHANGES = (_flipped, _cut, _inserted, _replaced, *(_value,) * 4, _lines, _spliced, _repeated)
