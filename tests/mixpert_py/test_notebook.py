"""`%%mixpert` in a real IPython shell."""

import atexit
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

import mixpert_py
from mixpert_py.config import find_plan, notebook_module, plan_beside
from mixpert_py.notebook import CellSyntaxError
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan, Site, load, save
from mixpert_py.runtime.context import Context, current, default, set_default, use
from tests.mixpert_py.squares import EXACT, A, is_emulated

COLOR = re.compile("\x1b\\[[0-9;]*m")

Run = Callable[[str], ExecutionResult]
Read = pytest.CaptureFixture[str]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell with the extension loaded, and `a` and `np` there."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell replaces it
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.chdir(tmp_path)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.user_ns.update(a=A, np=np)
    assert shell.run_cell("%load_ext mixpert_py").success
    before = current()
    yield shell
    set_default(before)
    shell.atexit_operations()
    atexit.unregister(shell.atexit_operations)


@pytest.fixture
def run(shell: InteractiveShell) -> Run:
    def call(cell: str) -> ExecutionResult:
        return shell.run_cell(cell, store_history=True)

    return call


def value(run: Run, cell: str) -> Any:
    with use(Context(backend="reference")):
        result = run(cell)
    result.raise_error()
    return result.result


SCHEME = "%%mixpert --scheme int8x6"
EMULATED = {
    "a @ a": False,
    "%%mixpert\na @ a": False,
    f"{SCHEME}\na @ a": True,
    "name = 'int8x6'\n": None,
    "%%mixpert --scheme $name\na @ a": True,  # the magic's line may name variables
    f"{SCHEME}\n    b = a @ a\n    b": True,  # indented cells are dedented as ever
    f"{SCHEME}\n%%time\na @ a": False,  # a cell magic below gets its cell
    f"%%time\n{SCHEME}\na @ a": True,
    # Names of other cells are known.
    f"{SCHEME}\nnp.einsum('ij,jk', a, a)": True,
    f"{SCHEME}\nnp.matmul(a, a)": True,
    f"{SCHEME}\nnp.tensordot(a, a, 1)": True,
    f"{SCHEME}\nnp.dot(a, a)": True,
    f"{SCHEME}\nnp.linalg.multi_dot([a, a])": True,
}


def test_cells_are_rewritten(run: Run, capsys: Read) -> None:
    for cell, wanted in EMULATED.items():
        found = value(run, cell)
        assert wanted is None or is_emulated(found) == wanted, cell
    assert capsys.readouterr().out.count("Wall time") == 2
    for rest in ("", " --profile"):
        assert is_emulated(run(f"{SCHEME} --backend reference{rest}\na @ a").result)


def test_a_console_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/x/console-1")
    assert notebook_module({}) is None
    assert notebook_module({"__vsc_ipynb_file__": "/home/x/a.ipynb"}) == "a"


def test_the_last_expression_is_the_cells_value(run: Run, capsys: Read) -> None:
    assert value(run, "%%mixpert\nb = 1\nb + 1") == 2
    assert "Out[1]: 2" in capsys.readouterr().out
    assert value(run, "%%mixpert\nb + 1;") is None
    assert value(run, "%%mixpert\nc = 5") is None
    assert value(run, "_") == 2
    assert value(run, "%%mixpert\n# nothing\n") is None


def test_magics_and_commands_keep_working(run: Run, capsys: Read) -> None:
    cell = "%%mixpert --scheme int8x6\nx = !echo one\n!echo {1 + 1}\n%time b = a @ a\nx, b, a @ a"
    (said, timed, ours) = value(run, cell)
    assert said == ["one"]
    assert (is_emulated(timed), is_emulated(ours)) == (False, True)
    out = capsys.readouterr().out
    assert out.startswith("2")
    assert "Wall time" in out


FAILING = [("x = = 3", "x = = 3"), ("if a:\nb", "b"), ("return 3", "return 3")]


