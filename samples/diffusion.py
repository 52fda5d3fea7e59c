"""Handwritten digits read from few labels: how far apart they are for a random walk among them."""

import argparse

import numpy as np
from sklearn.datasets import load_digits


def squared_distances(points):
    """‖x − y‖² of every pair of points, from one product."""
    products = points @ points.T
    squares = np.diagonal(products)
    return np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)


def random_walk(points, neighbours):
    """A walk between nearest neighbours, as a symmetric matrix, and where it is in the end."""
    squared = squared_distances(points)
    farthest = np.partition(squared, neighbours, axis=1)[:, neighbours, None]
    near = squared <= np.maximum(farthest, farthest.T)
    affinity = near * np.exp(-squared / np.sqrt(farthest * farthest.T))
    degree = affinity.sum(axis=1)
    walk = affinity / np.sqrt(degree[:, None] * degree)
    stationary = np.sqrt(degree / degree.sum())
    return walk - stationary[:, None] * stationary, stationary


def diffusion_distances(walk, stationary, labelled):
    """Squared diffusion distances (Coifman & Lafon 2006) of every point to the labelled ones."""
    own = np.diagonal(walk) / stationary**2
    shared = walk[:, labelled] / (stationary[:, None] * stationary[labelled])
    return own[:, None] + own[labelled] - 2.0 * shared


def accuracy(distances, labels, labelled):
    """Share of the other points whose nearest labelled one has their label."""
    right = labels[labelled[distances.argmin(axis=1)]] == labels
    return np.delete(right, labelled).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--labels", type=int, default=40, help="number of digits with a label")
    parser.add_argument("--doublings", type=int, default=10, help="of the time, from one step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    digits = load_digits()
    order = np.random.default_rng(options.seed).permutation(len(digits.data))[: options.size]
    images, labels = digits.data[order] / 16.0, digits.target[order]
    labelled = np.arange(min(options.labels, len(labels)))

    print(f"digits, labelled     {len(images)}, {len(labelled)}")
    plain = squared_distances(images)[:, labelled]
    print(f"accuracy, Euclidean  {accuracy(plain, labels, labelled):.4f}")
    walk, stationary = random_walk(images, neighbours=8)
    for doubling in range(options.doublings):
        walk = walk @ walk
        distances = diffusion_distances(walk, stationary, labelled)
        print(f"accuracy, {2**doubling:4d} steps {accuracy(distances, labels, labelled):.4f}")
