"""Command lines on files that are sound or are not: exit code, and what is said; never a traceback.

What is wrong with an input is one clear line on stderr, whatever the command.
"""

import os
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import click
import pytest

import mixpert_py
from mixpert_py.cli import cli
from mixpert_py.runtime.backends import BACKENDS
from mixpert_py.runtime.reasons import MEANING, Reason
from mixpert_py.tuner.criterion import CRITERIA
from tests.mixpert_py.command import ROOT, Mixpert, Said, Shell, forked
from tests.mixpert_py.programs import FILES

TUNE = "tune --error 1 --backend reference"
# A command line | its exit code | a part of what it says. "2+": lines of the program follow the one
# that says what is wrong. T: the words of TUNE.
TABLE = """
rewrite none.py | 0 | no matrix product to rewrite
rewrite --check s.py | 1 | s.py: would be rewritten
rewrite --check s.py open.py | 2 | open.py: line 1: '(' was never closed
rewrite --check old.py | 2 | old.py: line 2: Missing parentheses
rewrite --check folder.py/x.py | 2 | folder.py/x.py: no such file
rewrite --check binary.py | 2 | binary.py: cannot be decoded
rewrite -o folder s.py | 2 | folder: cannot write: is a directory
rewrite -o nowhere/x.py s.py | 2 | nowhere/x.py: cannot write
rewrite --scheme int8x7 s.py | 2 | did you mean 'int8x
rewrite --plan binary.toml s.py | 2 | binary.toml: not UTF-8
rewrite --check binary.ipynb | 2 | binary.ipynb: not a notebook
rewrite --check app.pyz | 2 | app.pyz: cannot be decoded: it has NUL bytes
rewrite -w --diff s.py | 2 |
rewrite -w -o x.py s.py | 2 |
rewrite --check -o x.py s.py | 2 |
rewrite -o x.py s.py none.py | 2 |
sites s.py | 0 | a @ a
sites . | 0 |
sites s.py open.py | 2 | open.py: line 1: '(' was never closed
sites odd.py | 2 | nested more than 250 levels; the file is skipped
sites latin.py | 2 | latin.py: cannot be decoded
sites loop.py | 2 | loop.py: too many levels
sites zeros.py | 2 | zeros.py: cannot be decoded: it has NUL bytes, so it is no source
sites object.ipynb | 2 | object.ipynb: a notebook of format
sites | 2 | Missing argument
graph s.py | 0 |
graph s.py open.py | 2 | open.py: line 1
graph nowhere.py | 2 | nowhere.py: no such file
graph --format png s.py | 2 | 'png' is not one of
run s.py | 0 |
run open.py | 1 | open.py: line 1: '(' was never closed
run folder | 2 | folder: is a directory
run --json nowhere/x.json s.py | 2 | nowhere/x.json: cannot write
run --json "" s.py | 2 | : cannot write: is a directory
run --backend abacus s.py | 2 | unknown backend 'abacus'
run --profle s.py | 2 | Did you mean '--profile'
run -m no.such | 2 | -m no.such: no such module
run --plan '' s.py | 2 | the name of the plan file is empty
run object.ipynb | 2 | object.ipynb: a notebook of format
run nowhere.py | 2 | nowhere.py: no such file
run --plan nowhere.toml s.py | 2 | nowhere.toml: cannot read the plan
run --plan scheme.toml s.py | 2 | scheme.toml:3: key
run | 2 | give a SCRIPT
estimate --time-limit 30 s.py | 0 | s.py: 1 product:
estimate none.py | 1 | none.py: makes no matrix product in its own process that could be rewritten
estimate uncalled.py | 1 | uncalled.py: makes no matrix product in its own process that could be
estimate --json none.py | 1 | null
estimate uses_odd.py | 1 | nested more than 250 levels; the file is skipped
estimate open.py | 2 | open.py: line 1
estimate fails.py | 2+ | exit code 3
estimate --time-limit 2 hangs.py | 2+ | still running after 2 s
estimate --error x s.py | 2 | --error is a number from 0 to 1e+300, not x
estimate nowhere.py | 2 | nowhere.py: no such file
estimate | 2 | SCRIPT
estimate --time-limit 0 s.py | 2 | --time-limit
T s.py | 0 | plan written to s.mixpert.toml
tune --error 1e-9 --backend reference noisy.py | 1 | differs by
tune --error 1 none.py | 1 | none.py: makes no matrix product that could be tuned
T fails.py | 2+ | exit code 3
T kills.py | 2+ | signal 9
T --time-limit 3 hangs.py | 2+ | still running after 3 s
T nan.py | 2 | finite
T nothing_left.py | 2+ | TypeError
T open.py | 2 | open.py: line 1
T odd.py | 2 | nested more than 250 levels; the file is skipped
tune s.py | 2 | give --error BUDGET
tune --error nan s.py | 2 | --error is a number from 0 to 1e+300, not nan
tune --error b= s.py | 2 | --error b=: it takes VALUE
T --time-limit nan s.py | 2 | Invalid value for '--time-limit': nan
T --margin 1 s.py | 2 | --margin
T app.pyz | 2 | app.pyz: cannot be decoded: it has NUL bytes
T nowhere.py | 2 | nowhere.py: no such file
T . | 2 | is a directory
T -m no_such | 2 | -m no_such: no such module
T --compare z.npy s.py | 2 | z.npy
T --compare c s.py | 2 | s.py: has no numeric value for c
T --criterion x s.py | 2 | unknown criterion 'x'
T --criterion b=x s.py | 2 | unknown criterion 'x'
T --error lost=1 s.py | 2 | no value 'lost' to judge; the program shows
tune --error lost=1 --criterion b=max s.py | 2 | --error b=BUDGET
T --criterion no.mod:f s.py | 2 | criterion no.mod:f: ModuleNotFoundError: No module named 'no'
T --criterion os:nofun s.py | 2 | os:nofun: AttributeError: module 'os' has no attribute 'nofun'
T -o syntax.toml s.py | 2 | syntax.toml: not valid TOML
T -o deep.toml s.py | 2 | deep.toml
T -o folder s.py | 2 | folder: cannot write a plan there
tune --error 1 --backend x s.py | 2 | reference, cuda
tune --error 1 --backend cuda s.py | 2 | cuda
tune --error 1 --device abacus s.py | 2 | no device model is known
tune --error 1 --device t4 s.py | 2 | compute capability 7.5
tune --error 1 --device h200 --backend cuda s.py | 2 | --device predicts times
T object.ipynb | 2 | object.ipynb: a notebook of format
T --hold-out "'" s.py | 2 | --hold-out: No closing quotation
T --hold-out '--seed {seed}' s.py | 2 | --seeds FIRST..LAST and {seed} in --hold-out go together
T --seeds 1..2 s.py | 2 | --seeds FIRST..LAST and {seed} in --hold-out go together
T --hold-out '{seed}' --seeds 2..1 s.py | 2 | such as 1..59, not 2..1
T --hold-out '{seed}' --seeds 0..10000 s.py | 2 | 1 to 10,000 seeds
T --error 2 --hold-out 1 s.py | 2 | --hold-out judges one budget
T --error 2 --error b=1 s.py | 2 | several budgets: give each as a bare --error BUDGET
tune --error 1e-3 --error 1e-4 --error 0.001 s.py | 2 | several budgets: give each as a bare
T --error 2 -o /dev/stdout s.py | 2 | these budgets would have one plan file
T --error 1.0000001 s.py | 2 | these budgets would have one plan file
T --margin 1.5 s.py | 2 | a share is such as 1% or 0.01, not 1.5
T --margin x% s.py | 2 | a share is such as 1% or 0.01, not x%
verify s.mixpert.toml s.py | 0 | s.mixpert.toml: holds
verify s.mixpert.toml none.py | 1 | does not hold: it has none of the plan's call sites
verify s.mixpert.toml fails.py | 2+ | exit code 3
verify scheme.toml s.py | 2 | scheme.toml:3: key
verify p.toml app.pyz | 2 | app.pyz: cannot be decoded: it has NUL bytes
verify s.py s.py | 2 | (a plan is a .toml file)
verify --backend x p.toml s.py | 2 | reference, cuda
verify --criterion x p.toml s.py | 2 | unknown criterion 'x'
verify p.toml --eror=1 s.py | 2 | (Did you mean one of: '--error'
verify s.mixpert.toml --criterion b=max s.py | 2 | --error b=BUDGET
verify s.mixpert.toml --compare zzz s.py | 2 | zzz
verify q.toml s.py | 2 | no value 'q' to judge; the program shows b
verify bare.toml s.py | 2 | bare.toml: it has no budget; give one (--error
report s.mixpert.toml | 0 |
report other.toml | 2 | other.toml: no tuning is kept beside it
report p.toml | 2 | p.toml: no tuning is kept beside it
report app.pyz | 2 | app.pyz: not UTF-8 text (a plan is a .toml file)
report damaged.toml | 2 | damaged.trials.jsonl: not a file of trials
report p.toml --html x --json | 2 |
report folder | 2 | folder: cannot read the plan
report scheme.toml | 2 | scheme.toml:3: key
bogus | 2 | No such command 'bogus'
rewritee s.py | 2 | Did you mean 'rewrite'
"""
ROWS = [line.split(" | ") for line in TABLE.replace(" |\n", " | \n").strip().splitlines()]
BESIDE = {"uses_odd.py": "odd.py", "older.py": "broken.py", "damaged.toml": "damaged.trials.jsonl"}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with s.py, its plan and its record: one tuning for all rows."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "s.py").write_bytes(str(FILES["s.py"]).encode())
    said = forked("mixpert_py", *TUNE.split(), "s.py", folder=folder)
    assert said.code == 0, said
    return folder


