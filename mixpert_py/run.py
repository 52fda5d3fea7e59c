"""One run of a program, and what it left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from mixpert_py.tuner.measurement import Measurement
from mixpert_py.worker import Result

Values = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """What one successful run gave.

    values: what others are compared with; none where the run was judged already: then `error` is
    its largest error against the reference, found in the value `worst`.
    """

    result: Result
    values: Values = field(default_factory=dict)
    error: float = nan
    worst: str = ""

    @property
    def seconds(self) -> float:
        """Of the program, imports included."""
        return self.result.seconds

    @property
    def site_seconds(self) -> dict[str, float]:
        """Call site → seconds spent in its products."""
        return {site: trace.seconds for site, trace in self.result.sites.items()}

    @property
    def measurement(self) -> Measurement:
        """A judged run as the tuner wants it, whatever schemes it took."""
        return Measurement(self.seconds, self.error, self.site_seconds)
