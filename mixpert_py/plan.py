"""The plan: which scheme each call site runs, kept as a TOML file that people read and edit."""

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from mixpert_py import files
from mixpert_py.errors import PlanError, short, unknown_scheme
from mixpert_py.toml_lines import MAX_BYTES, decoded, explained, line_of, shown
from mixpert_py.toml_lines import tables as tables_of

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import AoT, Table

SCHEMA = 1
DIGITS = 6  # of the hash in the id of a product of PyTorch's own
# Those of PyTorch's backward passes are their forward products', with a word.
SITE_ID = r"^[^:/~#\s]+:[^/~#\s]+/[a-z_]+~[0-9a-f]+(\.backward)?#[0-9]+\Z"

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
# A plan is written again around its comments, which takes long for long lists.
Shapes = Annotated[
    list[Annotated[list[Count], msgspec.Meta(max_length=8)]], msgspec.Meta(max_length=1000)
]
SiteId = Annotated[str, msgspec.Meta(pattern=SITE_ID)]


class PlanTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the plan file: immutable, with unknown keys refused."""


class Provenance(PlanTable, frozen=True):
    """The origin of a plan, which shows whether it is stale.

    gain: "cannot tell" if the machine did not show whether the plan is faster. left_out: variables
    of the program that were not compared by default: intermediate variables and residuals.
    """

    source: str = ""
    sha256: str = ""
    device: str = ""
    backend: str = ""
    versions: dict[str, str] = {}
    blas_threads: Count = 0
    command: str = ""
    date: str = ""
    gain: str = ""
    left_out: Annotated[list[str], msgspec.Meta(max_length=1000)] = []


class Criterion(PlanTable, frozen=True):
    """How the error of one observed value is measured, its budget and what was reached."""

    name: str
    metric: str
    budget: NonNegative
    achieved: NonNegative = 0.0
    reference: str = "float64"
    holdout: NonNegative | None = None


class Site(PlanTable, frozen=True):
    """A call site and its scheme, with what was measured when the plan was made."""

    id: SiteId
    scheme: str
    expression: str = ""
    locked: bool = False
    shapes: Shapes = []
    calls: Count = 0
    error: NonNegative = 0.0
    native_ms: NonNegative | None = None
    ms: NonNegative | None = None


def module_in_ids(name: str) -> str:
    """A module's name as in site ids: characters that would end it there, and spaces, become `_`.

    So do bytes of a file's name that are not UTF-8, which no plan could hold.
    """
    return re.sub(r"[:/~#\s\ud800-\udfff]", "_", name) or "_"


def module_name(path: str | os.PathLike[str]) -> str:
    """The module in a file's site ids: the dotted name from the topmost package folder."""
    folder, name = os.path.split(os.path.abspath(path))
    stem = Path(name).stem
    parts = [] if stem == "__init__" else [stem]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return module_in_ids(".".join(parts) or os.path.basename(folder))


def torch_site(path: str, function: str, operator: str, text: str, number: int) -> str:
    """The id of a call site whose products PyTorch makes itself, the same eager and compiled.

    path: the file; without one it is `__main__`. text: of the source's line, from where the call
    begins. number: of such calls before it in the function.
    """
    module = module_name(path) if os.path.isfile(path) else "__main__"
    kind = "bmm" if operator.endswith("bmm") else "mm"
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    return f"{module}:{function}/torch_{kind}~{digest}#{number}"


def module_of(site: str) -> str:
    """The module that a call site is in: the first part of its id."""
    return site.partition(":")[0]


def is_in_source(site: str) -> bool:
    """Return whether a call site is a product in the source, not one inside PyTorch."""
    return "/torch_" not in site and ".backward#" not in site


class Package(PlanTable, frozen=True):
    """A package that the plan includes, as given to `--package`, and its distribution, if any."""

    name: str
    distribution: str = ""
    version: str = ""


class Plan(PlanTable, frozen=True):
    """Call sites and their schemes. `schema` is the version of the file format.

    guard: whether products that are less accurate than when the plan was made run natively, see
    `runtime.plan_guard`.
    """

    schema: int = SCHEMA
    guard: Literal["on", "off"] = "on"
    provenance: Provenance = Provenance()
    package: list[Package] = []
    criterion: list[Criterion] = []
    site: list[Site] = []

    def schemes(self) -> dict[str, str]:
        """Maps site ids to scheme names."""
        return {site.id: site.scheme for site in self.site}

    def find(self, site_id: str) -> Site | None:
        """The entry of a call site: by its id, else the only entry with its kind and hash; None if
        stale.

        The second way finds a site after its module or its function was renamed. One of the two
        must be unchanged, because `x @ y` has the same hash in any program.
        """
        place, _, tail = site_id.partition("/")
        module, _, function = place.partition(":")
        same_hash = []
        for site in self.site:
            if site.id == site_id:
                return site
            if site.id.partition("/")[2] == tail:
                same_hash.append(site)
        if len(same_hash) != 1:
            return None
        found_module, _, found_function = same_hash[0].id.partition("/")[0].partition(":")
        return same_hash[0] if module == found_module or function == found_function else None