def put_files(sh: Shell, tuned: Path, line: str) -> None:
    """Put the files that a command line names into the folder, and those that they need."""
    words = {word for name in shlex.split(line) for word in (name, BESIDE.get(name, ""))}
    sh.write({name: FILES[name] for name in (*sorted(words & FILES.keys()), "pyproject.toml")})
    (sh.folder / "folder").mkdir()
    if "loop.py" in words:
        (sh.folder / "loop.py").symlink_to("loop.py")
    if "app.pyz" in words:
        with zipfile.ZipFile(sh.folder / "app.pyz", "w") as archive:
            archive.writestr("__main__.py", FILES["s.py"])
    if words & {"s.mixpert.toml", "other.toml", "bare.toml", "q.toml"}:
        shutil.copytree(tuned, sh.folder, dirs_exist_ok=True)
        plan = sh.read("s.mixpert.toml")
        bare = re.sub(r"\[\[criterion\]\].*?\n(?=\[)", "", plan, flags=re.DOTALL)
        other = plan.replace('name = "b"', 'name = "q"')
        sh.write({"other.toml": plan, "bare.toml": bare, "q.toml": other})


@pytest.mark.skipif(os.name == "nt", reason="words of this system's errors")
@pytest.mark.parametrize(("line", "code", "part"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row(sh: Shell, tuned: Path, line: str, code: str, part: str) -> None:
    line = re.sub("^T ", f"{TUNE} ", line)
    put_files(sh, tuned, line)
    before = set(os.listdir(sh.folder))
    said = sh(line, int(code[0]))
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    assert "mixpert_py" not in said.err
    if code[0] != "2":
        assert part in " ".join((said.out + said.err).split())
        return
    assert not said.out or line.startswith(("sites", "graph", "rewrite --check s.py"))
    assert set(os.listdir(sh.folder)) - before <= {
        *("s.mixpert.trials.jsonl", "fails.mixpert.trials.jsonl", "kills.mixpert.trials.jsonl"),
        *("hangs.mixpert.trials.jsonl", "nan.mixpert.trials.jsonl"),
        "nothing_left.mixpert.trials.jsonl",
    }
    lines = [line for line in said.err.splitlines() if line]
    if lines[0].startswith("Usage: "):  # and a line that names --help
        lines = lines[2:]
    assert lines[0].startswith(("mixpert: ", "Error: "))
    assert code == "2+" or len(lines) == 1, lines
    assert part in " ".join(lines)


def exit_codes() -> dict[str, tuple[str, ...]]:
    """Command → what 0, 1 and 2 mean of it, in docs/commands.md."""
    text = (ROOT / "docs" / "commands.md").read_text("utf-8").partition("## Exit codes")[2]
    rows = re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", text.partition("\n## ")[0], re.M)
    return {name: tuple(cells.split(" | ")) for name, cells in rows}


def test_every_command_has_exit_codes_and_each_has_a_row() -> None:
    names = set()
    for name in cli.commands:
        command = cli.get_command(click.Context(cli), name)
        one_row = not isinstance(command, click.Group)
        names |= {name} if one_row else {f"{name} {further}" for further in command.commands}
    assert exit_codes().keys() == names
    stated = {
        (name, code)
        for name, row in exit_codes().items()
        for code in range(3)
        if row[code] != "–" and name not in ("doctor", "probe")  # as it is with this machine
    }
    lines = [(f"{re.sub('^T ', 'tune ', line)} ", int(code[0])) for line, code, _ in ROWS]
    made = {(name, code) for line, code in lines for name in names if line.startswith(f"{name} ")}
    assert stated <= made


def test_doctors_code_is_what_it_found(sh: Shell, mixpert: Mixpert) -> None:
    said = mixpert("doctor", COLUMNS="500")
    missing = any(line.rstrip().endswith("missing") for line in said.out.splitlines())
    assert said.code == (2 if missing else 0)
    found = sh.json("doctor --json", said.code)
    assert found["mixpert-py"] == mixpert_py.__version__
    assert ("missing" in found.values()) == missing
    printed = " ".join(said.out.split())  # brackets included, as in `pip install '.[cuda13]'`
    assert [what for what in found.values() if " ".join(what.split()) not in printed] == []


def test_helps_and_wrong_usage_of_every_command(sh: Shell) -> None:
    for name in exit_codes():
        sh(f"{name} --help")
        sh(f"{name} --no-such-option", 2, err="No such option")
    for name in ("run", "tune", "verify"):
        sh(f"{name} --help", out=tuple(f"{backend}: " for backend in BACKENDS))
    words = re.split(r"[\s,]+", sh("tune --help").out)
    assert set(CRITERIA) <= set(words)
    assert sh("--version") == Said(0, f"mixpert, version {mixpert_py.__version__}\n", "")


@pytest.mark.parametrize("columns", ["0", "1", "40", "x"])
def test_a_table_can_be_read_whatever_width_is_claimed(sh: Shell, columns: str) -> None:
    sh.write({"s.py": FILES["s.py"]})
    sh("sites s.py", out=("s.py:3:5", "a @ a"), COLUMNS=columns)


PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
matrix = rng.standard_normal((400, 400))
result_of_the_first_of_the_products = matrix @ matrix
last = np.dot(result_of_the_first_of_the_products, matrix[:, None, 0:400].reshape(400, 400))
"""
PATH = "folder_of_programs/program.py"
PLAN = "folder_of_programs/program.mixpert.toml"
OPTIONS = ["--error", "1e-4", "--backend", "reference"]


@pytest.mark.parametrize("width", [60])
def test_tables_fit_narrow_terminals_and_keep_places(
    tmp_path: Path, mixpert: Mixpert, width: int
) -> None:
    (tmp_path / PATH).parent.mkdir()
    (tmp_path / PATH).write_text(PROGRAM)

    def printed(*words: str) -> str:
        said = mixpert(*words, COLUMNS=str(width))
        assert said.code == 0, said
        return said.err if "--profile" in words else said.out

    texts = {
        "run": printed("run", "--profile", PATH),
        "tune": printed("tune", *OPTIONS, PATH),
        "verify": printed("verify", PLAN, PATH),
        "report": printed("report", PLAN),
        "estimate": printed("estimate", "--time-limit", "30", PATH),
        "doctor": printed("doctor"),
    }
    assert f"plan written to {PLAN}" in texts["tune"]
    assert texts["verify"].startswith(f"{PLAN}: holds: ")
    for command, text in texts.items():
        assert "…" not in text, command
        if command in ("run", "tune", "report", "estimate"):
            assert "matrix @ matrix" in text
        for line in text.splitlines():
            # Sentences with a path, a command or figures to copy are left to the terminal to wrap.
            is_sentence = line.startswith((PLAN, "  ", "plan written", "Next: "))
            assert len(line.rstrip()) <= width or is_sentence, (command, line)


def test_every_reason_of_a_profile_is_explained(tmp_path: Path, mixpert: Mixpert) -> None:
    assert set(MEANING) == set(Reason)
    (tmp_path / "s.py").write_text("import numpy as np\na = np.eye(3)\nb = a @ a\n")
    words = ["run", "--profile", "--scheme", "float32", "s.py"]
    said = mixpert(*words, COLUMNS="200").err
    table, _, below = said.partition("\n\n")
    assert "too small (1)" in table
    assert "spread" in table
    names = [line.partition(": ")[0] for line in below.splitlines()]
    assert names == ["spread, bits", "too small"]
    assert f"too small: {MEANING[Reason.TOO_SMALL]}" in below
    narrow = mixpert(*words, COLUMNS="40").err
    assert "spread" not in narrow


def test_a_line_of_an_imported_module_comes_with_its_file(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "ours.py").write_text("def square(x):\n    return x @ x\n")
    (tmp_path / "s.py").write_text(
        "import numpy as np\nimport ours\nprint(ours.square(np.ones((1000, 1000))).sum())\n"
    )
    assert "ours.py:2  x @ x" in mixpert("run", "--profile", "s.py").err
    assert "ours.py:2  x @ x" in mixpert("estimate", "s.py").out
