"""The table of the profile's measurements of operands."""

from collections.abc import Collection, Iterable

from mixpert_py.tuner.report.record import OperatorEntry
from mixpert_py.tuner.report.unit import clock_unit

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


def sampled(entries: Iterable[OperatorEntry]) -> dict[int, OperatorEntry]:
    """The operators of which a call was sampled, by their numbers."""
    return {number: entry for number, entry in enumerate(entries, 1) if entry.sampled}


def explanation(found: Iterable[OperatorEntry]) -> str:
    """What the columns mean."""
    return " ".join((SPREAD, *[LOSS] * _has_slices(found), CANCELLATION))


def columns(found: Collection[OperatorEntry]) -> dict[str, list[str]]:
    """Heading → the text for each operator: the columns after its number and expression."""
    unit = clock_unit(entry.transfer for entry in found)
    table = {
        "sampled calls": [f"{entry.sampled} of {entry.calls}" for entry in found],
        "exponent spread, bits": [bits_text(entry.spread) for entry in found],
        "int8 loss, bits": [_loss_text(entry.int8_loss) for entry in found],
        "cancellation": [cancellation_text(entry.cancellation) for entry in found],
        f"moving, {unit.name}": [unit.number(entry.transfer) for entry in found],
    }
    if not _has_slices(found):
        del table["int8 loss, bits"]
    if not any(entry.transfer for entry in found):
        del table[f"moving, {unit.name}"]
    return table


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


def _has_slices(found: Iterable[OperatorEntry]) -> bool:
    return are_for_gpus(level for entry in found for level in entry.local_errors)
