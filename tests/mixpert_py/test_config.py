"""Where plans come from, and what files are called."""

import os
from pathlib import Path

import pytest

from mixpert_py import config
from mixpert_py.errors import PlanError
from tests.mixpert_py.command import Mixpert, forked

PROGRAM = """\
import numpy as np
a = np.full((400, 400), 1 / 3)
b = a @ a
print(float(np.float32(b[0, 0])) == b[0, 0])
"""
PLAN = '[[site]]\nid = "{site}"\nscheme = "{scheme}"\n'


def python(path: Path, **environment: str) -> str:
    done = forked(str(path), folder=path.parent, **environment)
    return done.out + done.err


@pytest.fixture
def rewritten(tmp_path: Path, mixpert: Mixpert) -> Path:
    (tmp_path / "net.py").write_text(PROGRAM)
    assert mixpert("rewrite", "net.py").code == 0
    return tmp_path / "net_mixpert.py"


def site_of(rewritten: Path) -> str:
    return rewritten.read_text().partition('site="')[2].partition('"')[0]


def test_a_rewritten_program_finds_the_plan_of_its_original(rewritten: Path) -> None:
    assert python(rewritten) == "False\n"
    beside = rewritten.with_name("net.mixpert.toml")
    beside.write_text(PLAN.format(site=site_of(rewritten), scheme="float32"))
    assert python(rewritten) == "True\n"


def test_the_environment_comes_before_the_file_beside(rewritten: Path) -> None:
    site = site_of(rewritten)
    beside = rewritten.with_name("net.mixpert.toml")
    beside.write_text(PLAN.format(site=site, scheme="float32"))
    named = rewritten.with_name("other.toml")
    named.write_text(PLAN.format(site=site, scheme="native"))
    assert python(rewritten, MIXPERT_PLAN=str(named)) == "False\n"


def test_a_stale_site_runs_natively_with_a_warning(rewritten: Path) -> None:
    beside = rewritten.with_name("net.mixpert.toml")
    beside.write_text(PLAN.format(site="net:f/matmul~ffff#0", scheme="float32"))
    said = python(rewritten)
    assert said.startswith("False\n")
    assert "is not in the plan" in said


def test_a_malformed_plan_beside_stops_the_program(rewritten: Path) -> None:
    rewritten.with_name("net.mixpert.toml").write_text("colour = 1\n")
    assert "net.mixpert.toml:1: key 'colour': unknown key" in python(rewritten)


def test_a_program_may_say_where_its_plan_is(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "net.py").write_text(
        "import os\n"
        "from mixpert_py.runtime.context import current\n"
        "os.environ['MIXPERT_PLAN'] = 'other.toml'\n"
        "print(current().has_choices())\n"
    )
    assert mixpert("run", "net.py").out == "True\n"


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
