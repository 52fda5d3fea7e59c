"""`mixpert unrewrite`: the bytes that were there, and what it says where they are not certain."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

SOURCE = b"""\
\xef\xbb\xbf'''Spacing that nobody would choose.'''; import numpy as np\r
def f(x, w):\r
\treturn(x)@w+np . dot( x ,w, )\\\r
  + x. dot (w  # w\r
  )\r
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_bytes(SOURCE)
    path.chmod(0o755)
    return path


@pytest.fixture
def rewritten(script: Path, mixpert: Mixpert) -> Path:
    assert mixpert("rewrite", "-w", "net.py").code == 0
    assert script.read_bytes() != SOURCE
    return script


def test_the_bytes_come_back(rewritten: Path, mixpert: Mixpert) -> None:
    said = mixpert("unrewrite", "-w", "net.py")
    assert (said.code, said.out, said.err) == (0, "net.py: 3 products restored\n", "")
    assert rewritten.read_bytes() == SOURCE
    assert stat.S_IMODE(rewritten.stat().st_mode) == 0o755
    said = mixpert("unrewrite", "-w", "net.py")
    assert (said.code, said.out) == (0, "net.py: no runtime call to restore\n")


def test_a_file_that_lies_beside_its_original(script: Path, mixpert: Mixpert) -> None:
    """Its ids name the module that it was made from."""
    assert mixpert("rewrite", "net.py").code == 0
    assert mixpert("unrewrite", "net_mixpert.py", "-o", "back.py").code == 0
    assert script.with_name("back.py").read_bytes() == SOURCE
    assert mixpert("unrewrite", "net_mixpert.py", "-o", "back.py").code == 0
    said = mixpert("rewrite", "net.py", "-o", "back.py")
    assert said.code == 2
    assert "exists and differs" in said.one_clear_line()


def test_what_it_wrote_of_an_older_file_differs(script: Path, mixpert: Mixpert) -> None:
    script.write_bytes(b"c = a @ b\n")
    assert mixpert("rewrite", "net.py").code == 0
    assert mixpert("unrewrite", "net_mixpert.py", "-o", "back.py").code == 0
    script.write_bytes(b"c = b @ a\n")
    assert mixpert("rewrite", "net.py").code == 0
    said = mixpert("unrewrite", "net_mixpert.py", "-o", "back.py")
    assert said.code == 2
    assert said.one_clear_line() == (
        "mixpert: back.py: exists and differs from what `mixpert unrewrite net_mixpert.py` would "
        "write there; remove it"
    )


def test_an_output_is_written_where_nothing_changes(script: Path, mixpert: Mixpert) -> None:
    said = mixpert("unrewrite", "net.py", "-o", "back.py")
    assert (said.code, said.out) == (0, "back.py: no runtime call to restore; written as it is\n")
    assert script.with_name("back.py").read_bytes() == SOURCE


def test_diff_and_check_write_nothing(rewritten: Path, mixpert: Mixpert) -> None:
    before = rewritten.read_bytes()
    said = mixpert("unrewrite", "--diff", "net.py")
    assert said.code == 0
    assert "-import mixpert_py as _mixpert" in said.out
    assert mixpert("unrewrite", "--check", "net.py").code == 1
    assert rewritten.read_bytes() == before
    rewritten.write_bytes(SOURCE)
    assert mixpert("unrewrite", "--check", "net.py").code == 0
    assert os.listdir(rewritten.parent) == ["net.py"]


def test_folders(rewritten: Path, mixpert: Mixpert) -> None:
    package = rewritten.parent / "pkg"
    package.mkdir()
    (package / "plain.py").write_bytes(b"x = 1\n")
    (package / "b.py").write_bytes(b"y = a@b\n")
    (package / "broken.py").write_bytes(b"import mixpert_py as _mixpert\nx = (1 @\n")
    mixpert("rewrite", "-w", "pkg/b.py")
    said = mixpert("unrewrite", "-w", "-j", "2", ".")
    assert said.code == 2
    assert "broken.py: line 2" in said.one_clear_line()
    assert rewritten.read_bytes() == SOURCE
    assert (package / "b.py").read_bytes() == b"y = a@b\n"


def test_a_changed_call_is_named(rewritten: Path, mixpert: Mixpert) -> None:
    text = rewritten.read_bytes()
    rewritten.write_bytes(text.replace(b"x ,w, site", b"x ,w,   site"))
    said = mixpert("unrewrite", "-w", "net.py")
    assert (said.code, said.out) == (1, "net.py: 2 products restored\n")
    line = "mixpert: net.py: line 5: not restored: the call was changed after it was written"
    assert said.one_clear_line() == line
    assert rewritten.read_bytes().count(b"_mixpert.dot(") == 1
    (done,) = json.loads(mixpert("unrewrite", "--json", "--check", "net.py").out)
    assert [site["reason"] for site in done["sites"]] == [line.rpartition(": ")[2]]


def test_standard_input_goes_to_standard_output(mixpert: Mixpert) -> None:
    rewritten = mixpert("rewrite", "-", stdin="c = a@b\n").out
    assert mixpert("unrewrite", "-", stdin=rewritten).out == "c = a@b\n"
    assert mixpert("unrewrite", "-", "-w", stdin=rewritten).code == 2


def test_it_asks_where_to(rewritten: Path, mixpert: Mixpert) -> None:
    before = rewritten.read_bytes()
    for options in ([], ["-w", "--diff"], ["-w", "-o", "x.py"]):
        assert mixpert("unrewrite", *options, "net.py").code == 2
    assert rewritten.read_bytes() == before
    assert os.listdir(rewritten.parent) == ["net.py"]
