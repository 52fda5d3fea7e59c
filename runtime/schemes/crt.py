"""`crt`: float64 products as accurate as FP64's, modulo as many numbers as the operands ask for.

What `residues` loses is relative to norms, ‖A(i,:)‖ ‖B(:,j)‖; an FP64 product's own bound is
relative to (|A||B|)ij. Packing finds how far the two are apart, in four numbers of each operand.

Let v ≥ 0 be a row of |A|, with the share p of its norm along (1, …, 1) / √K and the rest q across:
p = ‖v‖₁ / √K, q² = ‖v‖² − p²; and w, p', q' the same of a column of |B|. Then

    (|A||B|)ij = ⟨v, w⟩ ≥ p p' − q q' = p p' (1 − t t')         with t = q / p.

The same holds of rows whose large entries are made smaller, min(v, c), and bounds ⟨v, w⟩ as well:
so a few large entries need not hide the others. Both are tried, of either operand, and the best of
the four bounds counts. With y = ⌈|x_k| · 2^(15−e)⌉ as in `residues`, z = min(y, c), c = 2^15 (all
of y) or CLIP, and sums over a row,

    p ≥ (Σz − K)⁺ / √K,     p² + q² ≤ Σz²,     ‖x‖ · 2^(15−e) ≤ √Σy²,

    agreement = (Σz − K)² / (K Σz²) ≤ 1 / (1 + t²),      share = (Σz − K)² / (K Σy²) ≤ p² / ‖v‖²

of which the smallest of all rows count, and rows of zeros do not. The sums are integers, and what
is made of them is the same bits everywhere. `density` of two operands is then at most
(|A||B|)ij / (‖A(i,:)‖ ‖B(:,j)‖) in every element, and N moduli are enough where it is at least
LEAST · 2^(L(14) − L(N)), 2^L as in `residues`, whose bound becomes

    |C − Ĉ|ij ≤ 2.2 / LEAST · √K · 2^-L(14) (|A||B|)ij + u |Ĉ|ij ≤ (1 + 5 √K) · 2^-53 · (|A||B|)ij

up to K + 2 times the smallest subnormal number: from K = 32 on that is below K · 2^-53 (|A||B|)ij,
the bound of an FP64 product in any order of its sums. Where MOST moduli are too few, or an entry
is not finite, the product is the native one. LEAST is what lets errors of 14 moduli, which are
random, stay below those that FP64 makes of dense rows; normal data has a density of 0.24.

Of complex operands v is [|Re x|, |Im x|] of a row x of A, and w is [|Re y|, |Im y|] of a column y
of B for the real part of C, or [|Im y|, |Re y|] for its imaginary part. All sums of w are the same
for both, so one density bounds both parts.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from mixpert_py.runtime.schemes.residues import MODULI
from mixpert_py.runtime.splitter import Residues

FEWEST: Final = 14  # moduli, from which on errors are FP64's where rows are dense
MOST: Final = 16  # of the kernels
LEAST: Final = 1 / 6
CLIP: Final = 1 << 10  # 2^-5 of the power of two above a row's largest entry
BYTE: Final = 0x7F  # of records before anything is in them: doubles above all others
RECORD: Final = 48  # bytes: `Rows`, and what `integers.Bounds.of` takes


class Rows(NamedTuple):
    """The findings of packing about an operand, the smallest over its rows.

    agreement and share: of all of y, and of min(y, CLIP). NONE if all rows are zeros, UNFIT if one
    is not finite.
    """

    agreement: float
    share: float
    clipped_agreement: float
    clipped_share: float

    @classmethod
    def of(cls, record: Sequence[float]) -> "Rows":
        """The findings that kernels have recorded in memory whose bytes were all BYTE: NONE for
        no row.
        """
        return cls(*(min(float(number), 1.0) for number in record[:4]))


NONE: Final = Rows(1.0, 1.0, 1.0, 1.0)
UNFIT: Final = Rows(0.0, 0.0, 0.0, 0.0)


def density(left: Rows, right: Rows) -> float:
    """A bound from below on (|A||B|)ij / (‖A(i,:)‖ ‖B(:,j)‖); 0 where nothing is known."""
    best = 0.0
    for agreement, share in (left[:2], left[2:]):
        for other, its_share in (right[:2], right[2:]):
            if agreement > 0 and other > 0:
                across = math.sqrt((1 / agreement - 1) * (1 / other - 1))
                best = max(best, math.sqrt(share * its_share) * (1 - across))
    return best


def moduli_for(left: Rows, right: Rows) -> int | None:
    """The number of moduli that makes a product of such operands as accurate as FP64; None: more
    than MOST.
    """
    found = density(left, right)
    counts = range(FEWEST, MOST + 1)
    return next((count for count in counts if found >= least_density(count)), None)


@cache
def least_density(count: int) -> float:
    """The density from which on so many moduli are enough."""
    first, its = (Residues(MODULI[:number]).bits for number in (FEWEST, count))
    return float(LEAST * 2.0 ** (first - its))
