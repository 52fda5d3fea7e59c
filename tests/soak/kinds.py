"""The kinds of files that a user may be given: how each is mutated, and what reads it."""

import json
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mixpert_py import config
from mixpert_py import plan as plan_file
from mixpert_py.errors import ProgramError
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.graph import graph
from mixpert_py.runtime.model import device_model
from mixpert_py.sources import project, source_files
from mixpert_py.sources.notebook_cells import code_cells
from mixpert_py.sources.notebook_file import rewrite_notebook
from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.summary import Program
from mixpert_py.tuning.trials import TRIAL, Trials, beside, latest
from tests.soak.mutation import MOST_BYTES, json_text, other_bytes, toml

ID = "mlp:forward/matmul~8f3a#0"
MOST_REWRITTEN = 50_000  # bytes of a notebook: a rewriter may take longer for a long program
SOURCE = b"def forward(x, w):\n    return x @ w\n"


class WrongError(Exception):
    """A file was read, and the result is wrong."""


@dataclass(frozen=True, slots=True)
class Kind:
    """file: the name of such a file. make: a mutated one. read: what the commands make of it.

    `read` raises MixPertError for a file that is refused. also: whether it writes to it, too.
    """

    file: str
    make: Callable[[Random], bytes]
    read: Callable[[Path, bool], object]


PLAN = f"""
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
scheme = "int8x6"
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
"""


def _plan(rng: Random) -> bytes:
    if rng.random() < 0.3:
        return other_bytes(rng, PLAN.encode())
    return toml(rng, tomllib.loads(PLAN))


def _read_plan(path: Path, also: bool) -> None:
    plan = config.load_plan(path)
    for site in plan.site[:100]:
        if plan.find(site.id) is not site:
            raise WrongError(f"{site.id!r} is not found in the plan")
    if also and len(plan.site) <= 100:
        plan_file.save(plan, path)
        if config.load_plan(path) != plan:
            raise WrongError("it reads otherwise when it has been written")


CONFIGURATION = {
    "project": {"name": "x", "dependencies": ["numpy>=2"]},
    "tool": {
        "mixpert": {"exclude": ["old/*.py", "*_test.py"], "workspace_limit": 1 << 30},
        "ruff": {"lint": {"select": ["ALL"], "per-file-ignores": {"tests/*": ["S"]}}},
    },
}


def _read_configuration(path: Path, also: bool) -> None:
    list(source_files.files_of_projects([str(path.parent)], ()))
    project.workspace_limit(str(path.parent))


def _model(rng: Random) -> bytes:
    shipped = sorted(device_model.SHIPPED.iterdir(), key=lambda file: file.name)
    return toml(rng, tomllib.loads(rng.choice(shipped).read_text("utf-8")))


def _cell(kind: str, source: Any) -> dict[str, Any]:
    outputs: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **outputs}


