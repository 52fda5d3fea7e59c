"""The small public programs of `programs.toml`, and the repository's samples, as files to be run.

Nothing of a public program is in this repository: its files come from GitHub, or from a folder, are
checked, and are changed as `programs.toml` says.
"""

import ast
import hashlib
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import click
import msgspec

from mixpert_py.errors import MixPertError

MANIFEST = Path(__file__).with_name("programs.toml")
SAMPLES = Path(__file__).parents[2] / "samples"
RAW = "https://raw.githubusercontent.com"
SECONDS_FILE = "MIXPERT_PROGRAM_SECONDS"  # the variable that names the file CLOCK writes
# Written into each script: what it prints at exit is the time from its own first statement on.
CLOCK = f"""\
import atexit as _atexit, os as _os, time as _time
_atexit.register(lambda start: open(_os.environ["{SECONDS_FILE}"], "w").write(
    str(_time.perf_counter() - start)), _time.perf_counter())
"""

# What the samples that are done in a moment are given, so that a run takes some seconds.
LARGER = {
    "batched16.py": "--size 65536 --steps 40",
    "bert.py": "--size 64",
    "cholesky.py": "--size 8192",
    "circuit.py": "--depth 60",
    "comet.py": "--size 1536",
    "gp.py": "--size 4096 --asked 2048",
    "hpl_ai.py": "--size 8192",
    "kalman.py": "--steps 45",
    "kmeans.py": "--size 16384 --iterations 60",
    "knn.py": "--size 16384 --asked 8192",
    "perceptron.py": "--size 32768",
}

# Of the commands that run them.
only_option = click.option(
    "--only", multiple=True, metavar="NAME", help="This program, several times."
)
sources_option = click.option(
    "--sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The public programs, as owner/name/commit/path. Default: from GitHub.",
)

Edit = tuple[str, str]


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script, where its files are from, and how it is run.

    arrays: the package whose arrays it multiplies. files: the path of each file in the repository →
    its SHA-256. edits: texts of the script and their replacements; append: lines that follow it.
    """

    name: str
    field: str
    arrays: str
    repository: str
    commit: str
    licence: str
    script: str
    files: dict[str, str]
    arguments: list[str] = []
    edits: list[Edit] = []
    cpu_edits: list[Edit] = []
    gpu_edits: list[Edit] = []
    append: str = ""

    @property
    def address(self) -> str:
        """The page that shows the script."""
        return f"https://github.com/{self.repository}/blob/{self.commit}/{quote(self.script)}"

    def prepare(self, folder: Path, sources: Path | None, gpu: bool) -> Path:
        """Put the files into a folder, and return the script, changed for this machine.

        sources: a folder with owner/name/commit/path; None: GitHub. Raises MixPertError where a
        file is absent, or is another than the one that was chosen.
        """
        for path, digest in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._contents(path, digest, sources))
        script = folder / self.script
        edits = [*self.edits, *(self.gpu_edits if gpu else self.cpu_edits)]
        script.write_text(edited(script.read_text("utf-8"), edits) + self.append, "utf-8")
        return script

    def _contents(self, path: str, digest: str, sources: Path | None) -> bytes:
        place = f"{self.repository}/{self.commit}/{path}"
        try:
            if sources is None:
                with urlopen(f"{RAW}/{quote(place)}", timeout=60) as answer:
                    contents: bytes = answer.read()
            else:
                contents = (sources / place).read_bytes()
        except OSError as error:
            raise MixPertError(f"{place}: {error}") from error
        if hashlib.sha256(contents).hexdigest() != digest:
            raise MixPertError(f"{place} is another file than the one that was chosen")
        return contents


class Sample(msgspec.Struct, frozen=True):
    """One of the repository's samples; name: its file."""

    name: str
    arguments: list[str] = []

    @property
    def address(self) -> str:
        """The sample's place in the repository, as docs/measured.md links to it."""
        return f"../samples/{self.name}"

    def prepare(self, folder: Path, sources: Path | None, gpu: bool) -> Path:
        """Put the sample into a folder, and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / self.name
        script.write_text(edited((SAMPLES / script.name).read_text("utf-8"), []), "utf-8")
        return script


def plain(case: Any) -> Any:
    """Return a case of a manifest as JSON keeps it, to be compared with what was kept."""
    return msgspec.json.decode(msgspec.json.encode(case))


def public(gpu: bool, manifest: Path = MANIFEST) -> list[Program]:
    """The public programs for a machine with a GPU, or without: those in PyTorch run on both."""
    entries = tomllib.loads(manifest.read_text("utf-8"))["program"]
    programs = msgspec.convert(entries, list[Program])
    return [one for one in programs if one.arrays in ("torch", "cupy" if gpu else "numpy")]


def samples(gpu: bool) -> list[Sample]:
    """The samples, on CuPy's arrays where there is a GPU: there, those alone that take `--gpu`."""
    found = []
    for path in sorted(SAMPLES.glob("*.py")):
        text = path.read_text("utf-8")
        if "__main__" in text and (not gpu or '"--gpu"' in text):
            larger = LARGER.get(path.name, "").split()
            found.append(Sample(path.name, ["--gpu", *larger] if gpu else larger))
    return found


def edited(text: str, edits: list[Edit]) -> str:
    """A script with each text replaced that the edits name, and with the clock at its beginning.

    Raises MixPertError where a text is not in the script.
    """
    for old, new in edits:
        if old not in text:
            raise MixPertError(f"{old!r} is not in the script")
        text = text.replace(old, new)
    return with_prologue(text, CLOCK)


def with_prologue(text: str, lines: str) -> str:
    """A script with more lines before its first statement."""
    before = text.splitlines(keepends=True)
    first = 0
    for node in ast.parse(text).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and getattr(node, "module", None) != "__future__":
            break
        first = node.end_lineno or 0
    return "".join([*before[:first], lines, *before[first:]])
