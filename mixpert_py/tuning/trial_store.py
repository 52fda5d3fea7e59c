"""The SQLite file beside the plan file that stores the runs of tunings.

It uses SQLite's rollback journal and no write-ahead log: a run takes a second and its transaction a
millisecond, so that a log gains nothing, is unsafe on network folders, and leaves two more files
behind when a process is killed.

The file may come from a stranger: it is read within limits on time and memory, and only if it has
exactly the tables that are created here.
"""

import hashlib
import io
import json
import re
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from mixpert_py.errors import MixPertError, one_line
from mixpert_py.execution.executor import Values

APPLICATION = 0x4D695850  # in the file's header: "MiXP"
SCHEMA = 2
BUSY = 60.0  # seconds to wait for another process's transaction
MOST_TUNINGS = 20  # finished ones, and as many unfinished ones
MOST_BYTES = 1 << 28  # of a run's values, and of all that is read of a tuning's runs
LONGEST_TEXT = 1 << 23  # bytes
LONGEST_HEADER = 1 << 10  # bytes before the numbers of an array
# SQLite's steps, of which a table of a thousand rows takes ten thousand or so.
STEPS = 10_000
OPENING = 10  # times so many until the file is known to be ours
MOST = 1_000  # times so many while it is open

TABLES = """
CREATE TABLE tuning (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL, -- JSON: only a tuning of the same takes its runs
    begun TEXT NOT NULL,
    finished TEXT, -- NULL: interrupted, or not done yet
    written TEXT, -- when its plan was
    record TEXT -- JSON: what it ended with then
);
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tuning INTEGER NOT NULL REFERENCES tuning ON DELETE CASCADE,
    made TEXT NOT NULL,
    machine TEXT NOT NULL, -- JSON
    purpose TEXT NOT NULL,
    plan TEXT NOT NULL, -- JSON: site -> scheme
    seconds REAL,
    result TEXT, -- JSON: times, calls and schemes of every site
    error REAL, -- that the search went by, NULL: not compared, or not a number
    worst TEXT, -- the value that has this error
    errors TEXT, -- JSON: value -> error, against the reference, NaN and Infinity too
    problem TEXT, -- why it failed
    digest TEXT, -- of its values
    again INTEGER NOT NULL -- 1: whoever resumes makes this run again
);
CREATE INDEX run_of_tuning ON run (tuning);
CREATE TABLE content ( -- values of runs, equal ones once
    digest TEXT PRIMARY KEY,
    names TEXT NOT NULL, -- JSON list
    npz BLOB NOT NULL -- the arrays in this order
);
"""
SEQUENCE = "CREATETABLEsqlite_sequence(name,seq)"  # SQLite's own, for AUTOINCREMENT


class Row(NamedTuple):
    """A stored run; the fields are columns of the table `run`."""

    purpose: str
    plan: str
    seconds: float | None = None
    result: str | None = None
    error: float | None = None
    worst: str = ""
    errors: str = "{}"
    problem: str | None = None
    digest: str | None = None
    again: bool = False


