"""Principal components of the edges in handwritten digits, by subspace iteration."""

import argparse
import importlib

import numpy as np


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


def edges_of_digits(count):
    """Edge features of so many digits, each in nine shifts."""
    from sklearn.datasets import load_digits

    return oriented_gradients(shifted(load_digits().images[:count] / 16.0))


def random_features(xp, rows, columns, rng):
    """Rows (rows, columns), float32, whose variance falls off from component to component."""
    strength = 1.0 / (1.0 + xp.arange(columns, dtype=xp.float32) / 8.0)
    turn, _ = xp.linalg.qr(xp.asarray(rng.standard_normal((columns, columns), np.float32)))
    amounts = xp.asarray(rng.standard_normal((rows, columns), np.float32))
    return (amounts * strength) @ turn


def subspace_iteration(xp, scatter, start, iterations):
    """Orthonormal columns close to the leading eigenvectors of a matrix, strongest first."""
    basis, _ = xp.linalg.qr(start)
    for _ in range(iterations):
        basis, _ = xp.linalg.qr(scatter @ basis)
    return basis


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--components", type=int, default=96)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--random",
        type=int,
        nargs=2,
        metavar=("ROWS", "COLUMNS"),
        help="random data instead of digits",
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The features, without their mean, and what the iteration starts from."""
    if options.random is None:
        features = edges_of_digits(options.size)
    else:
        features = random_features(xp, *options.random, np.random.default_rng(options.seed + 1))
    features = xp.asarray(features, options.dtype)
    features -= features.mean(axis=0)
    rng = np.random.default_rng(options.seed)
    start = rng.standard_normal((features.shape[1], options.components))
    return features, xp.asarray(start, options.dtype)


def work(xp, options, features, start):
    scatter = xp.matmul(features.T, features)
    components = subspace_iteration(xp, scatter, start, options.iterations)
    projected = features.dot(components)
    explained = (projected**2).sum(axis=0) / scatter.trace()
    return explained, components, projected


def report(xp, options, explained, components, projected, features, start):
    # What components rebuild of the features is at right angles to the rest.
    error = max(1.0 - float(explained.sum()), 0.0) ** 0.5
    print(f"images                        {len(features)}")
    print(f"explained by first component  {float(explained[0]):.4f}")
    print(f"explained by all {len(explained):>3}          {float(explained.sum()):.4f}")
    print(f"reconstruction error          {error:.4f}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    features, start = problem(xp, options)
    explained, components, projected = work(xp, options, features, start)
    report(xp, options, explained, components, projected, features, start)
