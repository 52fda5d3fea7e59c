"""The best of several classes, half of whose scores are as good as equal."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
features, weights = rng.standard_normal((800, 256)), rng.standard_normal((256, 8))
weights[:, 4:] = weights[:, :4] + 1e-4 * rng.standard_normal((256, 4))
labels = (features @ weights).argmax(1)
print(labels[:10])
