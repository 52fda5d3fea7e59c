"""Principal components of the edges in handwritten digits, by subspace iteration."""

import argparse
import importlib

import numpy as np
from sklearn.datasets import load_digits


def shifted(images):
    """Every image moved by up to one pixel, in nine ways: (9 · count, 8, 8)."""
    shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return np.concatenate([np.roll(images, shift, axis=(1, 2)) for shift in shifts])


def oriented_gradients(images, orientations=8):
    """Strength of the edges of each orientation at every pixel: (count, 64 · orientations)."""
    down, right = np.gradient(images, axis=(1, 2))
    angles = 2 * np.pi * np.arange(orientations) / orientations
    edges = [np.maximum(right * np.cos(angle) + down * np.sin(angle), 0.0) for angle in angles]
    return np.concatenate(edges, axis=1).reshape(len(images), -1)


def subspace_iteration(xp, x, count, iterations, rng):
    """Orthonormal columns close to the leading right singular vectors of x, strongest first."""
    basis, _ = xp.linalg.qr(xp.asarray(rng.standard_normal((x.shape[1], count))))
    for _ in range(iterations):
        scores = x @ basis
        basis, _ = xp.linalg.qr(xp.matmul(x.T, scores))
    return basis


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--components", type=int, default=96)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    images = shifted(load_digits().images[: options.size] / 16.0)
    features = xp.asarray(oriented_gradients(images))
    features -= features.mean(axis=0)
    rng = np.random.default_rng(options.seed)

    components = subspace_iteration(xp, features, options.components, options.iterations, rng)
    projected = features.dot(components)
    explained = (projected**2).sum(axis=0) / (features**2).sum()
    rebuilt = xp.dot(projected, components.T)
    error = xp.linalg.norm(features - rebuilt) / xp.linalg.norm(features)

    print(f"images                        {len(features)}")
    print(f"explained by first component  {float(explained[0]):.4f}")
    print(f"explained by all {len(explained):>3}          {float(explained.sum()):.4f}")
    print(f"reconstruction error          {float(error):.4f}")
