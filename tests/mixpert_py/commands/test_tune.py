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
from mixpert_py.runtime.model import device_model
from mixpert_py.tuner.report import share_text
from mixpert_py.tuning.hold_out import highest_rate
from mixpert_py.tuning.trials import only_tuning
from tests.mixpert_py.command import IMPORTABLE, Shell
from tests.mixpert_py.tuning.tuned_program import CHAIN
from tests.mixpert_py.tuning.tuned_program import chain as chain

AMPLIFIED = """\
import sys
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((96, 96))
b = a @ a
exact = (a[:, :, None] * a).sum(axis=1)
c = (b - float(sys.argv[1]) * exact) @ a  # what is left of b has its error, and is smaller
"""


def test_a_plan_holds_on_every_hold_out(sh: Shell) -> None:
    sh.write({"s.py": AMPLIFIED})
    tune = "tune --error 1e-3 --backend reference --compare c --hold-out 0.{seed} --seeds 97..99"
    tune += " --hold-out 0 --hold-out 0.98"  # the last one again, which tells nothing new
    found = sh.json(f"{tune} --json s.py 0")
    errors = {one["arguments"]: one["error"] for one in found["hold_outs"]}
    assert list(errors) == ["0.97", "0.98", "0.99", "0"]
    assert max(errors.values()) == errors["0.99"] == found["hold_out"] <= 1e-3
    assert errors["0"] == found["error"]
    # Plans before it were over the budget with 0.99: less is known than of a first plan.
    rate = found["hold_out_rate"]
    assert any(rate == pytest.approx(highest_rate(4, failed)) for failed in range(1, 4))
    done = sh(f"{tune} -o p.toml s.py 0", out="on 4 other inputs at most")
    told = f"0 of 4 over: at most {share_text(rate)} of such inputs, with 95 % confidence"
    assert told in " ".join(done.out.split())
    assert told in " ".join(sh("report p.toml").out.split())


def test_the_command_writes_a_plan_and_prints_a_table(chain: Path, sh: Shell) -> None:
    # Counted in slice products: by times, casts that happen to take long are "not faster".
    parts = "a @ a", "b.dot(a)", "native", "over budget", "Every product stays as it was"
    sh("tune --error 1e-15 --backend reference chain.py", out=parts)
    made = plan.load(chain.with_name("chain.mixpert.toml"))
    assert set(made.schemes().values()) == {"native"}
    assert made.provenance.command == "mixpert tune --error 1e-15 --backend reference chain.py"
    assert made.provenance.blas_threads > 0
    assert "ms = " not in sh.read("chain.mixpert.toml")  # what was predicted is no measured time


