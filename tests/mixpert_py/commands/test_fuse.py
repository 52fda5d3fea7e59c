"""`--fuse`: the same program, its sums fused; what it wrote is known without the option."""

import json
from pathlib import Path

from tests.mixpert_py.command import Mixpert

PROGRAM = """\
import numpy as np
import net
c = np.ones((3, 3))
c += np.eye(3) @ c
print(c.sum(), net.layer(c, c, 1.0).sum())
"""
NET = "def layer(x, w, b): return x @ w + b\n"


def write(folder: Path) -> None:
    (folder / "app.py").write_text(PROGRAM)
    (folder / "net.py").write_text(NET)


def test_files_are_fused_and_checked(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path)
    assert mixpert("rewrite", "-w", "--fuse", "app.py", "net.py").code == 0
    assert "_mixpert.fused(c, np.eye(3), c, " in (tmp_path / "app.py").read_text()
    assert "_mixpert.fused(x, w, b, " in (tmp_path / "net.py").read_text()
    for options in ((), ("--fuse",)):
        assert mixpert("rewrite", "--check", *options, "app.py", "net.py").code == 0


def test_sites_have_the_ids_of_their_products(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path)
    plain, fused = (
        json.loads(mixpert("sites", "--json", *options, "app.py", "net.py").out)
        for options in ((), ("--fuse",))
    )
    assert [site["id"] for site in plain] == [site["id"] for site in fused]
    assert [site["expression"] for site in fused] == ["c += np.eye(3) @ c", "x @ w + b"]


def test_a_program_runs_fused_with_its_modules(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path)
    plain = mixpert("run", "app.py")
    (tmp_path / "app.py").write_text(PROGRAM + "import dis\nprint(dis.Bytecode(net.layer).dis())")
    fused = mixpert("run", "--fuse", "app.py")
    assert (plain.code, fused.code, fused.err) == (0, 0, "")
    assert fused.out.startswith(plain.out)
    assert "fused" in fused.out
    assert "fused" not in mixpert("run", "app.py").out
