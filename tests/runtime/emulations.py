"""The registered emulations, by name."""

from dataclasses import dataclass, fields, replace
from typing import Any

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES
from mixpert_py.runtime.splitter import Digits, Splitter

ALL: dict[str, Scheme] = {
    name: entry for name, entry in SCHEMES.items() if isinstance(entry, Scheme)
}
# Combined by powers of two, as GPUs have kernels for; and by the remainder theorem.
EMULATIONS = {name: scheme for name, scheme in ALL.items() if not scheme.moduli}
RESIDUES = {name: scheme for name, scheme in ALL.items() if scheme.moduli}


def with_block(scheme: Scheme, block: int | None) -> Scheme:
    """A scheme of digits with another segment of K per exponent; None keeps its own."""
    if block is None:
        return scheme
    left, right = (replace(x, block=block) for x in (scheme.left, scheme.right))
    return replace(scheme, left=left, right=right)


@dataclass(frozen=True, slots=True)
class Lossless(Digits):
    """Digits that no row leaves, whatever it loses."""

    loss_limit = 2.0**100


def lossless(splitter: Splitter) -> Any:
    """A splitter into digits as one that no row leaves; any other as it is."""
    if not isinstance(splitter, Digits):
        return splitter
    names = [field.name for field in fields(Digits) if field.name != "lower_limit"]
    return Lossless(*(getattr(splitter, name) for name in names))


def kept(scheme: Scheme) -> Scheme:
    """A scheme whose digits no row leaves."""
    return replace(scheme, left=lossless(scheme.left), right=lossless(scheme.right))
