"""The registered emulations, by name."""

from dataclasses import replace

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES

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
