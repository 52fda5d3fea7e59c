"""Programs whose products PyTorch makes itself, tuned on the host by the reference backend."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mixpert_py import plan as plan_file

pytest.importorskip("torch", reason="PyTorch is not installed")

PROGRAM = """
import sys
import torch

torch.manual_seed(0)
net = torch.nn.Linear(64, 32)


def predicted(x):
    return net(x)


if "compiled" in sys.argv:
    predicted = torch.compile(predicted)
y = predicted(torch.randn(16, 64))
y.square().mean().backward()
gradient = net.weight.grad
"""
LINE = 10


def done(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mixpert_py", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


def run(folder: Path, *words: str) -> str:
    ended = done(folder, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_one_plan_serves_a_module_eager_and_compiled(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROGRAM, "utf-8")
    emulated = ("--backend", "reference")
    told = run(tmp_path, "tune", *emulated, "--error", "1e-2", "p.py")
    assert "backward of net(x)" in " ".join(told.split())
    plan = plan_file.load(tmp_path / "p.mixpert.toml")
    forward, backward = sorted((site.id for site in plan.site), key=len)
    assert backward == forward.replace("#", ".backward#")
    assert forward.startswith("p:predicted/torch_mm~")
    planned = {site.id: {site.scheme} for site in plan.site}
    assert {"native"} not in planned.values()
    for words in ((), ("compiled",)):
        run(tmp_path, "run", *emulated, "--json", "profile.json", "p.py", *words)
        profile = json.loads((tmp_path / "profile.json").read_text("utf-8"))
        assert {site["id"]: set(site["schemes"]) for site in profile} == planned
        assert {site["line"] for site in profile} == {LINE}
    run(tmp_path, "verify", *emulated, "p.mixpert.toml", "p.py")


def test_an_estimate_lists_the_products_of_modules(tmp_path: Path) -> None:
    text = PROGRAM.replace("32)", "32, dtype=torch.double)").replace("64))", "64).double())")
    (tmp_path / "p.py").write_text(text, "utf-8")
    found = json.loads(run(tmp_path, "estimate", "--json", "p.py", "compiled"))
    assert {product["line"] for product in found["products"]} == {LINE}
