"""Answers of the samples that are known otherwise, and what lowering may do to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mixpert_py
from mixpert_py.passes.pipeline import rewrite

SAMPLES = Path(__file__).parents[2] / "samples"


def functions(name: str) -> dict[str, Any]:
    """What a rewritten sample defines."""
    defined = {"__name__": name}
    exec(rewrite((SAMPLES / f"{name}.py").read_bytes(), name), defined)
    return defined


def precision(scheme: str) -> mixpert_py.precision:
    return mixpert_py.precision(scheme, backend="reference")


class TestGaussianProcess:
    gp = functions("gp")

    def covariance(self, scheme: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        arguments = "--size 256 --asked 0 --channels 128 --noise 0.003"
        options = self.gp["parsed"](arguments.split())
        spectra, _, measured = self.gp["problem"](np, options)
        with precision(scheme):
            covariance = self.gp["kernel"](np, spectra, spectra)
        covariance[np.diag_indices(256)] = 1.0 + options.noise**2
        return covariance, measured

    @pytest.mark.parametrize("scheme", ["int8x1", "int8x3"])
    def test_a_covariance_of_few_slices_is_not_definite(self, scheme: str) -> None:
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            self.gp["learn"](np, *self.covariance(scheme))

    @pytest.mark.parametrize("band", [64, 100, 300])
    def test_half_a_kernel_is_that_of_the_whole(self, band: int) -> None:
        options = self.gp["parsed"](["--size", "256", "--asked", "0"])
        spectra, _, _ = self.gp["problem"](np, options)
        half = self.gp["lower_kernel"](np, spectra, band)
        whole = self.gp["kernel"](np, spectra, spectra)
        np.testing.assert_allclose(np.tril(half), np.tril(whole), atol=1e-14)

    @pytest.mark.parametrize("corner", [16, 48, 100])
    def test_the_factor_is_inverted_by_halves_of_any_size(self, corner: int) -> None:
        covariance, _ = self.covariance("native")
        covariance += np.eye(256)
        exact = np.linalg.inv(np.linalg.cholesky(covariance))
        covariance[np.triu_indices(256, 1)] = np.nan  # what is above the diagonal is not read
        self.gp["invert_factor"](np, covariance, corner)
        np.testing.assert_allclose(covariance, exact, atol=1e-12)

    @pytest.mark.parametrize("scheme", ["int8x6", "int8x10"])
    def test_with_more_of_them_it_is(self, scheme: str) -> None:
        _, likelihood = self.gp["learn"](np, *self.covariance(scheme))
        _, native = self.gp["learn"](np, *self.covariance("native"))
        assert likelihood == pytest.approx(native, rel=1e-3)


def test_alleles_go_together_as_often_as_counted_one_by_one() -> None:
    comet = functions("comet")
    alleles = comet["markers"](4, 300, 1, np.random.default_rng(0))
    found = comet["correlation"](np, alleles)

    def frequency(counts: NDArray[np.int8], allele: int) -> float:
        return float(np.mean(counts == allele) + np.mean(counts == 1) / 2)

    for i, j in [(0, 1), (0, 2), (3, 1), (2, 2)]:
        both = (alleles[i] >= 0) & (alleles[j] >= 0)
        for high_i, high_j in [(0, 0), (0, 1), (1, 0), (1, 1)]:
            has_i = abs(alleles[i][both] - 2 * (1 - high_i)) / 2
            has_j = abs(alleles[j][both] - 2 * (1 - high_j)) / 2
            rare_i = 1 - frequency(alleles[i][alleles[i] >= 0], 2 * high_i) / 1.5
            rare_j = 1 - frequency(alleles[j][alleles[j] >= 0], 2 * high_j) / 1.5
            expected = 4.5 * np.mean(has_i * has_j) * rare_i * rare_j
            assert found[i, j, high_i, high_j] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scheme", ["int8x1", "fp16"])
def test_counts_of_alleles_are_exact_in_one_slice(scheme: str) -> None:
    comet = functions("comet")
    alleles = comet["markers"](40, 2000, 5, np.random.default_rng(0))
    native = comet["correlation"](np, alleles)
    with precision(scheme):
        np.testing.assert_array_equal(comet["correlation"](np, alleles), native)


@pytest.mark.parametrize(("scheme", "most"), [("native", 2), ("int8x6", 2), ("int8x1", 20)])
def test_the_refined_solution_passes_whatever_made_the_factors(scheme: str, most: int) -> None:
    hpl = functions("hpl_ai")
    a, b = hpl["system"](300, np.random.default_rng(0))
    with precision(scheme):
        factors = hpl["factorize"](np, a, 64)
    x, residual, steps = hpl["refine"](np, a, b, lambda r: hpl["substitute"](np, factors, 64, r))
    assert residual < 1.0
    assert 1 <= sum(steps) <= most
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-10)


def test_refinement_by_lowered_residuals_fails() -> None:
    hpl = functions("hpl_ai")
    a, b = hpl["system"](200, np.random.default_rng(0))
    factors = hpl["factorize"](np, a, 64)
    with precision("int8x3"):
        _, residual, _ = hpl["refine"](
            np, a, b, lambda r: hpl["substitute"](np, factors, 64, r), most=3
        )
    assert residual > 1e6


@pytest.mark.parametrize(("scheme", "bound"), [("native", 1e-5), ("int8x6", 3e-5)])
def test_blocks_are_inverted_in_stacks(scheme: str, bound: float) -> None:
    batched = functions("batched16")
    a = batched["blocks"](50, np.random.default_rng(0))
    with precision(scheme):
        inverse = batched["inverted"](np, a, 10)
    assert abs(inverse - np.linalg.inv(a.astype(np.float64))).max() < bound