def loads(text: str, name: str = "plan", known: Collection[str] | None = None) -> Plan:
    """Parse a plan. known: accepted scheme names, None for any. Raises PlanError in one line."""
    try:
        tables = tables_of(text)
    except ValueError as error:
        raise PlanError(f"{name}: {error}") from None
    # The schema comes first: the keys of another version are unknown to this one.
    schema = tables.get("schema", SCHEMA)
    if isinstance(schema, int | float) and schema != SCHEMA:
        raise _refused(text, name, ["schema"], f"{schema}; this version reads {SCHEMA}")
    try:
        plan = msgspec.convert(tables, Plan)
    except msgspec.ValidationError as error:
        keys, what = explained(str(error), tables)
        if "matching regex" in what:
            what = "not a site id; one looks like module:function/kind~hash#n"
        raise _refused(text, name, keys, what) from None
    seen: set[str] = set()
    for index, site in enumerate(plan.site):
        here = ["site", f"[{index}]"]
        if site.id in seen:
            raise _refused(text, name, [*here, "id"], f"{short(site.id)!r} stands twice")
        seen.add(site.id)
        if known is not None and site.scheme not in known:
            what = unknown_scheme(site.scheme, known)
            raise _refused(text, name, [*here, "scheme"], what)
    return plan


def load(path: str | os.PathLike[str], known: Collection[str] | None = None) -> Plan:
    """Read a plan file. Raises PlanError if it cannot be read or is malformed."""
    if not os.fspath(path):
        raise PlanError("the name of the plan file is empty")
    try:
        return loads(_read(path), str(path), known)
    except PlanError as error:
        if Path(path).suffix in ("", ".toml"):
            raise
        raise PlanError(f"{error} (a plan is a .toml file)") from None


def dumps(plan: Plan, previous: str = "") -> str:
    """The plan as TOML. Comments, layout and newlines of `previous`, an older plan, are kept.

    Its inline tables, and tables in pieces, are written anew. Bytes that are not UTF-8 are escaped.
    """
    import tomlkit  # not above: every program under a plan reads it, few write one

    newline = "\r\n" if "\r\n" in previous else "\n"
    document = tomlkit.parse(previous.replace("\r\n", "\n"))
    tables = msgspec.to_builtins(plan)
    document["schema"] = plan.schema
    if plan.guard != "on":
        document["guard"] = plan.guard
    provenance = tables.get("provenance", {})
    _put(document, "provenance", _updated(document.get("provenance"), provenance))
    for name, key in (("package", "name"), ("criterion", "name"), ("site", "id")):
        old = {row[key]: row for row in document.get(name, [])}
        array = tomlkit.aot()
        for row in tables.get(name, []):
            array.append(_updated(old.get(row[key]), row))
        _put(document, name, array)
    text = tomlkit.dumps(document).replace("\n", newline)
    return re.sub("[\ud800-\udfff]", lambda byte: rf"\\u{ord(byte[0]):x}", text)


def save(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan file in one step, and keep the comments of an existing one.

    Raises PlanError if the file cannot be written, could not be read again, or would replace a file
    that is not a plan; the old file is then unchanged.
    """
    previous = _read(path) if os.path.exists(path) else ""
    try:
        loads(previous, str(path))
    except PlanError as error:
        raise PlanError(f"{error}; mend or remove this file first") from None
    text = dumps(plan, previous)
    loads(text, f"{path} (not written)")
    try:
        files.replace(Path(path), text.encode())
    except OSError as error:
        raise PlanError(f"{path}: cannot write the plan: {error.strerror}") from None


def _read(path: str | os.PathLike[str]) -> str:
    place = Path(path)
    try:
        # Opening a named pipe would wait for a writer. A shell's <(…) has one.
        if place.is_fifo() and place.parts[1:3] not in (("dev", "fd"), ("dev", "stdin")):
            raise PlanError(f"{path}: cannot read the plan: it is a named pipe")
        with place.open("rb") as file:
            return decoded(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise PlanError(f"{path}: cannot read the plan: {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from None


def _updated(table: object, row: dict[str, Any]) -> "Table":
    """A table updated in place, which keeps comments; a new one if it is not a plain table."""
    import tomlkit
    from tomlkit.items import Table

    if not isinstance(table, Table) or table.is_super_table():  # the latter: has no header
        table = tomlkit.table()
    for key in list(table):
        # A mapping moves to the end, as a table: nothing else may follow its header.
        if key not in row or (isinstance(row[key], dict) and table[key] != row[key]):
            del table[key]
    for key, value in row.items():
        if table.get(key) != value:
            table[key] = value
    return table


def _put(document: "TOMLDocument", name: str, item: "Table | AoT") -> None:
    """Append an item to the document if it is not there yet and not empty."""
    if document.get(name) is item:
        return
    if name in document:
        del document[name]
    if item:
        document[name] = item


def _refused(text: str, name: str, keys: list[str], what: str) -> PlanError:
    return PlanError(f"{name}:{line_of(text, keys)}: key {shown(keys)!r}: {what}")