@pytest.mark.parametrize(("text", "shown"), FAILING)
def test_a_syntax_error_is_ipythons_own(run: Run, capsys: Read, text: str, shown: str) -> None:
    result = run(f"ok = 1\n{text}")
    theirs = COLOR.sub("", capsys.readouterr().out)
    assert not result.success
    result = run(f"%%mixpert\n{text}")
    ours = COLOR.sub("", capsys.readouterr().out)
    assert isinstance(result.error_in_exec, CellSyntaxError)
    assert "Traceback" not in ours
    assert shown in ours
    # The same lines, but for the cell's own name; the magic's line stands for `ok = 1`.
    assert re.sub(r"File .*?:", "File:", ours) == re.sub(r"File .*?:", "File:", theirs)


def test_errors_of_products_have_no_frame_of_ours(run: Run) -> None:
    run("def f(): return np.eye(3) @ np.eye(2)")
    native = run("f()").error_in_exec
    run("%mixpert on")
    for cell, levels in (("f()", 2), ("np.eye(3) @ np.eye(2)", 1)):
        frames = traceback.extract_tb(run(cell).error_in_exec.__traceback__)
        assert len(frames) == len(traceback.extract_tb(native.__traceback__)) - 2 + levels
        assert not any("mixpert_py" in frame.filename for frame in frames)


def test_tracebacks_show_the_cells_own_lines(run: Run, capsys: Read) -> None:
    result = run("%%mixpert\ndef f(x):\n    return (x @\n            'y')\n\nf(a)")
    assert isinstance(result.error_in_exec, TypeError)
    out = COLOR.sub("", capsys.readouterr().out)
    assert re.search(r"---> 3     return \(x @\n +4 +'y'\)", out)
    assert "----> 6 f(a)" in out
    assert "dispatch.py" not in out
    assert "notebook.py" not in out


def test_a_cell_that_cannot_be_rewritten_runs_as_it_is(run: Run) -> None:
    with pytest.warns(UserWarning, match="^mixpert: nested more than 250 levels; .* as it is$"):
        assert value(run, f"%%mixpert\nb = a @ a\n{'-' * 300}1") == 1


WRONG = {
    "--scheme int9": "unknown scheme 'int9'",
    "--plan none.toml": "none.toml: cannot read the plan",
    "--backend nonsense": "unknown backend 'nonsense'",
    "--shceme int8x6": "unrecognized arguments",
    "--error 1e-3": "are for --tune",
}


@pytest.mark.parametrize(("line", "message"), WRONG.items(), ids=WRONG)
def test_a_wrong_option_is_one_line(
    run: Run, shell: InteractiveShell, capsys: Read, line: str, message: str
) -> None:
    result = run(f"%%mixpert {line}\nran = True")
    assert not result.success
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "ran" not in shell.user_ns


