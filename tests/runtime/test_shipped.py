"""Kernels that come with the package: up to date, whole, and of no effect but on time."""

from pathlib import Path
from typing import Any

import pytest

from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.compile import entry
from tests.measure import shipped_kernels

KERNELS = shipped_kernels.kernels(shipped.PORTABLE)
HOPPERS = shipped_kernels.kernels(shipped.HOPPER)


def test_the_archive_is_up_to_date() -> None:
    """`python -m tests.measure.shipped_kernels` makes it so."""
    assert shipped_kernels.is_current()


@pytest.mark.parametrize("capability", ["80", "86", "89", "90", "120"])
def test_what_is_shipped_is_for_the_device(capability: str) -> None:
    for kernel in KERNELS:
        ptx = shipped.find(*kernel, capability)
        assert ptx is not None
        assert entry(ptx)
        target = ".target sm_90" if capability == "90" else ".target sm_80"
        assert target.encode() in ptx


def test_what_is_not_shipped() -> None:
    module, factory, constants = KERNELS[0]
    assert shipped.find(module, factory, (*constants, 1), "90") is None
    assert shipped.find(module, factory, constants, "75") is None


def test_of_other_sources_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed file is enough."""
    real = shipped.digest
    changed = "packing/repair_kernels.py"
    monkeypatch.setattr(shipped, "digest", lambda path: real(path) * (1 + (path == changed)))
    assert shipped._archive.__wrapped__() is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", None])
def test_an_archive_that_is_none(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / shipped.ARCHIVE).write_bytes(content)
    places: dict[str, Any] = {shipped.RUNTIME: tmp_path, f"{shipped.RUNTIME}.kernels": tmp_path}
    monkeypatch.setattr(shipped, "files", places.__getitem__)
    assert shipped._archive.__wrapped__() is None


def test_sources_are_all_that_kernels_are_made_of() -> None:
    found = shipped_kernels.sources({"mixpert_py.runtime.packing.strip_kernels"})
    assert {"packing/strip_kernels.py", "packing/digits.py", "splitter.py"} <= found.keys()


def test_drivers_of_cuda_12_take_what_is_shipped() -> None:
    for kernel in KERNELS:
        ptx = shipped.find(*kernel, "90" if kernel in HOPPERS else "80")
        assert ptx is not None
        assert b".version 8.1\n" in ptx
