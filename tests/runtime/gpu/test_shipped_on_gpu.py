"""Products are the same, whether their kernels were shipped or are compiled here."""

import subprocess

import pytest

from tests.fresh_home import ROOT, command

pytestmark = pytest.mark.gpu


def printed(*arguments: str) -> str:
    ended = subprocess.run(
        command("tests.runtime.gpu.shipped_products", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_results_do_not_depend_on_what_is_shipped() -> None:
    with_them = printed()
    assert with_them.count("\n") == 24
    assert with_them == printed("without")
