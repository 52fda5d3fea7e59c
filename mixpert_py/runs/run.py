"""One run of a program, and what it left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np

from mixpert_py.runs.worker import Result
from mixpert_py.tuner.records import Measurement

Values = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """What one successful run gave.

    values: what others are compared with; none where the run was judged already: then `errors` are
    those of its values against the reference, and `error` is what a search goes by, found in the
    value `worst`. printed: what it wrote to stdout, where that is compared and the run was made by
    this process.
    """

    result: Result
    values: Values = field(default_factory=dict)
    error: float = nan
    worst: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    printed: str = ""

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
        outliers = {site: trace.outliers for site, trace in self.result.sites.items()}
        return Measurement(
            self.seconds, self.error, self.site_seconds, outliers=outliers, errors=self.errors
        )
