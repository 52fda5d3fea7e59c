"""The families of operands on which products are judged, from NumPy's generators."""

from typing import Any

import numpy.typing as npt

from tests.benchmarks.families import EVERYDAY, FAMILIES, Family, crowded, normal

Array = npt.NDArray[Any]

__all__ = ["EVERYDAY", "FAMILIES", "Array", "Family", "crowded", "normal"]
