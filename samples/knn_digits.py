"""Off-centre handwritten digits read by nearest neighbours, in a metric learnt from shifts."""

import argparse

import numpy as np
from sklearn.datasets import load_digits

SHIFTS = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]  # pixels down and right


def shifted(images):
    """Every image as it is and moved by one pixel in four ways: (5 · count, 8, 8)."""
    return np.concatenate([np.roll(images, shift, axis=(1, 2)) for shift in SHIFTS])


def oriented_gradients(images, orientations=12):
    """Strength of the edges of each orientation at every pixel: (count, 64 · orientations)."""
    down, right = np.gradient(images, axis=(1, 2))
    angles = 2 * np.pi * np.arange(orientations) / orientations
    edges = [np.maximum(right * np.cos(angle) + down * np.sin(angle), 0.0) for angle in angles]
    return np.concatenate(edges, axis=1).reshape(len(images), -1)


def shift_metric(images, ridge):
    """W such that what a shift does to an image's features has, times W, about unit covariance."""
    features = oriented_gradients(images)
    moved = oriented_gradients(shifted(images)) - np.tile(features, (len(SHIFTS), 1))
    scatter = moved.T @ moved / len(moved)
    scatter += ridge * np.trace(scatter) / len(scatter) * np.eye(len(scatter))
    return np.linalg.inv(np.linalg.cholesky(scatter)).T


def squared_distances(rows, columns):
    """‖row − column‖² for every pair, from one product."""
    cross = np.dot(rows, columns.T)
    return (rows**2).sum(axis=1)[:, None] - 2.0 * cross + (columns**2).sum(axis=1)


def accuracy(distances, known_labels, labels, neighbours):
    """Share of rows whose nearest columns have the row's label most often."""
    nearest = np.argpartition(distances, neighbours, axis=1)[:, :neighbours]
    votes = np.stack([(known_labels[nearest] == digit).sum(axis=1) for digit in range(10)])
    return np.mean(votes.argmax(axis=0) == labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--neighbours", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    digits = load_digits()
    order = np.random.default_rng(options.seed).permutation(len(digits.images))[: options.size]
    images, labels = digits.images[order] / 16.0, digits.target[order]
    held_out = len(images) // 3

    known = oriented_gradients(images[held_out:])
    asked = oriented_gradients(shifted(images[:held_out]))
    metric = shift_metric(images[held_out:], ridge=0.001)
    distances = squared_distances(np.matmul(asked, metric), np.matmul(known, metric))
    plain = squared_distances(asked, known)

    count = options.neighbours
    known_labels = labels[held_out:]
    truth = np.tile(labels[:held_out], len(SHIFTS))
    print(f"known digits         {len(known)}")
    print(f"off-centre digits    {len(asked)}")
    print(f"accuracy, Euclidean  {accuracy(plain, known_labels, truth, count):.4f}")
    print(f"accuracy, learnt     {accuracy(distances, known_labels, truth, count):.4f}")
