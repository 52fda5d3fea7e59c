"""Certificates of many products as one of their stack."""

from collections.abc import Sequence

import numpy as np

from mixpert_py.runtime.certificates.certificate import Certificate


def nothing_lost(m: int, n: int) -> Certificate:
    """The certificate of an exact product, an empty sum say."""
    return Certificate(np.zeros((m, 1)), np.zeros((1, n)), 0.0, np.zeros(m), np.zeros(n))


def stacked(
    certificates: Sequence[Certificate], stack: tuple[int, ...], m: int, n: int
) -> Certificate:
    """One certificate whose factors, losses and bound have the stack's axes in front.

    certificates: of products (m, n), in C order; the only one itself where there is no stack.
    """
    if stack == ():
        return certificates[0]
    rank = max((one.left.shape[1] for one in certificates), default=1)
    left, right = np.zeros((len(certificates), m, rank)), np.zeros((len(certificates), rank, n))
    for i, one in enumerate(certificates):
        own = one.left.shape[1]
        left[i, :, :own], right[i, :own] = one.left, one.right
    losses = [
        np.array([getattr(one, side) for one in certificates]).reshape(*stack, size)
        for side, size in (("left_loss", m), ("right_loss", n))
    ]
    return Certificate(
        left.reshape(*stack, m, rank),
        right.reshape(*stack, rank, n),
        max((one.floor for one in certificates), default=0.0),
        losses[0],
        losses[1],
    )
