"""Break-even figures with a plain meaning."""

import math

from mixpert_py.runtime.worth import Dims, Figures


def pays_from(
    volume: float,
    thickness: float = 0.0,
    staging: float = 8e9,
    latency: float = 0.0,
    host: float = 1e12,
) -> Figures:
    """Figures by which products of at least that size are faster, and no thinner."""

    def times(
        scheme: str, a: Dims, b: Dims, wide: bool, packed: int, products: int = 1
    ) -> tuple[float, float]:
        m, k, n = math.prod(a[:-1]), a[-1], b[-1] if len(b) > 1 else 1
        area = m * k + math.prod(b) + m * n - packed
        is_faster = m * k * n >= volume and m * k * n >= thickness * area
        return (0.0 if is_faster else math.inf), 1.0

    return Figures(staging, latency, host, times)
