"""What a profile says of a program's operators, as a search wants it."""

from collections.abc import Iterable, Mapping
from math import nan

from mixpert_py.execution.worker import SiteResult
from mixpert_py.passes.call_site import CallSite
from mixpert_py.tuner.records import Operator
from mixpert_py.tuning.clock import Clock


def profiled_operator(
    site: CallSite,
    trace: SiteResult,
    clock: Clock,
    levels: Iterable[str],
    locked: bool,
    sensitivity: float,
) -> Operator:
    """A call site and its profile, as a search wants them. levels: whose times are predicted."""
    return Operator(
        id=site.id,
        expression=site.expression,
        line=site.line,
        calls=trace.calls,
        shapes=tuple((m, k, n) for m, k, n, _ in trace.shapes),
        seconds=clock.native.site_seconds.get(site.id, 0.0),
        local_errors={
            scheme: nan if error is None else error for scheme, error in trace.errors.items()
        },
        predicted=clock.predicted(site.id, levels),
        locked=locked,
        sensitivity=sensitivity,
        sampled=trace.sampled,
        spread=trace.spread,
        int8_loss=trace.int8_loss,
        cancellation=trace.cancellation,
        transfer=trace.transfer,
        fed_by=trace.fed_by,
    )


def seen_edges(profile: Mapping[str, SiteResult]) -> set[tuple[str, str]]:
    """The edges that the profile saw: also those that nobody can know from the source."""
    return {(before, site) for site, trace in profile.items() for before in trace.fed_by}