@pytest.fixture
def library(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a product, which cells have imported."""
    (tmp_path / "shapes_of_cells.py").write_text("def square(x):\n    return x @ x\n")
    monkeypatch.syspath_prepend(tmp_path)
    with mixpert_py.install(packages=["shapes_of_cells"]):
        run("from shapes_of_cells import square")
        yield
    del sys.modules["shapes_of_cells"]


@pytest.mark.usefixtures("library")
def test_the_profile_of_a_cell_has_libraries(run: Run, capsys: Read) -> None:
    run("# Of products\ndef twice(x):\n    return square(square(x))\n")
    capsys.readouterr()
    run("%%mixpert --profile\nb = twice(a)\nsquare(b) @ a")
    run("%%mixpert --profile\na @ a")
    first = COLOR.sub("", capsys.readouterr().err).split("line", 2)[1]
    (library,) = (line for line in first.splitlines() if "shapes_of_cells.py:2" in line)
    (own,) = (line for line in first.splitlines() if "square(b) @ a" in line)
    assert library.split()[-1] != "–"
    assert own.startswith("In[3]:3 ")


def test_the_profile_is_of_this_cell(run: Run, capsys: Read) -> None:
    value(run, "%%mixpert\ndef f(x):\n    return x @ x")
    value(run, "%%mixpert\nf(a)")
    assert capsys.readouterr().err == ""
    value(run, "%%mixpert --profile\nb = f(a)\n\nb.dot(a);")
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    rows = {tuple(line[:4]) for line in lines if line[:1] and line[0].isdigit()}
    assert rows == {("3", "x", "@", "x"), ("4", "b.dot(a)", "1", "16")}
    run("%%mixpert --profile\nf(a)\n1 / 0")
    assert "x @ x" in capsys.readouterr().err


def test_functions_defined_before_are_rewritten_until_it_is_off(
    run: Run, shell: InteractiveShell
) -> None:
    value(run, "def f(x):\n    y = x @ x\n    return y")
    value(run, "class C:\n    def g(self, x, y=a):\n        return [np.dot(x, z) for z in (y,)][0]")
    value(run, "def around(c):\n    def h(x):\n        return x @ c\n    return h\nh = around(a)")
    value(run, "held = f")
    calls = ("f(a)", "held(a)", "C().g(a)", "h(a)")
    assert not any(is_emulated(value(run, call)) for call in calls)
    run("%mixpert on --scheme int8x6")
    assert all(is_emulated(value(run, call)) for call in calls)
    run("%mixpert on --scheme native")
    assert not any(is_emulated(value(run, call)) for call in calls)
    run("%mixpert off")
    assert not any(is_emulated(value(run, call)) for call in calls)
    code = shell.user_ns["f"].__code__
    assert "_mixpert" not in code.co_names


def test_switches(run: Run, capsys: Read) -> None:
    """A dead proxy is no function; cells are shown as typed; a wrong switch changes nothing."""
    run("import weakref\nclass Net: pass\nnet = Net()\ndead = weakref.proxy(net)\ndel net")
    assert run("%mixpert on").success
    run("1\n\na @ 'x'")
    out = COLOR.sub("", capsys.readouterr().out)
    assert "----> 3 a @ 'x'" in out
    assert "dispatch.py" not in out
    run("%mixpert on --scheme int8x6")
    assert not run("%mixpert on --scheme int9").success
    assert not run("%mixpert of").success
    assert is_emulated(value(run, "a @ a"))
    run("%unload_ext mixpert_py")
    assert not is_emulated(value(run, "a @ a"))
    assert not run("%%mixpert\na @ a").success
    run("%load_ext mixpert_py")
    assert run("%%mixpert\na @ a").success


TUNE = "%%mixpert --tune --backend reference --error 1e-5"
LATER = "%%mixpert --backend reference"


def test_a_cell_is_tuned_and_later_ones_run_under_the_plan(
    run: Run, shell: InteractiveShell, capsys: Read
) -> None:
    run("def f(x):\n    return x @ x\ndef g(x, y):\n    return (x @ y).T")
    run(f"{TUNE}\ny = f(a)\nprint('printed')\nz = y - y.T\ny[:2]").raise_error()
    said = capsys.readouterr().out
    assert re.search(r"In\[1\]:2 +x @ x .* int8x", said)
    assert "Verified in more runs of the cell" in said
    assert said.count("printed") == 1
    assert is_emulated(shell.user_ns["y"])
    assert is_emulated(run(f"{LATER}\nf(a)").result)
    run("%time t = f(a)")
    assert not is_emulated(shell.user_ns["t"])  # on this machine, as the plan is for another
    # Another function's product with the same text is none of the plan's.
    assert is_emulated(run(f"{LATER}\ndef h(x):\n    return x @ x\nf(a)").result)
    assert not is_emulated(run(f"{LATER}\nh(a)").result)
    run("%mixpert off")
    assert not is_emulated(run(f"{LATER}\nf(a)").result)


def test_all_runs_of_a_tuning_begin_with_the_same_variables(
    run: Run, shell: InteractiveShell, capsys: Read
) -> None:
    run(
        "import random\nclass Net:\n    def __init__(self):\n        self.w, self.xp = a.copy(), np"
    )
    run("def step(x):\n    global steps\n    steps += 1\n    held.w += 1\n    return x @ held.w")
    run("net = held = Net()\nlog, steps, old = [], 0, net.w.copy()\nrng = np.random.default_rng(0)")
    run("random.seed(0); np.random.seed(0)")
    cell = "y = step(a) * rng.random() * np.random.rand() * random.random()\nlog.append(1)"
    cell += "\nassert net is held"
    run(f"{TUNE}\n{cell}").raise_error()
    found = shell.user_ns
    assert (found["log"], found["steps"]) == ([1], 1)
    assert found["held"] is found["net"]
    np.testing.assert_array_equal(found["net"].w, found["old"] + 1)
    assert "Verified" in capsys.readouterr().out
    value(run, "rng = np.random.default_rng(0); random.seed(0); np.random.seed(0)")
    again = value(run, "rng.random() * np.random.rand() * random.random()")
    np.testing.assert_allclose(found["y"], A @ found["net"].w * again, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("cell", "options", "compared"),
    [
        ("y = a @ a\ny.shape", "", {"y"}),
        ("a @ a", "", {"_"}),
        ("a @ a;", "", {"_"}),
        ("y = a @ a\nh = y @ a", "", {"y", "h"}),
        ("y = a @ a\ny.sum()", "--error _=1e-3", {"_", "y"}),
        ("y = a @ a\nh = y @ a", "--compare h", {"h"}),
        ("y = a @ a\nprint(y[0, 0])", "--compare stdout", {"stdout"}),
        ("y = a @ a\nmixpert_py.observe('seen', y)", "", {"seen"}),
        ("y = a @ a\nnp.save('y.npy', y)", "--compare y.npy", {"y.npy"}),
        ("n = 3\ny = n * (a @ a)", "", {"y"}),
        ("%time y = f(a)", "--compare y", {"y"}),
        ("from __future__ import annotations\nlisted = f(a)", "", {"listed"}),
        ("y = a @ a\nlen(listed)", "", {"y"}),  # not `unrelated`, which does not run
        ("b = f(a)\nr = a @ a - b\nb.T @ b", "", {"b", "__main__:<module>"}),
    ],
)
def test_what_is_compared(
    run: Run, tmp_path: Path, cell: str, options: str, compared: set[str]
) -> None:
    run("import mixpert_py; mixpert_py.observe('earlier', 1); listed = [1]")
    run("def f(x):\n    return x @ x\ndef unrelated(x):\n    return x.T @ x")
    run(f"{TUNE} {options} -o p.toml\n{cell}").raise_error()
    names = {row.name.partition("/")[0] for row in load(tmp_path / "p.toml").criterion}
    assert names == compared


def test_plans_of_several_cells_are_one_file(run: Run, tmp_path: Path, capsys: Read) -> None:
    run(f"{TUNE} -o p.toml\ny = a @ a").raise_error()
    assert "plan written to p.toml" in capsys.readouterr().out
    (first,) = load(tmp_path / "p.toml").site
    assert first.scheme != "native"
    assert is_emulated(run(f"{LATER}\na @ a").result)
    run("%mixpert off")
    assert not is_emulated(run(f"{LATER}\na @ a").result)
    run(f"{TUNE} -o p.toml\nz = a.dot(a)").raise_error()
    plan = load(tmp_path / "p.toml")
    assert {site.expression for site in plan.site} == {"a @ a", "a.dot(a)"}
    assert {row.name for row in plan.criterion} == {"y", "z"}
    assert is_emulated(run(f"{LATER}\na @ a").result)  # the plan of the file is in force
    # A locked product keeps its scheme, and a tuning goes on from the plan in force.
    locked = Site(id=first.id, scheme="native", locked=True)
    save(Plan(guard="off", site=[locked]), tmp_path / "other.toml")
    run(f"{TUNE} -o other.toml\ny = a @ a").raise_error()
    assert load(tmp_path / "other.toml").site[0].scheme == "native"
    in_force = default().plan
    assert in_force is not None
    assert in_force.guard == "off"
    run(f"{TUNE}\nb = a.T @ a").raise_error()
    assert not is_emulated(run(f"{LATER}\na @ a").result)
    # The next session takes the file.
    run("%mixpert on --plan p.toml")
    assert is_emulated(value(run, "a @ a"))


def test_figures_of_the_runs_are_closed(run: Run, shell: InteractiveShell) -> None:
    pytest.importorskip("matplotlib").use("agg")
    run("import matplotlib.pyplot as plt\nplt.close('all')\nkept = plt.figure()")
    run(f"{TUNE}\ny = a @ a\nplt.figure()\nlines = plt.plot(y)").raise_error()
    assert value(run, "len(plt.get_fignums()), len(plt.gca().lines)") == (2, len(A))
    run("plt.close('all')")


def test_cells_that_were_rewritten_before_are_named(run: Run, capsys: Read) -> None:
    run("%mixpert on")
    run("%time None\ndef f(x):\n    return x @ x").raise_error()
    run(f"{TUNE}\ny = f(a)").raise_error()
    assert re.search(r"In\[2\]:3 +x @ x", capsys.readouterr().out)


def test_threads_are_tuned_and_only_the_last_run_logs(
    run: Run, tmp_path: Path, capsys: Read
) -> None:
    run("import logging\nlog = logging.getLogger('of_a_cell')\ndef f(x):\n    return x @ x")
    run("log.addHandler(logging.FileHandler('log.txt'))")
    run("from concurrent.futures import ThreadPoolExecutor")
    cell = "with ThreadPoolExecutor(1) as pool:\n    y = pool.submit(f, a).result()"
    run(f"{TUNE}\nlog.error('seen')\n{cell}").raise_error()
    run("log.handlers.pop().close()")
    assert (tmp_path / "log.txt").read_text() == "seen\n"
    out = capsys.readouterr().out
    assert re.search(r"x @ x .* int8x", out)


def test_a_plan_beside_the_notebook_stays_in_force(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = tmp_path / "It is beside.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    (site,) = analyze(b"a @ a", "It is beside")
    save(Plan(site=[Site(id=site.id, scheme="int8x6")]), plan_beside(notebook))
    find_plan.cache_clear()
    run(f"{TUNE}\ny = a.dot(a)").raise_error()
    find_plan.cache_clear()
    assert is_emulated(run(f"{LATER}\na @ a").result)


def test_results_in_memory_that_runs_share_are_compared(run: Run, shell: InteractiveShell) -> None:
    run("def make(out):\n    def f(x):\n        out[:] = x @ x\n        return out\n    return f")
    run("f = make(np.empty((16, 16)))")
    run(f"{TUNE}\ny = f(a)").raise_error()
    error = np.linalg.norm(shell.user_ns["y"] - EXACT) / np.linalg.norm(EXACT)
    assert 0 < error <= 1e-5


NO_TUNING = {
    "": ("y = a @ a", "give --error BUDGET"),
    "--error -1": ("y = a @ a", "--error is a number from 0"),
    "--error 1 --error 2": ("y = a @ a", "give one bare --error BUDGET"),
    "--error 1 --scheme int8x6": ("y = a @ a", "neither --plan nor --scheme"),
    "--error 1 --backend cuda --device h200": ("y = a @ a", "backend 'cuda'"),
    "--error 1 --device abc": ("y = a @ a", "no device model is known for 'abc'"),
    "--error 1 -o none/p.toml": ("y = a @ a", "cannot write a plan there"),
    "--error 1 --compare b": ("y = a @ a", "has no numeric value for b; all variables are"),
    "--error 1": ("ran = True", "makes no matrix product that could be tuned; all variables are"),
    "--error 1 ": ("a += f(a)\nran = 1 / 0", "ZeroDivisionError: division by zero; all variables"),
    "--error 1e-9": (
        "import time, numpy\ny = f(numpy.ones((200, 200))) * time.perf_counter()",
        "'y' differs by .* between native runs",
    ),
}


@pytest.mark.parametrize(("line", "expected"), NO_TUNING.items(), ids=NO_TUNING)
def test_what_cannot_be_tuned_is_one_line_and_all_is_as_it_was(
    run: Run, shell: InteractiveShell, capsys: Read, line: str, expected: tuple[str, str]
) -> None:
    cell, message = expected
    run("a = a.copy()\ndef f(x):\n    return x @ x")
    before = dict(shell.user_ns)
    capsys.readouterr()
    assert not run(f"%%mixpert --tune {line}\n{cell}").success
    said = capsys.readouterr().err.strip()
    assert re.match(f"UsageError: .*{message}", said)
    assert len(said.splitlines()) == 1
    np.testing.assert_array_equal(shell.user_ns["a"], A)
    changed = {name for name in shell.user_ns if shell.user_ns[name] is not before.get(name)}
    assert {name for name in changed if not name.startswith("_")} == set()
    assert "_mixpert" not in shell.user_ns["f"].__code__.co_names
    assert not is_emulated(value(run, "a @ a"))


def test_an_interrupted_tuning_leaves_all_as_it_was(
    run: Run, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "runs_of_the_cell", 0, raising=False)
    stop = "if sys.runs_of_the_cell > 5:\n    raise KeyboardInterrupt"
    result = run(f"{TUNE}\nimport sys\ny = a @ a\nsys.runs_of_the_cell += 1\n{stop}")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "y" not in shell.user_ns
    assert not is_emulated(run(f"{LATER}\na @ a").result)


def test_variables_that_cannot_be_copied_are_named(run: Run, capsys: Read) -> None:
    run("lines = (x for x in 'abc')")
    run("class Full:\n    def __deepcopy__(self, memo):\n        raise MemoryError")
    run(f"{TUNE}\ny = a @ a\nlines").raise_error()
    assert capsys.readouterr().err.splitlines() == [
        "mixpert: lines: not copied: all runs of the cell work on the same"
    ]
    run("full = Full()")
    assert not run(f"{TUNE}\ny = a @ a\nfull").success
    assert "no memory for a copy of full" in capsys.readouterr().err


@pytest.mark.usefixtures("library")
def test_products_of_libraries_are_tuned(run: Run, capsys: Read) -> None:
    assert is_emulated(run(f"{TUNE}\nsquare(a)").result)
    assert re.search(r"shapes_of_cells.py:2 .*x @ x", capsys.readouterr().out)


def test_times_are_measured_where_no_backend_is_named(run: Run, capsys: Read) -> None:
    run("b = np.random.default_rng(1).standard_normal((300, 300))")
    run("%%mixpert --tune --error 1e-5\ny = b @ b").raise_error()
    out = capsys.readouterr().out
    assert "time, " in out
    assert "Predicted" not in out


@pytest.mark.gpu
def test_all_runs_of_a_cell_draw_the_same_numbers_on_the_gpu() -> None:
    import cupy
    import torch

    from mixpert_py.tuning.cell import on_copies

    def draw() -> tuple[float, float]:
        return float(cupy.random.rand()), float(torch.rand(1, device="cuda"))

    drawn = []
    for _ in range(2):
        cupy.random.seed(5)
        torch.cuda.manual_seed(5)
        with on_copies({}, (), print):
            first = draw()
        with on_copies({}, (), print):
            assert draw() == first
        drawn.append(draw())
    assert drawn[0] == drawn[1]
    assert drawn[0][1] == first[1]


def test_a_scheme_that_no_product_of_the_cell_took_is_told(run: Run, capsys: Read) -> None:
    run("def square(x):\n    return x @ x")
    capsys.readouterr()
    run("%%mixpert --scheme float32 --profile\nsquare(a)")
    said = capsys.readouterr()
    assert "--scheme float32: the cell has no product of its own" in said.err
    assert "no rewritten product was called" in said.err
    with pytest.warns(UserWarning, match="int8x6: products run natively. No GPU"):
        run("%%mixpert --scheme int8x6\na @ a")
    for cell in (
        "%%mixpert --scheme float32\nnp.ones((300, 300)) @ np.ones((300, 300))",
        "%%mixpert --scheme float32\ndef later(x):\n    return x @ x",
        "%%mixpert --scheme int8x6 --backend reference\na @ a",
    ):
        run(cell)
        assert "--scheme" not in capsys.readouterr().err


def test_the_switch_alone_prints_what_is_in_force(run: Run, capsys: Read) -> None:
    def shown(line: str) -> str:
        capsys.readouterr()
        run(line)
        return capsys.readouterr().out

    assert shown("%mixpert").startswith("off: ")
    run("%mixpert on --scheme float32")
    assert shown("%mixpert") == "on: all cells are rewritten, under scheme float32\n"
    run("%mixpert off")
    assert shown("%mixpert").startswith("off: ")
