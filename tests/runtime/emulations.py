"""Every registered emulation, by name."""

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES

EMULATIONS: dict[str, Scheme] = {
    name: entry for name, entry in SCHEMES.items() if isinstance(entry, Scheme)
}
