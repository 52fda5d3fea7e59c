"""Values that a program observes, by which a tuner judges its runs."""

from copy import deepcopy

_observed: dict[str, object] = {}


def observe(name: str, value: object) -> None:
    """Mark a value that the program is judged by: an array, or anything numpy.asarray takes.

    A later value of the same name replaces the earlier one. The value is copied, so that what the
    program does to it afterwards does not count.
    """
    try:
        _observed[name] = deepcopy(value)
    except Exception:  # whatever the value's class raises: observing must not end the program
        _observed[name] = value


def forget() -> None:
    """Forget everything observed so far in this process."""
    _observed.clear()


def observed() -> dict[str, object]:
    """Name → value of everything observed so far in this process."""
    return dict(_observed)
