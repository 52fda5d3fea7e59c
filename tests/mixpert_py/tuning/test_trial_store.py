"""The file that keeps runs: what comes back, what is refused, and what a file that fails costs."""

import errno
import io
import os
import sqlite3
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from mixpert_py import plan
from mixpert_py.errors import MixPertError, ProgramError
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuning import trial_store
from mixpert_py.tuning.trial_store import MOST_TUNINGS, SCHEMA, Store
from mixpert_py.tuning.trials import TRIAL, Trials, beside, latest
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.counted import OPTIONS, RESULT, database, runs, table, tuned
from tests.mixpert_py.tuning.counted import program as program

VALUES = {
    "file": np.arange(6.0).reshape(2, 3),
    "a/b \\ \udc80": np.float32([np.nan, -0.0, np.inf]),
    "scalar": np.array(1 + 2j),
    "empty": np.zeros((0, 3), np.int8),
    "long": np.array([1], np.longdouble) / 3,
}
RUN = ProgramRun(RESULT, VALUES)


def test_a_failed_trial_is_a_result_and_a_failed_native_run_is_not(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({})
    trials.store_failure("native run", {}, "it comes before any run that was made")
    assert not path.exists()
    trials.store("native run", {}, RUN)
    trials.store_failure("native run", {}, "no memory")
    trials.store_failure(TRIAL, {"x": "int8x1"}, "no number: \udc80")
    again = Trials(path, resume=True)
    again.begin({})
    assert again.take("native run", {}) is not None
    assert again.take("native run", {}) is None
    with pytest.raises(ProgramError, match="no number"):
        again.take(TRIAL, {"x": "int8x1"})
    assert again.take(TRIAL, {"x": "int8x1"}) is None


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({"arguments": ["\udcff"]})
    trials.store("native run", {}, RUN)
    trials.store(TRIAL, {"x": "int8x1", "a": "native"}, ProgramRun(RESULT, {}, 1e-7, "file"))
    trials.store(TRIAL, {"x": "int8x2"}, ProgramRun(RESULT, {}, float("inf")))
    again = Trials(path, resume=True)
    again.begin({"arguments": ["\udcff"]})
    native = again.take("native run", {})
    assert native is not None
    assert native.result == RESULT
    assert list(native.values) == list(VALUES)
    for name, value in VALUES.items():
        assert native.values[name].dtype == value.dtype
        np.testing.assert_array_equal(native.values[name], value)
    judged = again.take(TRIAL, {"a": "native", "x": "int8x1"})
    assert judged == ProgramRun(RESULT, {}, 1e-7, "file")
    assert again.take(TRIAL, {"x": "int8x2"}) == ProgramRun(RESULT, {}, float("inf"))


def test_values_that_are_too_large_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixpert_py.tuning.trials.MOST_BYTES", 100)
    trials = Trials(tmp_path / "t.db")
    trials.begin({})
    trials.store("native run", {}, ProgramRun(RESULT, {"x": np.zeros(13)}))
    trials.store("native run", {}, ProgramRun(RESULT, {"x": np.zeros(12)}))
    again = Trials(tmp_path / "t.db", resume=True)
    again.begin({})
    taken = again.take("native run", {})
    assert taken is not None
    assert taken.values["x"].size == 12
    assert again.take("native run", {}) is None


def test_old_tunings_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    for number in range(MOST_TUNINGS + 5):
        trials = Trials(path)
        trials.begin({"finished": number})
        trials.store("native run", {}, ProgramRun(RESULT, {"x": np.full(9, number)}))
        trials.end({"number": number}, finished=True)
    for number in range(MOST_TUNINGS + 5):
        trials = Trials(path)
        trials.begin({"unfinished": number})
        trials.store("native run", {}, ProgramRun(RESULT, {"x": np.full(9, number)}))
    with closing(sqlite3.connect(path)) as connection:
        for name, count in (("tuning", 2), ("run", 2), ("content", 1)):
            (found,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
            assert found == count * MOST_TUNINGS
    assert latest(tmp_path / "t.mixpert.toml") == {"number": MOST_TUNINGS + 4}


def test_where_trials_are_kept(tmp_path: Path) -> None:
    assert beside(Path("a/mlp.mixpert.toml")) == Path("a/mlp.mixpert.trials.db")
    assert beside(Path("plan")) == Path("plan.trials.db")
    assert beside(Path("/dev/stdout")) is None
    assert latest(tmp_path / "none.mixpert.toml") is None
    assert latest(Path("/dev/stdout")) is None


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tuning (mine)")


def newer(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")


def text(path: Path) -> None:
    path.write_text("what the user wrote\n" * 99)


def cut(path: Path) -> None:
    Store(path).close()
    os.truncate(path, 5000)


def changed(path: Path, script: str, *values: object) -> None:
    """A file of ours with one tuning, after a statement of a stranger's, or a script of them."""
    trials = Trials(path)
    trials.begin({})
    trials.store("native run", {}, RUN)
    trials.end({}, finished=False)
    with closing(sqlite3.connect(path)) as connection:
        if values:
            connection.execute(script, values)
            connection.commit()
        else:
            connection.executescript(script)


ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT"


def endless_view(path: Path) -> None:
    changed(
        path,
        "PRAGMA foreign_keys = OFF; ALTER TABLE tuning RENAME TO before;"
        f"CREATE VIEW tuning AS {ENDLESS} n AS id, '' AS subject, '' AS begun, NULL AS finished,"
        " '' AS written, '{}' AS record FROM t WHERE n < 0",
    )


def endless_trigger(path: Path) -> None:
    changed(
        path,
        "CREATE TRIGGER more AFTER INSERT ON run BEGIN"
        f" INSERT INTO content {ENDLESS} n, '', '' FROM t; END",
    )


def index_with_a_function(path: Path) -> None:
    changed(path, "CREATE INDEX mine ON tuning (hex(zeroblob(1000000)))")


def computed_column(path: Path) -> None:
    changed(path, "ALTER TABLE tuning ADD mine AS (hex(zeroblob(100000000)))")


def many_views(path: Path) -> None:
    changed(
        path,
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_master WITH RECURSIVE t AS (SELECT 1 AS n"
        " UNION ALL SELECT n + 1 FROM t WHERE n < 500000) SELECT 'view', 'v' || n, 'v' || n, 0,"
        " 'CREATE VIEW v' || n || ' AS SELECT 1' FROM t;",
    )


STRANGERS = [endless_view, endless_trigger, index_with_a_function, computed_column]
REFUSED = [foreign, newer, text, cut, *STRANGERS]


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_is_not_ours_is_refused_and_left(
    make: Callable[[Path], None], program: Path, mixpert: Mixpert
) -> None:
    make(database(program))
    before = database(program).read_bytes()
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 2
    assert "s.mixpert.trials.db: " in said.one_clear_line()
    assert database(program).read_bytes() == before
    assert runs(program) == 0
    with pytest.raises(MixPertError, match=r"s\.mixpert\.trials\.db: "):
        latest(program.with_name("s.mixpert.toml"))


RECORDS: dict[str, object] = {
    "empty text": "",
    "random bytes": b"\xff\x00\n" * 500,
    "text that is none": "{",
    "number": 3,
    "deep": "[" * 100_000,
    "huge": "x" * 100_000_000,
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_that_is_none_is_said_in_one_line(record: object, tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    changed(path, "UPDATE tuning SET record = ?", record)
    begin = process_time()
    with pytest.raises(MixPertError) as caught:
        report_record.read(latest(tmp_path / "t.mixpert.toml"), str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert process_time() - begin < 1


def test_text_that_is_no_utf8_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    changed(path, "UPDATE tuning SET record = CAST(? AS TEXT)", b"\xff\x00\n" * 500)
    with pytest.raises(MixPertError, match=r"t\.mixpert\.trials\.db: cannot read") as caught:
        latest(tmp_path / "t.mixpert.toml")
    assert len(str(caught.value)) < 500


def test_a_schema_that_takes_long_to_read_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    many_views(path)
    begin = process_time()
    with pytest.raises(MixPertError, match=r"t\.mixpert\.trials\.db: "):
        latest(tmp_path / "t.mixpert.toml")
    assert process_time() - begin < 1


@pytest.mark.parametrize("count", [10, 100_000])
def test_the_steps_of_a_query_are_limited(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    changed(
        path,
        "INSERT INTO tuning (subject, begun, written, record) WITH RECURSIVE t AS (SELECT 1 AS n"
        f" UNION ALL SELECT n + 1 FROM t WHERE n < {count}) SELECT '{{}}', n, '', 3 FROM t;",
    )
    monkeypatch.setattr(trial_store, "MOST", 20)
    if count > 10:
        with pytest.raises(MixPertError, match="interrupted"):
            latest(tmp_path / "t.mixpert.toml")
    else:
        assert latest(tmp_path / "t.mixpert.toml") == {}


def test_a_record_without_room_loses_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    trials = Trials(path)
    trials.begin({})
    trials.store("native run", {}, RUN)
    trials.end({"a": 1, "trials": ["x" * trial_store.LONGEST_TEXT]}, finished=True)
    assert latest(tmp_path / "t.mixpert.toml") == {"a": 1, "trials": []}


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK], ids=["pipe", "socket"])
def test_a_pipe_is_not_waited_for(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    os.mknod(path, kind | 0o600)
    said: list[str] = []
    trials = Trials(path, resume=True, say=said.append)
    trials.begin({})
    assert "runs are not kept from here on: unable to open" in said[0]
    assert latest(tmp_path / "t.mixpert.toml") is None


@pytest.mark.parametrize("column", ["result", "error", "worst", "errors", "digest", "plan"])
def test_a_row_of_other_types_is_no_run(column: str, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    changed(path, f"UPDATE run SET {column} = ?", b"\xff")
    said: list[str] = []
    trials = Trials(path, resume=True, say=said.append)
    trials.begin({})
    assert "runs are not kept from here on: not a run: " in said[0]
    assert trials.take("native run", {}) is None


def many_values(count: int) -> bytes:
    return packed([np.zeros(2)] * count)


def packed(arrays: list[np.ndarray[Any, Any]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for i, array in enumerate(arrays):
            one = io.BytesIO()
            np.save(one, array)
            archive.writestr(f"arr_{i}.npy", one.getvalue())
    return file.getvalue()


def large(method: int) -> bytes:
    """A thousand times smaller than what is in it, or less."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", method, compresslevel=9) as archive,
        archive.open("arr_0.npy", "w", force_zip64=True) as one,
    ):
        np.save(one, np.zeros(1 << 25, np.int8))
    return file.getvalue()


@pytest.mark.parametrize(
    "make",
    [
        lambda: large(zipfile.ZIP_DEFLATED),
        lambda: large(zipfile.ZIP_BZIP2),
        lambda: many_values(1000),
        lambda: packed([np.array([{}], object)]),
        lambda: b"",
        lambda: b"\xff" * 1000,
    ],
    ids=["large", "large, packed otherwise", "many", "objects", "nothing", "noise"],
)
def test_values_that_are_none_are_made_again(
    make: Callable[[], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_store, "MOST_BYTES", 1 << 20)
    path = tmp_path / "t.db"
    content = make()
    changed(path, "UPDATE content SET npz = ?", content)
    said: list[str] = []
    trials = Trials(path, resume=True, say=said.append)
    trials.begin({})
    tracemalloc.start()
    try:
        assert trials.take("native run", {}) is None
        assert tracemalloc.get_traced_memory()[1] < 4 * len(content) + (8 << 20)
    finally:
        tracemalloc.stop()


def test_an_empty_file_is_ours(program: Path) -> None:
    database(program).touch()
    assert latest(program.with_name("s.mixpert.toml")) is None
    tuned(Trials(database(program)))
    assert table(program, "SELECT count(*) FROM tuning") == [(1,)]


FAILURES = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    sqlite3.OperationalError("database or disk is full"),
    sqlite3.OperationalError("attempt to write a readonly database"),
    sqlite3.DatabaseError("database disk image is malformed"),
]


@pytest.mark.parametrize("step", ["__init__", "begin", "add", "end"])
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_file_that_fails_costs_one_line_and_no_run(
    step: str, failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    trials = Trials(tmp_path / "t.db", say=said.append)
    trials.begin({})

    def fail(*arguments: object, **options: object) -> None:
        raise failure

    monkeypatch.setattr(Store, step, fail)
    trials.store("native run", {}, RUN)
    trials.store("native run", {}, RUN)
    trials.end({}, finished=True)
    assert len(said) == 1
    assert said[0] == f"{tmp_path / 't.db'}: runs are not kept from here on: {failure}"


def damaged(path: Path) -> None:
    """All but the first page, with which the file is known to be ours."""
    changed(path, "SELECT 1")
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def folder_there(path: Path) -> None:
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "t.db")


@pytest.mark.parametrize("make", [damaged, folder_there, link_to_nothing], ids=lambda x: x.__name__)
@pytest.mark.parametrize("resume", [False, True])
def test_a_file_of_no_use_costs_one_line(
    make: Callable[[Path], None], resume: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t.mixpert.trials.db"
    make(path)
    said: list[str] = []
    trials = Trials(path, resume, said.append)
    trials.begin({})
    assert trials.take("native run", {}) is None
    trials.store("native run", {}, RUN)
    trials.end({}, finished=True)
    (line,) = said
    assert line.startswith(f"{path}: runs are not kept from here on: ")
    assert line.endswith("; the tuning begins anew") == resume


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    trials = Trials(tmp_path / "t.db", say=said.append)
    trials.begin({})
    trials.store("native run", {}, RUN)
    connect = sqlite3.connect

    def small(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count = 1")  # SQLite's least: what is there already
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(trial_store.sqlite3, "connect", small)
    noise = np.random.default_rng(0).random(10**5)
    trials.store("native run", {}, ProgramRun(RESULT, {"x": noise}))
    assert said == [f"{tmp_path / 't.db'}: runs are not kept from here on: "
                    "database or disk is full"]  # fmt: skip
    monkeypatch.undo()
    again = Trials(tmp_path / "t.db", resume=True)
    again.begin({})
    assert again.take("native run", {}) is not None
    assert again.take("native run", {}) is None


def test_a_place_that_cannot_be_written_costs_the_record_only(
    program: Path, mixpert: Mixpert
) -> None:
    database(program).mkdir()
    said = mixpert("tune", *OPTIONS, "s.py")
    assert said.code == 0
    assert "runs are not kept from here on: unable to open" in said.one_clear_line()
    assert plan.load(program.with_name("s.mixpert.toml")).site


def test_a_file_that_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    first = Trials(path)
    first.begin({})
    first.store("native run", {}, RUN)
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write everything")
    said: list[str] = []
    trials = Trials(path, resume=True, say=said.append)
    trials.begin({})
    assert trials.take("native run", {}) is not None
    trials.store("native run", {}, RUN)
    assert "readonly" in said[1]


def test_damaged_contents_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    trials = Trials(path)
    trials.begin({})
    for _ in range(2):
        trials.store("native run", {}, RUN)
    trials.store(TRIAL, {}, ProgramRun(RESULT, {}, 1e-7, "file"))
    with closing(sqlite3.connect(path)) as connection:
        (npz,) = connection.execute("SELECT npz FROM content").fetchone()
        middle = len(npz) // 2
        damaged = npz[:middle] + bytes(9) + npz[middle + 9 :]
        connection.execute("UPDATE content SET npz = ?", (damaged,))
        connection.execute("UPDATE run SET result = '{' WHERE purpose = 'trial'")
        connection.commit()
    again = Trials(path, resume=True)
    again.begin({})
    assert again.take("native run", {}) is None
    assert again.take(TRIAL, {}) is None
