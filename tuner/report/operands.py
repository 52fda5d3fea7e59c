"""The table of the profile's measurements of operands, for page and Markdown."""

from collections.abc import Iterable, Sequence

from mixpert_py.tuner.report.record import OperatorEntry
from mixpert_py.tuner.report.summary import Row
from mixpert_py.tuner.report.unit import Unit, clock_unit

SPREAD = (
    "The worst of the sampled calls. Exponent spread: by how many bits entries lie below the "
    "largest of their row of the left operand, or column of the right one, in the mean; a scheme "
    "with one scale a row loses as many of them."
)
LOSS = (
    "Int8 loss: by how many bits that makes a product of int8x6 less accurate than float32's; "
    "large where units are mixed along K, so that what is small in a row of the left operand meets "
    "what is large in a column of the right one."
)
CANCELLATION = (
    "Cancellation: how many times as large the product would be if nothing in it cancelled; a "
    "relative error may be as many times larger."
)

ON_GPUS = ("int8", "crt", "fp16", "faithful", "mixpert")  # begin the names of their levels
LOSS_SHOWN_FROM = 2.0  # bits of int8 loss from which words point it out
# Bits of exponent spread from which words point it out: most entries of a row then keep some 30 of
# their 53 bits under crt14, and 4 of 24 under int8x6.
SPREAD_SHOWN_FROM = 20.0


def small_entries(bits: float | None) -> str:
    """Why errors of schemes with one scale a row do not show on these operands; "" where they do.

    bits: the exponent spread; about 43 where A = I + 1e-13 · N, of whose product with another such
    matrix crt14 loses the entries off the diagonal.
    """
    if bits is None or bits < SPREAD_SHOWN_FROM:
        return ""
    return (
        f"most entries of a row are some 2^{bits:.0f} times smaller than its largest; int8 schemes "
        "and crt7 … crt18 lose digits of such entries, which no error in the Frobenius norm shows"
    )


def sampled_rows(found: Sequence[Row]) -> list[Row]:
    """The operators of which a call was sampled."""
    return [row for row in found if row.entry.sampled]


def explanation(found: Sequence[Row]) -> str:
    """What the columns mean."""
    return " ".join((SPREAD, *[LOSS] * _has_slices(found), CANCELLATION))


def names(found: Sequence[Row]) -> tuple[str, ...]:
    """The headings of the columns after an operator's number and expression."""
    moving = (f"moving, {_unit(found).name}",) if _moved(found) else ()
    spread, loss = "exponent spread, bits", "int8 loss, bits"
    return ("sampled calls", spread, *[loss] * _has_slices(found), "cancellation", *moving)


def cells(entry: OperatorEntry, found: Sequence[Row]) -> tuple[tuple[str, float | None], ...]:
    """The text of each column, and the number by which it is sorted."""
    shown = (
        (f"{entry.sampled} of {entry.calls}", float(entry.sampled)),
        (bits_text(entry.spread), entry.spread),
        *[(_loss_text(entry.int8_loss), entry.int8_loss)] * _has_slices(found),
        (cancellation_text(entry.cancellation), entry.cancellation),
    )
    if not _moved(found):
        return shown
    return (*shown, (_unit(found).number(entry.transfer), entry.transfer))


def bits_text(bits: float | None) -> str:
    """Bits with one decimal; a dash where no call was sampled."""
    return "–" if bits is None else f"{bits:.1f}"


def _loss_text(bits: float | None) -> str:
    return bits_text(bits) + (
        ", small entries count" if bits is not None and bits >= LOSS_SHOWN_FROM else ""
    )


def cancellation_text(ratio: float | None) -> str:
    """A ratio with three digits; a dash where no call was sampled."""
    return "–" if ratio is None else f"{ratio:.3g}×"


def are_for_gpus(levels: Iterable[str]) -> bool:
    """Whether any of these levels is one that only GPUs run, and emulations of them."""
    return any(level.startswith(ON_GPUS) for level in levels)


def _has_slices(found: Sequence[Row]) -> bool:
    return are_for_gpus(level for row in found for level in row.entry.local_errors)


def _moved(found: Sequence[Row]) -> bool:
    return any(row.entry.transfer for row in found)


def _unit(found: Sequence[Row]) -> Unit:
    return clock_unit(row.entry.transfer for row in found)
