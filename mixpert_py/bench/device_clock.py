"""What samples of a device's clock come to."""

from typing import Any

from mixpert_py.bench.timing import summary
from mixpert_py.runtime.cuda.event_clock import Sample


def timing(samples: list[Sample]) -> dict[str, Any]:
    """Median and quartiles on the device; the host's median; the share of samples kept ahead."""
    return {
        **summary([sample.device for sample in samples]),
        "host": summary([sample.host for sample in samples])["median"],
        "ahead": sum(sample.ahead for sample in samples) / len(samples),
    }


def ratio(slow: list[Sample], fast: list[Sample]) -> dict[str, float]:
    """How many times as fast: of each round by itself, then median and quartiles."""
    return summary([a.device / b.device for a, b in zip(slow, fast, strict=True)])
