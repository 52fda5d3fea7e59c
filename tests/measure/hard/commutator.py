"""What is left of two products that nearly cancel."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
first = rng.standard_normal((200, 200))
second = np.linalg.inv(np.eye(200) - first / 30) + 1e-3 * rng.standard_normal((200, 200))
commutator = first @ second - second @ first
print(np.linalg.norm(commutator))
