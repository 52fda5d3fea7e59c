"""`mixpert tune`: a plan within the budget, or one clear line and nothing changed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from mixpert_py import plan
from mixpert_py.commands.tune import SEARCHES
from mixpert_py.runtime.model import known_devices
from mixpert_py.tuner.report.unit import share_text
from mixpert_py.tuning.hold_out import highest_rate
from tests.mixpert_py.command import IMPORTABLE, Mixpert
from tests.mixpert_py.tuning.chain import CHAIN
from tests.mixpert_py.tuning.chain import chain as chain


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_from_the_command_line(search: str, chain: Path, mixpert: Mixpert) -> None:
    options = "--error", "1e-5", "--backend", "reference", "--search", search, "--json"
    chain.write_text(CHAIN.replace("160", "96").replace("c = b.dot(a)\n", ""))
    done = mixpert("tune", *options, str(chain))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert set(found["schemes"].values()) <= {"int8x6", "int8x8", "int8x10"}
    assert found["error"] <= 1e-5


AMPLIFIED = """\
import sys
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((96, 96))
b = a @ a
exact = (a[:, :, None] * a).sum(axis=1)
c = (b - float(sys.argv[1]) * exact) @ a  # what is left of b has its error, and is smaller
"""


def test_a_plan_holds_on_every_hold_out(tmp_path: Path, mixpert: Mixpert) -> None:
    path = tmp_path / "s.py"
    path.write_text(AMPLIFIED)
    options = ["--error", "1e-3", "--backend", "reference", "--compare", "c"]
    others = ["--hold-out", "0.{seed}", "--seeds", "97..99", "--hold-out", "0"]
    others += ["--hold-out", "0.98"]  # again, which tells nothing new
    done = mixpert("tune", *options, *others, "--json", str(path), "0")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    arguments = [*(f"0.{seed}" for seed in range(97, 100)), "0"]
    errors = {one["arguments"]: one["error"] for one in found["hold_outs"]}
    assert list(errors) == arguments
    assert max(errors.values()) == errors["0.99"] == found["hold_out"] <= 1e-3
    assert errors["0"] == found["error"]
    # Plans before it were over the budget with 0.99: less is known than of a first plan.
    rate = found["hold_out_rate"]
    assert any(rate == pytest.approx(highest_rate(4, failed)) for failed in range(1, 4))
    done = mixpert("tune", *options, *others, "-o", "p.toml", str(path), "0")
    assert "on 4 other inputs at most" in done.out
    told = f"0 of 4 over: at most {share_text(rate)} of such inputs, with 95 % confidence"
    assert told in " ".join(done.out.split())
    said = mixpert("report", "p.toml")
    assert told in " ".join(said.out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hold-out", "'"], "--hold-out: No closing quotation"),
        (["--hold-out", "--seed {seed}"], "--hold-out --seed {seed}: {seed} takes --seeds"),
        (["--seeds", "1..2"], "--seeds are for {seed} in --hold-out"),
        (["--hold-out", "{seed}", "--seeds", "2..1"], "--seeds is FIRST..LAST, such as 1..59"),
        (["--hold-out", "{seed}", "--seeds", "0..10000"], "are 10,001; at most 10,000"),
    ],
)
def test_hold_outs_that_cannot_be(
    options: list[str], message: str, chain: Path, mixpert: Mixpert
) -> None:
    said = mixpert("tune", "--error", "1e-3", *options, "chain.py")
    assert said.code == 2
    assert message in said.err


CLI_BAD = [
    ("exits", "import sys, numpy as np\nnp.eye(2) @ np.eye(2)\nsys.exit(3)\n", 2, "exit code 3"),
    ("kills itself", "import os\na @ b if 0 else os.kill(os.getpid(), 9)\n", 2, "signal 9"),
    ("hangs", "import time\na @ b if 0 else time.sleep(60)\n", 2, "still running after 3 s"),
    ("NaN", "import numpy as np\na = np.eye(200)\nx = a @ a * np.nan\nprint(x)\n", 2, "finite"),
    ("nothing left", "import numpy as np\ndef f(a): a @ a; return 1\nf(1)\n", 2, "TypeError"),
]


@pytest.mark.parametrize(
    ("text", "code", "word"), [row[1:] for row in CLI_BAD], ids=[row[0] for row in CLI_BAD]
)
def test_a_program_that_fails_gets_a_clear_line_and_its_last_words(
    tmp_path: Path, mixpert: Mixpert, text: str, code: int, word: str
) -> None:
    (tmp_path / "s.py").write_text(text)
    said = mixpert("tune", "--error", "1e-4", "--time-limit", "3", "s.py")
    assert said.code == code
    assert word in said.err
    assert said.err.startswith("mixpert: ")
    assert "mixpert_py" not in said.err
    assert set(os.listdir(tmp_path)) <= {"s.py", "s.mixpert.trials.jsonl"}


def test_no_site_at_all(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text("print(1)\n")
    said = mixpert("tune", "--error", "1", "s.py")
    assert said.code == 1
    assert said.err == ("s.py: makes no matrix product that could be tuned; no plan was written\n")
    assert os.listdir(tmp_path) == ["s.py"]


def test_the_command_writes_a_plan_and_prints_a_table(chain: Path, mixpert: Mixpert) -> None:
    # Counted in slice products: by times, casts that happen to take long are "not faster".
    said = mixpert("tune", "--error", "1e-15", "--backend", "reference", "chain.py")
    assert said.code == 0, said
    for word in ("a @ a", "b.dot(a)", "native", "over budget", "Every product stays as it was"):
        assert word in said.out
    made = plan.load(chain.with_name("chain.mixpert.toml"))
    assert set(made.schemes().values()) == {"native"}
    assert made.provenance.command == "mixpert tune --error 1e-15 --backend reference chain.py"
    assert made.provenance.blas_threads > 0
    # What was predicted is no measured time.
    assert "ms = " not in chain.with_name("chain.mixpert.toml").read_text()
    shown = mixpert("plan", "show", "chain.mixpert.toml")
    assert "0.000" not in shown.out
    assert shown.out.count("–") >= 4
    assert shown.code == 0
    assert "b.dot(a)" in shown.out
    assert mixpert("plan", "validate", "chain.mixpert.toml").out.endswith("valid, 2 call sites\n")


def test_a_gpu_that_is_not_here(
    chain: Path, mixpert: Mixpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are those of its model: here one whose vendor's products are slow, small ones too."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(chain.parent))
    known = known_devices.find("h200")
    slow = msgspec.structs.replace(known.vendor, float32=1e10, float64=1e10)
    known_devices.keep(msgspec.structs.replace(known, vendor=slow))
    said = mixpert("tune", "--error", "1e-4", "--device", "h200", "chain.py")
    assert said.code == 0, said.err
    assert said.out.startswith("Predicted for the products on NVIDIA H200: ")
    said = mixpert("report", "chain.mixpert.toml", "--json")
    found = json.loads(said.out)
    assert (found["unit"], found["device"]) == ("seconds", "NVIDIA H200")
    assert found["gain"]["times"] > 10
    assert set(found["schemes"].values()) <= {"int8x10", "faithful", "int8x6", "int8x3"}
    said = mixpert("report", "chain.mixpert.toml")
    assert said.out.startswith("Predicted for the products on NVIDIA H200: ")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--device", "t4"], "compute capability 7.5"),
        (["--device", "h200", "--backend", "cuda"], "--device predicts times"),
    ],
)
def test_a_gpu_that_cannot_be_predicted(
    options: list[str], what: str, chain: Path, mixpert: Mixpert
) -> None:
    said = mixpert("tune", "--error", "1e-4", *options, "chain.py")
    assert said.code == 2
    assert what in said.err
    assert not chain.with_name("chain.mixpert.toml").exists()


def test_a_criterion_of_the_users(chain: Path, mixpert: Mixpert) -> None:
    (chain.parent / "mine.py").write_text("def wrong(a, b):\n    return float(abs(a - b).max())\n")
    said = mixpert("tune", "--error", "1e-15", "--criterion", "mine:wrong", "chain.py")
    assert said.code == 0, said
    made = plan.load(chain.with_name("chain.mixpert.toml"))
    assert made.criterion[0].metric == "mine:wrong"
    (chain.parent / "mine.py").write_text("def wrong(a, b):\n    raise ValueError('my bad')\n")
    said = mixpert("tune", "--error", "1e-15", "--criterion", "mine:wrong", "chain.py")
    assert said.code == 2
    assert "my bad" in said.err


SLEEPER = """\
import os, sys, time
import numpy as np
a = np.eye(300)
b = a @ a
os.chdir(os.path.dirname(__file__))
count = os.path.getsize("runs") if os.path.exists("runs") else 0
with open("runs", "a") as file:
    file.write(".")
