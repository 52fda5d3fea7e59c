"""What is wrong with an input is one clear line, whatever the command; never a traceback."""

import os
import zipfile
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

PRODUCT = "import numpy as np\na = np.eye(3)\nb = a @ a\n"
PLAN = '[[criterion]]\nname = "b"\nmetric = "max"\nbudget = 1.0\n'
NOISE = bytes(range(256)) * 4
FILES: dict[str, bytes] = {
    "s.py": PRODUCT.encode(),
    "binary.py": NOISE,
    "latin.py": 'x = "\xff" @ b\n'.encode("latin-1"),
    "null.py": b"\0import os\n",
    "zeros.py": b"\x7fELF\xff\0\0",
    "p.toml": PLAN.encode(),
    "binary.toml": NOISE,
    "syntax.toml": b"site = [\n",
    "scheme.toml": b'[[site]]\nid = "s:f/matmul~1#0"\nscheme = "int8x7"\n',
    "binary.ipynb": NOISE,
    "object.ipynb": b"{}",
    "damaged.toml": PLAN.encode(),
    "damaged.trials.jsonl": NOISE,
}
TUNE = ("tune", "--error", "1", "--backend", "reference")

# Each with a part of the line that says what is wrong.
INPUTS: list[tuple[tuple[str, ...], str]] = [
    (("rewrite", "--check", "folder.py/x.py"), "folder.py/x.py: no such file"),
    (("rewrite", "--check", "binary.py"), "binary.py: cannot be decoded"),
    (("rewrite", "-o", "folder", "s.py"), "folder: cannot write: is a directory"),
    (("rewrite", "-o", "nowhere/x.py", "s.py"), "nowhere/x.py: cannot write"),
    (("rewrite", "--scheme", "int8x7", "s.py"), "did you mean 'int8x"),
    (("rewrite", "--plan", "binary.toml", "s.py"), "binary.toml: not UTF-8"),
    (("rewrite", "--check", "binary.ipynb"), "binary.ipynb: not a notebook"),
    (("rewrite", "--check", "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    (("sites", "latin.py"), "latin.py: cannot be decoded"),
    (("sites", "loop.py"), "loop.py: too many levels"),
    (("sites", "zeros.py"), "zeros.py: cannot be decoded: it has NUL bytes, so it is no source"),
    (("sites", "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    (("sites", "object.ipynb"), "object.ipynb: a notebook of format"),
    (("sites", "-j", "0", "s.py"), "0 is not in the range"),
    (("sites",), "Missing argument"),
    (("graph", "-o", "s.py/x.dot", "s.py"), "s.py/x.dot: cannot write"),
    (("graph", "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    (("graph", "--format", "png", "s.py"), "'png' is not one of"),
    (("run", "folder"), "folder: no __main__.py in it"),
    (("run", "--json", "nowhere/x.json", "s.py"), "nowhere/x.json: cannot write"),
    (("run", "--backend", "abacus", "s.py"), "unknown backend 'abacus'"),
    (("run", "-m", "no.such"), "-m no.such: No module named"),
    (("run", "--plan", "", "s.py"), "the name of the plan file is empty"),
    (("run", "object.ipynb"), "object.ipynb: a notebook of format"),
    (("run", "nowhere.py"), "nowhere.py: no such file"),
    (("run", "--plan", "nowhere.toml", "s.py"), "nowhere.toml: cannot read the plan"),
    (("run",), "give a SCRIPT"),
    (("estimate", "--error", "x", "s.py"), "--error is a number of at least 0, not x"),
    (("estimate", "nowhere.py"), "nowhere.py: no such file"),
    (("estimate", "nowhere.ipynb"), "nowhere.ipynb: no such file"),
    (("estimate",), "SCRIPT"),
    (("estimate", "--time-limit", "0", "s.py"), "--time-limit"),
    (("estimate", "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    (("estimate", "-c", "print(1)"), "a script or -m MODULE, not -c CODE"),
    (("estimate", "--error", "1e-400", "s.py"), "--error 1e-400: the smallest number above 0"),
    (("estimate", "-"), "a script or -m MODULE, not standard input"),
    (("tune", "s.py"), "give --error BUDGET"),
    (("tune", "--error", "nan", "s.py"), "--error is a number of at least 0, not nan"),
    (("tune", "--error", "inf", "s.py"), "--error is a number of at least 0, not inf"),
    (("tune", "--error", "b=", "s.py"), "--error b=: it takes VALUE"),
    ((*TUNE, "--time-limit", "0", "s.py"), "--time-limit is a number of seconds, not 0"),
    ((*TUNE, "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    ((*TUNE, "nowhere.py"), "nowhere.py: no such file"),
    ((*TUNE, "."), "no __main__.py in it"),
    ((*TUNE, "-m", "no_such"), "-m no_such: no such module"),
    ((*TUNE, "--compare", "z.npy", "s.py"), "z.npy"),
    ((*TUNE, "--criterion", "x", "s.py"), "unknown criterion 'x'"),
    ((*TUNE, "-o", "syntax.toml", "s.py"), "syntax.toml: not valid TOML"),
    (("tune", "--error", "1", "--backend", "x", "s.py"), "reference, cuda"),
    (("tune", "--error", "1", "--backend", "cuda", "s.py"), "cuda"),
    ((*TUNE, "object.ipynb"), "object.ipynb: a notebook of format"),
    ((*TUNE, "-c", "print(1)"), "a script or -m MODULE, not -c CODE"),
    ((*TUNE, "--compare", "c", "s.py"), "s.py: has no numeric value for c"),
    ((*TUNE, "--criterion", "no.mod:f", "s.py"), "criterion no.mod:f: No module named 'no'"),
    ((*TUNE, "--criterion", "os:nofun", "s.py"), "criterion os:nofun: the module has no 'nofun'"),
    ((*TUNE, "-o", "folder", "s.py"), "folder: cannot write a plan there"),
    (("tune", "--error", "1", "--device", "abacus", "s.py"), "no device model is known"),
    (("verify", "scheme.toml", "s.py"), "scheme.toml:3: "),
    (("verify", "p.toml", "app.pyz"), "app.pyz: an archive; unpack it, and give the folder"),
    (("verify", "s.py", "s.py"), "(a plan is a .toml file)"),
    (("verify", "--error", "1", "p.toml", "-c", "pkg"), "a script or -m MODULE, not -c"),
    (("verify", "--backend", "x", "p.toml", "s.py"), "reference, cuda"),
    (("verify", "--criterion", "x", "p.toml", "s.py"), "unknown criterion 'x'"),
    (("report", "p.toml"), "p.toml: no tuning is kept beside it"),
    (("report", "nowhere.toml"), "nowhere.toml: cannot read the plan"),
    (("report", "app.pyz"), "app.pyz: not UTF-8 text (a plan is a .toml file)"),
    (("report", "damaged.toml"), "damaged.trials.jsonl: not a file of trials"),
    (("plan", "show", "folder"), "folder: cannot read the plan"),
    (("plan", "validate", "syntax.toml"), "syntax.toml: not valid TOML"),
    (("bogus",), "No such command 'bogus'"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", PRODUCT)
    (tmp_path / "loop.py").symlink_to("loop.py")
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="words of this system's errors")
@pytest.mark.parametrize(("words", "wanted"), INPUTS, ids=[" ".join(words) for words, _ in INPUTS])
def test_one_clear_line(
    folder: Path, mixpert: Mixpert, words: tuple[str, ...], wanted: str
) -> None:
    before = set(os.listdir(folder))
    said = mixpert(*words)
    assert said.code == 2, said
    assert not said.out or words[0] in ("sites", "graph")  # these go on with other files
    assert set(os.listdir(folder)) - before <= {"s.mixpert.trials.jsonl"}
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    lines = [line for line in said.err.splitlines() if line]
    if lines[0].startswith("Usage: "):  # and a line that names --help
        lines = lines[2:]
    (line,) = lines
    assert line.startswith(("mixpert: ", "Error: "))
    assert wanted in line


def test_a_plan_of_nothing_says_so(folder: Path, mixpert: Mixpert) -> None:
    (folder / "empty.toml").write_text("")
    assert mixpert("plan", "show", "empty.toml").out == "no call site\n"


@pytest.mark.parametrize("columns", ["0", "1", "40", "x"])
def test_a_table_can_be_read_whatever_width_is_claimed(
    folder: Path, mixpert: Mixpert, columns: str
) -> None:
    said = mixpert("sites", "s.py", COLUMNS=columns)
    assert said.code == 0
    assert "s.py:3:5" in said.out
    assert "a @ a" in said.out
