"""Walks and triangles of a random graph, counted by products of integers."""

import argparse

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=400, help="number of nodes")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

rng = np.random.default_rng(options.seed)
upper = np.triu(rng.random((options.size, options.size)) < 0.02, 1).astype(np.int64)
edges = upper + upper.T
walks = edges.copy()
for length in range(2, 6):
    walks = walks @ edges
    print(f"walks of {length} edges  {walks.sum()}")
print(f"triangles  {np.trace(edges @ edges @ edges) // 6}")
