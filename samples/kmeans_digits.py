"""Lloyd's k-means on handwritten digits: how pure are clusters that never saw a label?"""

import argparse
import importlib

import numpy as np
from sklearn.datasets import load_digits


def shifted(images):
    """Every image as it is and moved by one pixel in four ways: (5 · count, 8, 8)."""
    shifts = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    return np.concatenate([np.roll(images, shift, axis=(1, 2)) for shift in shifts])


def oriented_gradients(images, orientations=12):
    """Strength of the edges of each orientation at every pixel: (count, 64 · orientations)."""
    down, right = np.gradient(images, axis=(1, 2))
    angles = 2 * np.pi * np.arange(orientations) / orientations
    edges = [np.maximum(right * np.cos(angle) + down * np.sin(angle), 0.0) for angle in angles]
    return np.concatenate(edges, axis=1).reshape(len(images), -1)


def squared_distances(xp, points, centres):
    """‖point − centre‖² for every pair, from one product."""
    cross = xp.dot(points, centres.T)
    return (points**2).sum(axis=1)[:, None] - 2.0 * cross + (centres**2).sum(axis=1)


def means(xp, points, nearest, centres):
    """The mean of each cluster, or its old centre if nothing is nearest to it."""
    members = xp.zeros((len(points), len(centres)))
    members[xp.arange(len(points)), nearest] = 1.0
    counts = members.sum(axis=0)[:, None]
    totals = members.T @ points
    return xp.where(counts > 0, totals / xp.maximum(counts, 1.0), centres)


def purity(xp, nearest, labels):
    """Share of points whose label is the most frequent one of their cluster."""
    counts = xp.zeros((int(nearest.max()) + 1, int(labels.max()) + 1))
    xp.add.at(counts, (nearest, labels), 1)
    return float(counts.max(axis=1).sum()) / len(labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--clusters", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    digits = load_digits()
    points = xp.asarray(oriented_gradients(shifted(digits.images[: options.size] / 16.0)))
    labels = xp.asarray(np.tile(digits.target[: options.size], 5))

    rng = np.random.default_rng(options.seed)
    first = rng.choice(len(points), options.clusters, replace=False)
    centres = points[xp.asarray(first)]
    for _ in range(options.iterations):
        nearest = squared_distances(xp, points, centres).argmin(axis=1)
        centres = means(xp, points, nearest, centres)

    distances = squared_distances(xp, points, centres)
    inertia = distances.min(axis=1).sum()
    print(f"points    {len(points)}")
    print(f"inertia   {float(inertia):.6f}")
    print(f"purity    {purity(xp, distances.argmin(axis=1), labels):.4f}")