class Store:
    """An open file of trials. Raises sqlite3.Error where it cannot be read or written."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        """Raises MixPertError if the file is something else, or of another version."""
        mode = "ro" if read_only else "rwc"
        place = f"{path.absolute().as_uri()}?mode={mode}"
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise sqlite3.OperationalError("unable to open database file: no regular file")
        self._connection = sqlite3.connect(place, BUSY, isolation_level=None, uri=True)
        self._connection.text_factory = _text
        self._left = OPENING
        try:
            self._connection.set_progress_handler(self._is_too_much, STEPS)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON"):
                self._connection.execute(f"PRAGMA {setting}")
            if not self._is_empty():
                self._require_ours(path)
            elif not read_only:
                self._create()
            self._left = MOST
        except BaseException as error:
            self.close()
            # Its subclasses have messages of their own, which tell more. A name that is no text
            # makes a message that is none.
            if type(error) is sqlite3.DatabaseError or isinstance(error, UnicodeDecodeError):
                raise MixPertError(
                    f"{path}: not a file of trials ({one_line(error)}); move it out of the way"
                ) from None
            raise

    def close(self) -> None:
        self._connection.close()

    def begin(self, subject: str) -> int:
        """A new tuning; its number. The oldest ones beyond MOST_TUNINGS go."""
        with self._connection as it:
            it.execute("BEGIN IMMEDIATE")
            made = it.execute(
                "INSERT INTO tuning (subject, begun) VALUES (?, ?)", (subject, _now())
            )
            self._prune()
        assert made.lastrowid is not None
        return made.lastrowid

    def unfinished(self, subject: str) -> tuple[int, str] | None:
        """Number and beginning of the newest unfinished tuning of a subject."""
        found = self._connection.execute(
            "SELECT id, begun FROM tuning WHERE subject = ? AND finished IS NULL"
            " ORDER BY id DESC LIMIT 1",
            (subject,),
        ).fetchone()
        return None if found is None else (found[0], str(found[1]))

    def add(self, tuning: int, machine: str, row: Row, values: Values) -> None:
        """Store a run in one transaction. Equal values are stored once."""
        if values:
            row = row._replace(digest=_digest(values))
        if not self._added(tuning, machine, row):
            # Compressing takes long, and others would wait for the transaction.
            self._added(tuning, machine, row, _packed(values))

    def rows(self, tuning: int) -> list[Row]:
        """The runs of a tuning that need not be made again, in the order they were made."""
        columns = ", ".join(Row._fields)
        query = f"SELECT {columns} FROM run WHERE tuning = ? AND NOT again ORDER BY id"
        rows, size = [], 0
        for found in self._connection.execute(query, (tuning,)):
            size += sum(len(value) for value in found if isinstance(value, str | bytes))
            if size > MOST_BYTES:
                raise sqlite3.DataError(f"more than {MOST_BYTES >> 20} MiB of runs")
            try:
                rows.append(msgspec.convert(found, Row, strict=False))
            except msgspec.ValidationError as error:
                raise sqlite3.DataError(f"not a run: {error}") from None
        return rows

    def values(self, digest: str) -> Values:
        """Stored values.

        Raises LookupError if they are gone, and any other exception if they are damaged.
        """
        query = "SELECT names FROM content WHERE digest = ?"
        found = self._connection.execute(query, (digest,)).fetchone()
        if found is None:
            raise LookupError(f"no content {digest}")
        self._allow_values()
        query = "SELECT npz FROM content WHERE digest = ?"
        (npz,) = self._connection.execute(query, (digest,)).fetchone()
        return _unpacked(json.loads(found[0]), npz)

    def end(self, tuning: int, record: str, finished: bool) -> None:
        """Store the record of a tuning that ended; the values of a finished one are deleted.

        record: of at most LONGEST_TEXT bytes.
        """
        now = _now()
        with self._connection as it:
            it.execute("BEGIN IMMEDIATE")
            it.execute(
                "UPDATE tuning SET record = ?, written = ?, finished = ? WHERE id = ?",
                (record, now, now if finished else None, tuning),
            )
            self._prune()

    def latest(self) -> str | None:
        """The record of the plan that was written last."""
        if self._is_empty():
            return None
        found = self._connection.execute(
            "SELECT record FROM tuning WHERE record IS NOT NULL"
            " ORDER BY written DESC, id DESC LIMIT 1"
        ).fetchone()
        return None if found is None else str(found[0])

    def _is_too_much(self) -> bool:
        """Whether to stop SQLite, since a file of ours never takes so many steps."""
        self._left -= 1
        return self._left < 0

    def _allow_values(self) -> None:
        """Let a column be as large as the packed values of a run."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MOST_BYTES)

    def _is_empty(self) -> bool:
        return not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()

    def _create(self) -> None:
        self._connection.execute("PRAGMA auto_vacuum = FULL")  # what is dropped makes it smaller
        with self._connection as it:
            it.execute("BEGIN IMMEDIATE")
            if self._is_empty():  # and not made by another process since
                it.execute(f"PRAGMA application_id = {APPLICATION}")
                it.execute(f"PRAGMA user_version = {SCHEMA}")
                for statement in TABLES.split(";"):
                    it.execute(statement)

    def _require_ours(self, path: Path) -> None:
        application = self._pragma("application_id")
        version = self._pragma("user_version")
        if application != APPLICATION:
            raise MixPertError(f"{path}: not a file of trials; move it out of the way")
        if version != SCHEMA:
            raise MixPertError(
                f"{path}: trials of schema {version}; this version reads {SCHEMA}; move the file "
                "out of the way, or use the newer version"
            )
        # A stranger's file could hold a view that never ends, or a trigger.
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
        here = {_bare(sql) for (sql,) in self._connection.execute(query)}
        if here != set(map(_bare, TABLES.split(";"))) - {""} | {SEQUENCE}:
            raise MixPertError(f"{path}: not a file of trials; move it out of the way")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _added(
        self, tuning: int, machine: str, row: Row, content: tuple[str, bytes] | None = None
    ) -> bool:
        """Add a run, and its content if given. False, and nothing is added, if it has none."""
        with self._connection as it:
            it.execute("BEGIN IMMEDIATE")
            if content is not None:
                self._allow_values()
                it.execute("INSERT OR IGNORE INTO content VALUES (?, ?, ?)", (row.digest, *content))
            elif row.digest is not None:
                query = "SELECT 1 FROM content WHERE digest = ?"
                if it.execute(query, (row.digest,)).fetchone() is None:
                    return False
            names = ", ".join(("tuning", "made", "machine", *Row._fields))
            marks = ", ".join("?" * (3 + len(row)))
            it.execute(
                f"INSERT INTO run ({names}) VALUES ({marks})", (tuning, _now(), machine, *row)
            )
        return True

    def _prune(self) -> None:
        for state in ("IS NULL", "IS NOT NULL"):
            self._connection.execute(
                f"DELETE FROM tuning WHERE finished {state} AND id NOT IN (SELECT id FROM tuning"
                f" WHERE finished {state} ORDER BY finished DESC, id DESC LIMIT {MOST_TUNINGS})"
            )
        self._connection.execute(
            "DELETE FROM content WHERE digest NOT IN (SELECT digest FROM run JOIN tuning"
            " ON run.tuning = tuning.id WHERE digest IS NOT NULL AND finished IS NULL)"
        )


