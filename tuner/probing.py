"""Which operators are probed together, so that few runs ask about most of the time."""

from collections.abc import Iterator, Mapping, Sequence

TOGETHER = 1 / 8  # of the time: operators that take less are probed with others
WORTH_A_PROBE = 1 / 20  # of the time


def groups(times: Mapping[str, float], whole: float) -> Iterator[tuple[str, ...]]:
    """Sites to probe together, in order; a group is followed by its halves.

    times: site → seconds; whole: the seconds of which a group takes at least a twentieth. Short
    operators are joined until they take an eighth.
    """
    group: list[str] = []
    for site in sorted(times, key=lambda site: -times[site]):
        group.append(site)
        if sum(times[member] for member in group) >= TOGETHER * whole:
            yield from _halved(group, times, whole)
            group = []
    yield from _halved(group, times, whole)


def _halved(
    group: Sequence[str], times: Mapping[str, float], whole: float
) -> Iterator[tuple[str, ...]]:
    if group and sum(times[site] for site in group) >= WORTH_A_PROBE * whole:
        yield tuple(group)
        if len(group) > 1:
            middle = (len(group) + 1) // 2
            yield from _halved(group[:middle], times, whole)
            yield from _halved(group[middle:], times, whole)
