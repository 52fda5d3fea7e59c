"""Which instructions are timed, by which names, and with what."""

import re

import pytest

from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.probes.gpu import PACKAGE
from mixpert_py.runtime.probes.instructions import GROUP
from mixpert_py.runtime.probes.specs import Spec, largest_int8, specs


@pytest.mark.parametrize(("capability", "count"), [(80, 11), (89, 11), (90, 12 + 32), (100, 11)])
def test_names_say_what_is_timed(capability: int, count: int) -> None:
    found = {spec.name: spec for spec in specs(capability)}
    assert len(found) == count
    assert {spec.element for spec in found.values()} == {
        *("int8", "float16", "bfloat16", "tf32", "float32", "float64"),
    }
    for name, spec in found.items():
        size = re.search(r" m(\d+)n(\d+)k(\d+) ", name)
        m, n, k = map(int, size.groups()) if size else (32, 1, 1)
        assert spec.operations == 2 * m * n * k
        assert spec.element in name.split()
        assert spec.threads % spec.group == 0
    if capability == 90:
        kinds = ("k32 int8", "k16 float16", "k16 bfloat16", "k8 tf32")
        assert {f"wgmma m64n192{kind}" for kind in kinds} < set(found)
        assert "wgmma m64n256k32 int8 registers" in found
    assert "mma.sync m16n8k16 float16" in found


def test_the_largest_product_of_integers() -> None:
    assert largest_int8(80).name == "mma.sync m16n8k32 int8"
    assert largest_int8(90).name == "wgmma m64n256k32 int8"


@pytest.mark.parametrize("spec", specs(90), ids=lambda spec: spec.name)
def test_every_constant_is_used(spec: Spec) -> None:
    text = source_text(spec.file, (), PACKAGE)
    assert all(re.search(rf"\b{key}\b", text) for key in spec.constants)


def test_a_file_is_included_from_this_folder_or_from_that_of_the_kernels() -> None:
    text = source_text("wgmma.cu", (("TILE_N", 64),), PACKAGE)
    assert text.startswith("#define TILE_N 64\n")
    assert "#include" not in text
    assert "random_bits" in text  # operands.cuh
    assert "wgmma.mma_async" in text  # ../kernels/wgmma.cuh


def test_sums_of_a_full_chip_take_turns_and_those_of_a_chain_do_not() -> None:
    for spec in specs(90):
        if spec.name.startswith("fma"):
            assert spec.constants["SUMS"] == 1
            assert GROUP % int(spec.full["SUMS"]) == 0
            assert set(spec.full) < set(spec.constants)
        else:
            assert not spec.full


def test_the_group_of_a_chain_is_what_is_counted() -> None:
    assert f"constexpr int GROUP = {GROUP};" in source_text("timing.cuh", (), PACKAGE)
