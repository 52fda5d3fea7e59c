"""`mixpert doctor --warm`: what it compiles for, what it says, on GPUs that are not there."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.doctor import SHAPES, compile_for, expectations
from mixpert_py.errors import DeviceError
from mixpert_py.plan import Plan, Site, save
from mixpert_py.runtime.gpu import warm as gpu_warm
from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.gpu.warm import Expected
from mixpert_py.runtime.kernels import compile as compiling
from mixpert_py.runtime.reasons import Reason
from tests.fresh_home import ROOT, command, environment
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu

LARGE = [4096, 4096, 4096]


def plan(*schemes: str, shapes: list[list[int]] | None = None, block: int | None = None) -> Plan:
    sites = [
        Site(id=f"m:f/matmul~aa{i}#0", scheme=scheme, shapes=shapes or [], block=block)
        for i, scheme in enumerate(schemes)
    ]
    return Plan(site=sites)


class Compiled:
    """What is to be compiled, noted in the place of doing it. reason: the outcome of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reason: Reason | None = None) -> None:
        self.reason = reason
        self.asked: list[tuple[Expected, tuple[int, int, int], bool, bool]] = []
        monkeypatch.setattr(gpu_warm, "compile_kernels", self)

    def __call__(self, expected: Any, shape: Any, *, a_turned: bool, b_turned: bool) -> Any:
        self.asked.append((expected, shape, a_turned, b_turned))
        compiling.origins["compiled"] += 1
        compiling.origins["shipped"] += 2
        return self.reason


def test_without_a_plan_it_is_the_default() -> None:
    assert expectations([]) == {Expected("faithful", None, "float32"): list(SHAPES)}


def test_every_layout_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    compiled = Compiled(monkeypatch)
    findings = compile_for([plan("int8x6", "int8x3", shapes=[LARGE, [8, 8, 8]])])
    assert [finding.what for finding in findings] == [
        f"{scheme} of {dtype}"
        for scheme in ("int8x6", "int8x3")
        for dtype in ("float32", "float64")
    ]
    assert all(finding.fine for finding in findings)
    assert findings[0].found.startswith("4 kernels compiled, 8 came with the package; ")
    layouts = {(a, b) for expected, _, a, b in compiled.asked if expected.scheme == "int8x6"}
    assert len(layouts) == 4
    assert {shape for _, shape, _, _ in compiled.asked} == {(4096, 4096, 4096)}  # 8 is too small


def test_what_is_native_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    compiled = Compiled(monkeypatch)
    found = [finding.found for finding in compile_for([plan("int8x6", shapes=[[8, 8, 8]])])]
    assert found == ["nothing to compile: products of these sizes are native"] * 2
    (nothing,) = compile_for([plan("native")])
    assert nothing.found == "no site of the plan has a scheme with kernels of ours"
    assert not compiled.asked


def test_a_kernel_that_does_not_compile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    Compiled(monkeypatch, Reason.KERNEL)
    state_of(0).refused["bf16x6"] = "kernel 'gemm': no such instruction"  # small products
    (finding,) = compile_for([])
    assert (finding.found, finding.fine) == ("kernel 'gemm': no such instruction", False)


def test_without_a_gpu_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(error=CUDARuntimeError(35), driver=0).install(monkeypatch)
    with pytest.raises(DeviceError, match=r"is here: there is no NVIDIA driver$"):
        compile_for([])


def test_without_a_gpu_the_command_fails(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("mixpert_py", "doctor", "--warm"),
        cwd=ROOT,
        env=environment(tmp_path) | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("mixpert: --warm compiles for the GPU that is here: ")


def doctor(home: Path, *plans: Path) -> str:
    """What `mixpert doctor --warm` prints where nothing is cached."""
    arguments = command("mixpert_py", "doctor", "--warm", *map(str, plans))
    ended = subprocess.run(
        arguments, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True
    )
    return ended.stdout


@pytest.mark.gpu
def test_nothing_of_the_default_is_compiled(tmp_path: Path) -> None:
    said = doctor(tmp_path)
    assert "faithful of float32" in said
    assert " 0 kernels compiled, " in said


@pytest.mark.gpu
def test_what_a_plan_needs_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    save(plan("egemm", shapes=[LARGE]), path)
    assert "egemm of float32" in doctor(tmp_path, path)
    assert list((tmp_path / ".cache" / "mixpert" / "kernels").iterdir())