def _text(raw: bytes) -> str:
    """Decode a text of the file, which may not be UTF-8 if the file is not ours."""
    return raw.decode(errors="replace")


def _now() -> str:
    return datetime.now(UTC).isoformat(" ")


def _bare(sql: object) -> str:
    """A statement without its comments and spaces."""
    return re.sub(r"--[^\n]*|\s+", "", str(sql))


def _digest(values: Values) -> str:
    """A hash of the values and their names."""
    digest = hashlib.sha256()
    for name, array in values.items():
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _packed(values: Values) -> tuple[str, bytes]:
    """The names and the arrays as columns of `content`."""
    file = io.BytesIO()
    np.savez_compressed(file, *values.values())
    return json.dumps(list(values)), file.getvalue()


def _unpacked(names: list[str], npz: bytes) -> Values:
    """The values of `_packed`. Raises ValueError where they take more memory than a run's may."""
    # Each entry of the archive's directory begins so, and becomes an object when it is opened.
    if npz.count(b"PK\1\2") > 2 * len(names) + 8:
        raise ValueError("more arrays than names")
    with zipfile.ZipFile(io.BytesIO(npz)) as archive:
        files = archive.infolist()
        # Other methods may unpack more than is read.
        if not {file.compress_type for file in files} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("packed in another way")
        if sum(file.file_size - LONGEST_HEADER for file in files) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
        values = {}
        for i, name in enumerate(names):
            with archive.open(f"arr_{i}.npy") as file:
                values[name] = np.lib.format.read_array(file, allow_pickle=False)
        return values