if count >= {sleeps_from}:
    open("pid", "w").write(str(os.getpid()))
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize("sleeps_from", [4], ids=["first trial"])
def test_ctrl_c_leaves_no_process(tmp_path: Path, sleeps_from: int) -> None:
    (tmp_path / "s.py").write_text(SLEEPER.format(sleeps_from=sleeps_from))
    options = ["--error", "1e-4", "--backend", "reference"]
    command = [sys.executable, "-m", "mixpert_py", "tune", *options, "s.py"]
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for _ in range(600):
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    way_on = b"; --resume goes on from here" if sleeps_from else b""
    assert err == b"mixpert: interrupted" + way_on + b"\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    # Nothing was lowered yet, and what runs natively needs no plan.
    assert not (tmp_path / "s.mixpert.toml").exists()


@pytest.mark.parametrize("as_json", [True], ids=["JSON"])
def test_a_plan_that_cannot_be_saved_is_not_lost(
    chain: Path, mixpert: Mixpert, as_json: bool
) -> None:
    # A folder in its place, which was not there when the tuning began.
    path = str(chain.with_name("chain.mixpert.toml"))  # a run's own folder is a copy
    chain.write_text(f"{CHAIN}import os\nos.makedirs({path!r}, exist_ok=True)\n")
    options = ["--error", "1e-5", "--backend", "reference", *["--json"] * as_json]
    temporary = chain.parent / "temporary"
    temporary.mkdir()
    said = mixpert("tune", *options, "chain.py", TMPDIR=str(temporary))
    assert said.code == 2
    (kept,) = temporary.iterdir()
    assert "chain.mixpert.toml: cannot read the plan: Is a directory" in said.one_clear_line()
    assert said.err.endswith(f"; the plan that was found is in {kept}\n")
    found = plan.load(kept).schemes()
    if as_json:
        assert json.loads(said.out)["schemes"] == found
    else:
        assert "a @ a" in said.out
        assert "plan written" not in said.out
    (chain.parent / "chain.mixpert.toml").rmdir()
    again = mixpert("tune", *options[:4], "--resume", "chain.py")
    assert "goes on; runs made: " in again.one_clear_line()
    assert plan.load(chain.with_name("chain.mixpert.toml")).schemes() == found