NOTEBOOK = {
    "cells": [
        _cell("markdown", ["# A title\n", "and text"]),
        _cell("code", ["import numpy as np\n", "x = np.ones((3, 3))\n", "y = x @ x"]),
        _cell("code", "%time z = np.dot(x, y)\nz"),
        _cell("code", []),
    ],
    "metadata": {"kernelspec": {"language": "python"}, "language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def _read_notebook(path: Path, also: bool) -> None:
    raw = source_files.read(str(path))
    if len(raw) > MOST_REWRITTEN:
        code_cells(raw.decode(errors="replace"))
        return
    changed = rewrite_notebook(raw, "n", None, None, False)
    if also and rewrite_notebook(changed.source, "n", None, None, False).source != changed.source:
        raise WrongError("it is rewritten otherwise when it has been rewritten")


SITE = SiteResult(2, 0.1, [(3, 4, 5, 2)], {"native": 2}, {}, {"float64": 2}, {"int8x1": None})


@cache
def _graph() -> graph.Graph:
    return graph.of_source(SOURCE, "mlp.py", "mlp")


@cache
def _profile() -> list[dict[str, Any]]:
    (operator,) = _graph().operators
    first = {"id": operator.id, "line": 2, "seconds": 0.25, "calls": 3, "fed_by": {operator.id: 2}}
    return [first, {**first, "id": ID, "seconds": 1e-3, "schemes": {"native": 3}}]


def _read_profile(path: Path, also: bool) -> None:
    graph.with_profile([_graph()], str(path))


RECORD = f"""
{{"plan_file": "mlp.mixpert.toml", "unit": "seconds", "interrupted": false,
"criterion": "frobenius", "budget": 1e-5, "error": 1e-6, "time_before": 1.0, "time_after": 0.5,
"plan": {{"{ID}": "int8x3"}}, "schemes": {{"{ID}": "int8x3"}}, "reverted": false,
"operators": [{{"id": "{ID}", "line": 2, "expression": "x @ w", "calls": 3, "shapes": [[3, 4, 5]],
  "locked": false, "share": 0.5, "before": "native", "after": "int8x3", "time_before": 1.0,
  "time_after": 0.5, "local_error": 1e-7, "local_errors": {{"int8x3": 1e-7, "int8x1": null}},
  "reason": "lowest rung", "detail": "", "sampled": 2, "spread": 1.5, "int8_loss": 0.1,
  "cancellation": 1.0, "fed_by": {{"{ID}": 1}}}}],
"trials": [{{"changed": {{"{ID}": "int8x3"}}, "plan": {{"{ID}": "int8x3"}}, "time": 0.5,
  "error": 1e-6, "problem": null, "gain": 0.5, "reason": "kept"}}],
"verification": {{"error": 1e-6, "worst": "y", "native_seconds": 1.0, "seconds": 0.5,
  "spread": 0.01, "native_lowered": 0.9, "lowered": 0.4}},
"values": [{{"name": "y", "criterion": "frobenius", "budget": 1e-5, "error": 1e-6}}],
"provenance": {{"source": "mlp.py", "sha256": "00", "versions": {{"numpy": "2.4.6"}}}}}}
"""
ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT"
FOREIGN = (
    f"DROP TABLE tuning; CREATE VIEW tuning AS {ENDLESS} n AS id, n AS record, n AS written FROM t",
    f"CREATE VIEW more AS {ENDLESS} n FROM t",
    f"CREATE TRIGGER more AFTER INSERT ON run BEGIN INSERT INTO content {ENDLESS} n, '', ''"
    " FROM t; END",
    "ALTER TABLE tuning ADD more AS (hex(zeroblob(100000000)))",
    "CREATE INDEX more ON run (abs(seconds))",
    "ALTER TABLE run DROP COLUMN worst",
    "CREATE TABLE more (x)",
    "PRAGMA user_version = 3",
    "PRAGMA application_id = 0",
    "DELETE FROM content",
    "DELETE FROM tuning",
    "UPDATE run SET digest = NULL",
    "UPDATE run SET tuning = 77",
    "UPDATE sqlite_sequence SET seq = 9223372036854775807",
)
COLUMNS = {
    "tuning": ("subject", "begun", "finished", "written", "record"),
    "run": ("made", "machine", "purpose", "plan", "seconds", "result", "error", "worst", "errors",
            "problem", "digest", "again"),
    "content": ("digest", "names", "npz"),
}  # fmt: skip
ODD = (None, 0, -1, 2**62, 1e308, "", "x", "\0", "[" * 100_000, "x" * (9 << 20), b"", b"\xff" * 99)


@cache
def _store() -> bytes:
    """A file of trials as a tuning leaves it."""
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        path = Path(folder) / "t.db"
        trials = Trials(path)
        trials.begin({})
        values = {"y": np.arange(6.0).reshape(2, 3), "z": np.ones(1, np.float32)}
        trials.store("native run", {}, ProgramRun(Result(1.5, {ID: SITE}, {}, []), values))
        result = Result(1.5, {ID: SITE}, {}, [])
        trials.store(TRIAL, {ID: "int8x3"}, ProgramRun(result, {}, 1e-7, "y", {"y": 1e-7}))
        trials.end(json.loads(RECORD), finished=False)
        return path.read_bytes()


def _stranger(rng: Random) -> bytes:
    raw = _store()
    if rng.random() < 0.3:
        return other_bytes(rng, raw)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as it:
        it.deserialize(raw)
        for _ in range(rng.choice((1, 1, 2))):
            with suppress(sqlite3.Error):
                if rng.random() < 0.2:
                    it.executescript(rng.choice(FOREIGN))
                    continue
                table = rng.choice(("tuning", "tuning", *COLUMNS))
                column = rng.choice(("record",) * 4 if table == "tuning" else COLUMNS[table])
                for (old,) in it.execute(f"SELECT {column} FROM {table} LIMIT 9").fetchall():
                    it.execute(f"UPDATE {table} SET {column} = ?", (_other(rng, old),))
        return it.serialize()


def _other(rng: Random, old: object) -> object:
    """Another value of a column. What is no UTF-8 may be a text for SQLite all the same."""
    if isinstance(old, bytes) and rng.random() < 0.8:
        return other_bytes(rng, old)
    if not isinstance(old, str) or len(old) > MOST_BYTES or rng.random() < 0.2:
        return rng.choice(ODD)
    try:
        tree = json.loads(old)
    except (ValueError, RecursionError):
        tree = old
    raw = json_text(rng, tree)
    return raw if rng.random() < 0.05 else raw.decode("utf-8", "replace")


def _read_store(path: Path, also: bool) -> None:
    messages: list[str] = []
    trials = Trials(path, resume=True, say=messages.append)
    trials.begin({})
    with suppress(ProgramError):  # what is kept of a run that failed
        trials.take("native run", {})
        trials.take(TRIAL, {ID: "int8x3"})
    if also:
        trials.store("native run", {}, ProgramRun(Result(1.5, {ID: SITE}, {}, []), {}))
    plan = path.with_name(path.name.replace(".trials.db", ".toml"))
    assert beside(plan) == path
    if wrong := [line for line in messages if not line.isprintable()]:
        raise WrongError(f"its message was {wrong[0][:200]!r}")
    if (found := latest(plan)) is not None:
        markdown(report_record.read(found, str(path)), Program("mlp.py"))


KINDS = {
    "plans": Kind("p.mixpert.toml", _plan, _read_plan),
    "stores": Kind("p.mixpert.trials.db", _stranger, _read_store),
    "profiles": Kind("p.json", lambda rng: json_text(rng, _profile()), _read_profile),
    "models": Kind("p.toml", _model, lambda path, also: device_model.load(str(path))),
    "notebooks": Kind("p.ipynb", lambda rng: json_text(rng, NOTEBOOK), _read_notebook),
    "configuration": Kind(
        "pyproject.toml", lambda rng: toml(rng, CONFIGURATION), _read_configuration
    ),
}
