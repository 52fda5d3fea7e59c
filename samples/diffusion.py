"""Handwritten digits read from few labels: how far apart they are for a random walk among them."""

import argparse
from importlib.metadata import distribution

import numpy as np


def handwritten_digits():
    """Images (1797, 8, 8) between 0 and 1, and the digits that they show.

    From the file in scikit-learn's package: importing the package takes ten times as long.
    """
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(path, delimiter=",")
    return table[:, :64].reshape(-1, 8, 8) / 16.0, table[:, 64].astype(int)


def squared_distances(points):
    """‖x − y‖² of every pair of points, from one product."""
    products = points @ points.T
    squares = np.diagonal(products)
    return np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)


def random_walk(squared, neighbours):
    """One step between nearest neighbours, as a symmetric matrix, and where walks end."""
    farthest = np.partition(squared, neighbours, axis=1)[:, neighbours, None]
    near = squared <= np.maximum(farthest, farthest.T)
    affinity = near * np.exp(-squared / np.sqrt(farthest * farthest.T))
    degree = affinity.sum(axis=1)
    stationary = np.sqrt(degree / degree.sum())
    return affinity / np.sqrt(degree[:, None] * degree), stationary


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
    parser.add_argument("--doublings", type=int, default=9, help="of the time, from one step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    images, labels = handwritten_digits()
    order = np.random.default_rng(options.seed).permutation(len(images))[: options.size]
    images, labels = images[order], labels[order]
    labelled = np.arange(min(options.labels, len(order)))

    squared = squared_distances(images.reshape(len(images), 64))
    print(f"digits, labelled     {len(images)}, {len(labelled)}")
    print(f"accuracy, Euclidean  {accuracy(squared[:, labelled], labels, labelled):.4f}")
    for neighbours in (5, 8, 12):
        walk, stationary = random_walk(squared, neighbours)
        walk -= stationary[:, None] * stationary
        best = 0.0
        for _ in range(options.doublings):
            walk = walk @ walk
            distances = diffusion_distances(walk, stationary, labelled)
            best = max(best, accuracy(distances, labels, labelled))
        print(f"accuracy, {neighbours:2d} near    {best:.4f}")
    print(f"median distance      {np.median(distances):.6g}")
