"""The launch where rows are contiguous, and K is one block that the registers of a thread block
cluster hold: compute capability 9.0.
"""

from functools import lru_cache
from typing import NamedTuple

from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing.launch import Plan, has_vectors, places
from mixpert_py.runtime.packing.layout import ACROSS, APART, PANEL
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.packing.side import Side
from mixpert_py.runtime.splitter import Splitter

PORTABLE = 8  # blocks of a cluster: more are taken as twice as many


class Tuning(NamedTuple):
    """Sizes of launches that change no bit.

    shapes: threads of a block, and the most blocks of a cluster; the first that holds K is taken.
    wide_shapes: the same where slices are made of, or in, double precision.
    """

    shapes: tuple[tuple[int, int], ...] = ((256, 8), (512, 8), (512, 16), (1024, 16))
    wide_shapes: tuple[tuple[int, int], ...] = ((256, 8), (256, 16))


DEFAULT = Tuning()


@lru_cache
def has_clusters(device: int) -> bool:
    """Whether a device has thread block clusters, of more than eight blocks too."""
    import cupy

    return bool(cupy.cuda.Device(device).compute_capability == "90")


def shape(side: Side, k: int, tuning: Tuning = DEFAULT) -> tuple[int, int] | None:
    """Threads of a block, and blocks of a cluster, that hold k; None if none do."""
    positions = -(-k // STEP) * STEP
    for threads, most in tuning.shapes if side.single else tuning.wide_shapes:
        blocks = -(-positions // threads)
        if blocks > PORTABLE:
            blocks = 1 << (blocks - 1).bit_length()
        if blocks <= most:
            return threads, blocks
    return None


def room(side: Side, threads: int) -> int:
    """Bytes of shared memory, besides what the kernel itself says: sums of each row and part."""
    return 4 * (threads // ACROSS) * APART * max(side.sums, 1)


def plan(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> Plan:
    """For one operand whose rows are contiguous, or two of one type and splitter; for what
    `rows.suits`, and K that a cluster holds.

    result: the type of the product. Raises ShapeError where an operand is empty.
    """
    layouts, sides = places(splitters, forms, result, rule)
    assert sides[0] == sides[-1]
    k = forms[0].k
    found = shape(sides[0], k, tuning)
    assert found is not None
    threads, blocks = found
    of_matrix = [-(-x.rows // PANEL) for x in forms]
    panels = [x.batch * count for x, count in zip(forms, of_matrix, strict=True)]
    words = tuple(
        (x.rows, x.batch_stride, x.k_stride, int(has_vectors(x, x.k_stride)), count)
        for x, count in zip(forms, of_matrix, strict=True)
    )
    return Plan(
        ("cluster_kernels", "cluster_kernel"),
        (sides[0], threads, blocks),
        *(splitters, layouts, words),
        (panels[0], k, layouts[0].steps),
        blocks * sum(panels),
        threads,
        room(sides[0], threads),
    )