def test_a_criterion_that_returns_nan_is_named(chain: Path, mixpert: Mixpert) -> None:
    (chain.parent / "mine.py").write_text("def wrong(a, b):\n    return float('nan')\n")
    said = mixpert("tune", "--error", "1", "--criterion", "mine:wrong", "chain.py")
    assert said.code == 2
    assert "criterion mine:wrong returned NaN for 'c' of two native" in said.one_clear_line()


@pytest.mark.parametrize("free", [8], ids="{} KiB".format)
def test_a_full_temporary_folder_gets_one_line(free: int, tmp_path: Path) -> None:
    """There is no room for a run's job, or for the values that it leaves."""
    (tmp_path / "s.py").write_text("import numpy as np\na = np.eye(99)\nb = a @ a\n")
    full = tmp_path / "full"
    full.mkdir()
    within = f"mount -t tmpfs -o size=64k none {full} && head -c {64 - free}k /dev/zero >{full}/x"
    command = f"exec {sys.executable} -m mixpert_py tune --error 1 -q s.py"
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE, "TMPDIR": str(full)}
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", f"{within} || exit 99\n{command}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    if done.returncode in (1, 99) and "mixpert" not in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"mixpert: {full}: No space left on device for what runs leave; ")
    assert done.returncode == 2


def test_a_second_tuning_of_one_plan_says_so(chain: Path, mixpert: Mixpert) -> None:
    """The first one of two waits in its first run until the second one has ended."""
    folder = chain.parent
    waits = (
        "import os, sys, time\nif sys.argv[1:]:\n    print('runs', file=open(sys.argv[1], 'a'))\n"
    )
    waits += "    while not os.path.exists(sys.argv[1] + '.end'): time.sleep(0.05)\n"
    chain.write_text(waits + CHAIN.replace("160", "16"))
    options = "--error", "1", "--backend", "reference", "-q"
    sign = folder / "sign"
    first = subprocess.Popen(
        [sys.executable, "-m", "mixpert_py", "tune", *options, chain.name, "--", str(sign)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not sign.exists():
        assert first.poll() is None
        time.sleep(0.05)
    for more in ((), ("--resume",)):
        second = mixpert("tune", *options, *more, str(chain))
        assert second.code == 2
        assert "another tuning of it is running" in second.one_clear_line()
    elsewhere = mixpert("tune", *options, "-o", str(folder / "other.toml"), str(chain))
    assert (elsewhere.code, elsewhere.err) == (0, "")
    Path(f"{sign}.end").touch()
    assert first.communicate(timeout=60)[1] == ""
    assert first.returncode == 0
    again = mixpert("tune", *options, str(chain))  # nobody else is there any more
    assert (again.code, again.err) == (0, "")


def test_half_of_the_budget_is_kept_for_other_data(tmp_path: Path, mixpert: Mixpert) -> None:
    """The plan that is found without a margin takes 0.7 of the budget."""
    text = "import numpy as np\nr = np.random.default_rng(0)\na = r.standard_normal((96, 96))\n"
    (tmp_path / "s.py").write_text(f"{text}c = a @ a\n")
    options = "--backend", "reference", "--compare", "c", "--json", "s.py"
    found = json.loads(mixpert("tune", "--error", "1e-3", "--margin", "0", *options).out)
    budget = 1.4 * found["error"]
    kept = json.loads(mixpert("tune", "--error", f"{budget}", *options).out)
    assert kept["error"] <= budget / 2
    assert kept["budget"] == budget
    assert "Tuned to 50 % of the budget" in kept["notes"][-1]
    whole = json.loads(mixpert("tune", "--error", f"{budget}", "--margin", "0", *options).out)
    assert whole["schemes"] == found["schemes"] != kept["schemes"]
    assert not any("Tuned to" in note for note in whole["notes"])
    held = mixpert("tune", "--error", f"{budget}", "--hold-out", "1", *options)
    assert json.loads(held.out)["schemes"] == found["schemes"]
    assert mixpert("tune", "--error", "1", "--margin", "1", "s.py").code == 2