@pytest.mark.usefixtures("chain")
def test_a_gpu_that_is_not_here(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are those of its model: here one whose vendor's products are slow, small ones too."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(sh.folder))
    known = device_model.find("h200")
    slow = msgspec.structs.replace(known.vendor, float32=1e10, float64=1e10)
    device_model.keep(msgspec.structs.replace(known, vendor=slow))
    said = sh("tune --error 1e-4 --device h200 chain.py")
    assert said.out.startswith("Predicted for the products on NVIDIA H200: ")
    found = sh.json("report chain.mixpert.toml --json")
    assert (found["unit"], found["device"]) == ("seconds", "NVIDIA H200")
    assert found["gain"]["times"] > 10
    assert set(found["schemes"].values()) <= {"int8x10", "faithful", "int8x6", "int8x3"}
    said = sh("report chain.mixpert.toml")
    assert said.out.startswith("Predicted for the products on NVIDIA H200: ")


@pytest.mark.usefixtures("chain")
def test_a_criterion_of_the_users(sh: Shell) -> None:
    tune = "tune --error 1e-15 --criterion mine:wrong chain.py"
    # What it prints is no JSON, and what it writes to is its own.
    body = "    print('asked')\n    a -= b\n    return float(abs(a).max())\n"
    sh.write({"mine.py": f"def wrong(a, b):\n{body}"})
    assert sh.json(tune.replace("chain.py", "--json chain.py"))["values"][0]["error"] == 0
    made = plan.load(sh.folder / "chain.mixpert.toml")
    assert made.criterion[0].metric == "mine:wrong"
    sh.write({"mine.py": "def wrong(a, b):\n    raise ValueError('my bad')\n"})
    sh(tune, 2, err="my bad")
    sh.write({"mine.py": "def wrong(a, b):\n    return float('nan')\n"})
    told = "criterion mine:wrong returned NaN for 'c' of two native"
    assert told in sh(tune, 2).one_clear_line()


SLEEPER = """\
import os, sys, time
import numpy as np
a = np.eye(300)
b = a @ a
os.chdir(os.path.dirname(__file__))
count = os.path.getsize("runs") if os.path.exists("runs") else 0
with open("runs", "a") as file:
    file.write(".")
if count >= 4:
    open("pid", "w").write(str(os.getpid()))
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    """It comes in the first trial."""
    (tmp_path / "s.py").write_text(SLEEPER)
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
    assert err == b"mixpert: interrupted; --resume goes on from here\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    # Nothing was lowered yet, and what runs natively needs no plan.
    assert not (tmp_path / "s.mixpert.toml").exists()


def test_a_plan_that_cannot_be_saved_is_not_lost(sh: Shell) -> None:
    # A folder in its place, which was not there when the tuning began. A run's folder is a copy.
    path = sh.folder / "chain.mixpert.toml"
    sh.write({"chain.py": f"{CHAIN}import os\nos.makedirs({str(path)!r}, exist_ok=True)\n"})
    tune = "tune --error 1e-5 --backend reference"
    said = sh(f"{tune} --json chain.py", 2)
    assert "chain.mixpert.toml: cannot read the plan: Is a directory" in said.one_clear_line()
    assert said.err.endswith("; --resume writes the plan then\n")
    found = json.loads(said.out)["schemes"]
    path.rmdir()
    assert "goes on; runs made: " in sh(f"{tune} --resume chain.py").one_clear_line()
    assert plan.load(path).schemes() == found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such names")
def test_a_second_tuning_of_a_plan_is_refused(sh: Shell, tmp_path: Path) -> None:
    place = tmp_path / "s.mixpert.toml"
    claims = "import contextlib, pathlib\nimport numpy as np\n"
    claims += "from mixpert_py.errors import PlanError\n"
    claims += "from mixpert_py.tuning.trials import only_tuning\n"
    claims += f"with contextlib.suppress(PlanError), only_tuning(pathlib.Path({str(place)!r})):\n"
    sh.write({"s.py": f"{claims}    raise SystemExit(3)\na = np.eye(99)\nb = a @ a\n"})
    tune = "tune --error 1 --backend reference -q"
    sh(f"{tune} s.py", err="")
    with only_tuning(place):
        before = sh.read("s.mixpert.toml")
        said = sh(f"{tune} --resume s.py", 2).one_clear_line()
        assert "another tuning of it is running; -o names another plan" in said
        assert sh.read("s.mixpert.toml") == before
    sh(f"{tune} s.py", err="")


def test_half_of_the_budget_is_kept_for_other_data(sh: Shell) -> None:
    """The plan that is found without a margin takes 0.7 of the budget."""
    text = "import numpy as np\nr = np.random.default_rng(0)\na = r.standard_normal((96, 96))\n"
    sh.write({"s.py": f"{text}c = a @ a\n"})
    tune = "tune --backend reference --compare c --json"
    found = sh.json(f"{tune} --error 1e-3 --margin 0 s.py")
    tune += f" --error {1.4 * found['error']}"
    kept, whole = sh.json(f"{tune} s.py"), sh.json(f"{tune} --margin 0 s.py")
    assert kept["error"] <= kept["budget"] / 2
    assert kept["budget"] == 1.4 * found["error"]
    assert "Tuned to 50 % of the budget" in kept["notes"][-1]
    assert whole["schemes"] == found["schemes"] != kept["schemes"]
    assert not any("Tuned to" in note for note in whole["notes"])
    assert sh.json(f"{tune} --hold-out 1 s.py")["schemes"] == found["schemes"]
