"""Child processes: bounded, heard to the end, and gone with all their own."""

import os
import sys
import time
from pathlib import Path

import pytest

from mixpert_py import config, execution


def ended(text: str, limit: float | None = 20) -> execution.EndedProcess:
    return execution.run([sys.executable, "-c", text], config.child_environment(), limit)


def test_code_and_last_words_are_kept() -> None:
    found = ended("import sys; print('one'); print('two', file=sys.stderr); sys.exit(5)")
    assert found.code == 5
    assert sorted(found.last_lines().splitlines()) == ["one", "two"]


def test_a_flood_is_cut_to_its_end() -> None:
    found = ended("for n in range(10**5): print(n)")
    assert found.code == 0
    assert len(found.tail) == execution.TAIL_BYTES
    assert found.last_lines(1) == "99999"


def test_standard_input_is_closed() -> None:
    assert ended("print(repr(input()))").code == 1


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states from /proc")
@pytest.mark.parametrize("parent", ["time.sleep(60)", "pass"], ids=["hangs", "ends"])
def test_nothing_outlives_a_run(parent: str) -> None:
    text = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"print(child.pid, flush=True)\n{parent}"
    )
    start = time.monotonic()
    found = ended(text, limit=3)
    assert found.code == (None if parent != "pass" else 0)
    assert time.monotonic() - start < 20
    pid = int(found.last_lines(1))
    for _ in range(100):  # a killed process takes a moment to be gone
        if not alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError("the grandchild is still running")


def test_a_users_module_names_do_not_hide_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random.py", "msgspec.py", "runtime.py", "mixpert_py.py"):
        (tmp_path / name).write_text("raise RuntimeError('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    command = execution.python(execution.WORKER, str(tmp_path / "no job"))
    found = execution.run(command, config.child_environment(), 20)
    assert "the wrong module" not in found.tail
    assert "FileNotFoundError" in found.tail  # it got as far as looking for its job


def test_blas_has_a_thread_for_each_core_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    cores = config.blas_threads()
    assert 1 <= cores <= (os.cpu_count() or 1)
    environment = config.child_environment()
    assert {environment[name] for name in names} == {str(cores)}
    for name, value, threads in (("OMP_NUM_THREADS", "5,2", 5), ("OPENBLAS_NUM_THREADS", "7", 7)):
        monkeypatch.setenv(name, value)
        assert config.blas_threads() == threads
        environment = config.child_environment()
        assert environment[name] == value
        assert "MKL_NUM_THREADS" not in environment
