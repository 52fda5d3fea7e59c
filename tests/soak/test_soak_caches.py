"""The soak gates of caches: cold starts, and files planted in caches."""

from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from mixpert_py.runtime.code_cache import CodeCache
from tests.soak import cold, planted
from tests.soak.cold import Answer

MADE = {"products": ["a", "b"], "compiled": False}


def test_cold_starts_pass() -> None:
    found = cold.gate("reference", 2, 100)
    assert found.passed, found.figures
    assert found.did.startswith("2 processes at once")
    assert found.found.endswith("0 broken of 2 files")


def test_a_process_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cold.fresh_home, "command", lambda *_: ["false"])
    (answer,) = cold.storm("reference", tmp_path, 1, monotonic() + 60)
    assert answer == Answer(None, "exit code 1: no output")
    found = cold.gate("reference", 2, 10)
    assert not found.passed
    assert found.figures["faults"][0] == "process 0: exit code 1: no output"


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cold.fresh_home, "command", lambda *_: ["sh", "-c", "echo; exec sleep 60"])
    assert cold.storm("reference", tmp_path, 1, 0.0) == [Answer(None, "it took too long")]


@pytest.mark.parametrize(
    ("answers", "last", "count"),
    [
        ([MADE], MADE, 0),
        ([MADE, {**MADE, "products": ["a", "c"]}], MADE, 1),
        ([{**MADE, "compiled": True}], MADE, 0),
        ([MADE], {**MADE, "compiled": True}, 1),
        ([None, MADE], MADE, 1),
        ([MADE], None, 1),
    ],
)
def test_what_is_a_fault(answers: list[Any], last: Any, count: int) -> None:
    faults = cold._faults([Answer(one, "why") for one in answers], Answer(last, "why"))
    assert len(list(faults)) == count


def test_files_that_are_not_whole(tmp_path: Path) -> None:
    kept = tmp_path / ".cache" / "mixpert" / "code"
    CodeCache(kept).keep(b"place", b"state", b"payload")
    assert cold._looked_at(tmp_path) == (1, [])
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    (kept / ".left").touch()
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "x.cubin").write_bytes(b"0" * 50)
    assert cold._looked_at(tmp_path) == (3, [".left", file.name, "x.cubin"])


def test_planted_files_are_ignored() -> None:
    found = planted.gate()
    assert found.passed, found.figures
    assert found.found.endswith(" ignored, 0 not")


def test_one_that_is_taken_fails() -> None:
    fine = {"by the user himself": "taken", "as a link": "ignored", "by another": "not tried"}
    assert planted.judged({"x": {**fine}}).passed
    assert planted.judged({"x": {**fine}}).did.endswith("(1 more need root)")
    assert not planted.judged({"x": {**fine, "as a link": "taken"}}).passed
    assert not planted.judged({"x": {**fine, "as a link": "KeyError: 'x'"}}).passed
    assert not planted.judged({"x": {**fine, "by the user himself": "ignored"}}).passed
