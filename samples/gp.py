"""Gaussian process regression: a property of mixtures from their spectra, and how sure it is."""

import argparse
import importlib

import numpy as np


def mixtures(count, channels, noise, rng):
    """Spectra (count, channels), the property that their amounts have, and noisy measurements."""
    amounts = rng.uniform(0.0, 1.0, (count, 4))
    centres = rng.uniform(0.0, channels, (4, 1, 8))
    heights = rng.uniform(0.5, 1.5, (4, 1, 8))
    offsets = (np.arange(channels)[:, None] - centres) / (channels / 24)
    lines = (heights * np.exp(-0.5 * offsets**2)).sum(axis=2)
    truth = np.sin(2.0 * amounts[:, 0] + amounts[:, 1]) + amounts[:, 2] * np.cos(amounts[:, 3])
    return amounts @ lines, truth, truth + noise * rng.standard_normal(count)


def kernel(xp, x, y, out=None):
    """Covariance exp(−½ |x − y|²) of all rows of x and y, where |x − y|² = |x|² + |y|² − 2 x·y."""
    near = xp.matmul(x, y.T, out=out)
    near -= 0.5 * (x**2).sum(axis=1)[:, None]
    near -= 0.5 * (y**2).sum(axis=1)
    return xp.exp(near, out=near)


def lower_kernel(xp, x, band=2048):
    """The same of all rows of x, from the diagonal down, band by band; the rest is not written."""
    covariance = xp.empty((len(x), len(x)), x.dtype)
    for start in range(0, len(x), band):
        stop = start + band
        kernel(xp, x[start:stop], x[:stop], out=covariance[start:stop, :stop])
    return covariance


def invert_factor(xp, matrix, corner=256):
    """Make a matrix, read from the diagonal down, L⁻¹ of its Cholesky factor L, by halves.

    A corner is small and well conditioned: its inverse is as good as substitution.
    """
    if len(matrix) <= corner:
        matrix[...] = xp.linalg.inv(xp.linalg.cholesky(matrix))
        return
    half = -(-len(matrix) // (2 * corner)) * corner
    first, below, last = matrix[:half, :half], matrix[half:, :half], matrix[half:, half:]
    invert_factor(xp, first, corner)
    across = below @ first.T
    last -= across @ across.T
    invert_factor(xp, last, corner)
    xp.matmul(across, first, out=below)
    xp.matmul(last, below, out=across)
    xp.negative(across, out=below)
    matrix[:half, half:] = 0.0


def learn(xp, covariance, measured):
    """Weights of the known points, and log marginal likelihood; the covariance becomes L⁻¹."""
    invert_factor(xp, covariance)
    whitened = covariance @ measured
    weights = covariance.T @ whitened
    fit = 0.5 * float((whitened**2).sum()) - float(xp.log(xp.diagonal(covariance)).sum())
    return weights, -fit - 0.5 * len(measured) * np.log(2.0 * np.pi)


def predict(xp, cross, inverse, weights):
    """Mean and variance of what new points have, given their covariance with the known ones."""
    explained = xp.dot(cross, inverse.T)
    xp.square(explained, out=explained)
    return cross @ weights, 1.0 - explained.sum(axis=1)


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="number of known mixtures")
    parser.add_argument("--asked", type=int, default=1024, help="number of mixtures held out")
    parser.add_argument("--channels", type=int, default=512, help="of each spectrum")
    parser.add_argument(
        "--length", type=float, default=1.5, help="scale of the kernel, in deviations of spectra"
    )
    parser.add_argument("--noise", type=float, default=0.01, help="of each measurement")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """Spectra, the property, and its measurements; those of the known mixtures come first."""
    n = options.size
    spectra, truth, measured = mixtures(
        n + options.asked, options.channels, options.noise, np.random.default_rng(options.seed)
    )
    spectra -= spectra[:n].mean(axis=0)  # of smaller x and y, |x − y|² cancels less
    spectra /= options.length * np.sqrt(spectra[:n].var(axis=0).sum())
    return tuple(xp.asarray(x, options.dtype) for x in (spectra, truth, measured))


def work(xp, options, spectra, truth, measured):
    n = options.size
    known, asked = spectra[:n], spectra[n:]
    covariance = lower_kernel(xp, known)
    covariance[xp.diag_indices_from(covariance)] = 1.0 + options.noise**2
    weights, likelihood = learn(xp, covariance, measured[:n])
    return *predict(xp, kernel(xp, asked, known), covariance, weights), likelihood


def report(xp, options, mean, variance, likelihood, spectra, truth, measured):
    """Print how near the means are to the truth, and how often as near as they ought to be."""
    n = options.size
    miss = mean - truth[n:]
    sure = abs(mean - measured[n:]) < 1.96 * xp.sqrt(variance + options.noise**2)
    print(f"mixtures known           {n}, {options.asked} held out")
    print(f"log marginal likelihood  {likelihood:.4f}")
    print(f"within 95 % intervals    {float(sure.mean()):.4f}")
    print(f"root mean square error   {float(xp.sqrt((miss**2).mean())):.6f}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    spectra, truth, measured = problem(xp, options)
    mean, variance, likelihood = work(xp, options, spectra, truth, measured)
    report(xp, options, mean, variance, likelihood, spectra, truth, measured)
