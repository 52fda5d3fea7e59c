"""Settings and plans that are found, files that are replaced, and observed values."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

import mixpert_py
from mixpert_py import config, files
from mixpert_py.errors import PlanError
from mixpert_py.execution import outputs
from mixpert_py.execution.outputs import observed
from tests.mixpert_py.command import Shell, forked

PROGRAM = """\
import numpy as np
a = np.full((400, 400), 1 / 3)
b = a @ a
print(float(np.float32(b[0, 0])) == b[0, 0])
"""
PLAN = '[[site]]\nid = "{site}"\nscheme = "{scheme}"\n'


def python(sh: Shell, **environment: str) -> str:
    done = forked(str(sh.folder / "net_mixpert.py"), folder=sh.folder, **environment)
    return done.out + done.err


def test_a_rewritten_program_finds_the_plan_of_its_original(sh: Shell) -> None:
    sh.write({"net.py": PROGRAM})
    sh("rewrite net.py")
    site = sh.read("net_mixpert.py").partition('site="')[2].partition('"')[0]
    assert python(sh) == "False\n"
    sh.write({"net.mixpert.toml": PLAN.format(site=site, scheme="float32")})
    assert python(sh) == "True\n"
    # The environment comes before the file beside.
    sh.write({"other.toml": PLAN.format(site=site, scheme="native")})
    assert python(sh, MIXPERT_PLAN=str(sh.folder / "other.toml")) == "False\n"
    # A stale site runs natively with a warning, and a malformed plan stops the program.
    sh.write({"net.mixpert.toml": PLAN.format(site="net:f/matmul~ffff#0", scheme="float32")})
    said = python(sh)
    assert said.startswith("False\n")
    assert "is not in the plan" in said
    sh.write({"net.mixpert.toml": "colour = 1\n"})
    assert "net.mixpert.toml:1: key 'colour': unknown key" in python(sh)


def test_a_program_may_say_where_its_plan_is(sh: Shell) -> None:
    text = (
        "import os\n"
        "from mixpert_py.runtime.context import current\n"
        "os.environ['MIXPERT_PLAN'] = 'other.toml'\n"
        "print(current().has_choices())\n"
    )
    sh.write({"net.py": text})
    sh("run net.py", out="True\n")


def test_module_names(tmp_path: Path) -> None:
    package = tmp_path / "pkg" / "sub"
    package.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").touch()
    (package / "__init__.py").touch()
    assert config.module_name(tmp_path / "net.py") == "net"
    assert config.module_name(tmp_path / "1.2 my net.py") == "1.2_my_net"
    assert config.module_name(package / "net.py") == "pkg.sub.net"
    assert config.module_name(package / "__init__.py") == "pkg.sub"


def test_a_plan_is_checked_for_its_schemes(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PLAN.format(site="m:f/matmul~1#0", scheme="int9"))
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        config.load_plan(path)


def test_a_named_pipe_is_no_plan(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.toml")
    with pytest.raises(PlanError, match="it is a named pipe"):
        config.load_plan(tmp_path / "plan.toml")
    reading, writing = os.pipe()
    os.write(writing, PLAN.format(site="m:f/matmul~1#0", scheme="int8x6").encode())
    os.close(writing)
    assert config.load_plan(f"/dev/fd/{reading}").site[0].scheme == "int8x6"
    os.close(reading)


def test_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "f"
    files.replace(path, b"one")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"one", 0o644)
    path.chmod(0o600)
    files.replace(path, b"two")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"two", 0o600)
    files.replace(path, b"three", 0o755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_stream_is_written_to_where_it_is_a_file(place: str) -> None:
    assert files.is_stream(Path(place))


def test_the_last_value_of_a_name_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_observed", {})
    given = [np.arange(4.0), [1.0, [2.0]], [np.zeros(2)], {"a": np.zeros(2)}, 1.5, None, list]
    for value in (given, *given):
        mixpert_py.observe("x", value)
        kept = repr(observed()["x"])
        assert kept == repr(value)
        if isinstance(value, list | np.ndarray):
            value[-1] = 9
            assert repr(observed()["x"]) == kept != repr(value)
