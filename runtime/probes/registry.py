"""All probes, in the order in which they run."""

from collections.abc import Callable, Mapping
from typing import Final

from mixpert_py.runtime.probes.clock import clock
from mixpert_py.runtime.probes.fragments import fragments
from mixpert_py.runtime.probes.gpu import Found, Gpu
from mixpert_py.runtime.probes.instructions import instructions
from mixpert_py.runtime.probes.launch import launch
from mixpert_py.runtime.probes.memory import memory
from mixpert_py.runtime.probes.numerics import numerics
from mixpert_py.runtime.probes.products import products
from mixpert_py.runtime.probes.resources import resources
from mixpert_py.runtime.probes.transfer import transfer

Probe = Callable[[Gpu], Found]

PROBES: Final[Mapping[str, Probe]] = {
    "clock": clock,  # first, while the device is idle
    "fragments": fragments,
    "resources": resources,
    "launch": launch,
    "memory": memory,
    "transfer": transfer,
    "instructions": instructions,
    "numerics": numerics,
    "products": products,
}
