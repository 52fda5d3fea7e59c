"""Which calls are looked into: early ones of every kind, and few of many."""

from mixpert_py.runtime.tracing.sampling import KINDS, Sampling


def taken(kinds: list[object]) -> list[int]:
    sampling = Sampling()
    return [call for call, kind in enumerate(kinds, 1) if sampling.takes(kind)]


def test_the_distance_between_calls_grows() -> None:
    assert taken(["a"] * 100) == [1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    assert len(taken(["a"] * 100_000)) == 24


def test_what_alternates_is_seen_on_both_sides() -> None:
    calls = taken(["a"] * 1000)
    assert sum(call % 2 for call in calls) >= len(calls) // 2


def test_a_new_kind_is_taken_at_once() -> None:
    assert taken(["a"] * 6 + ["b"] + ["a"] * 3 + ["b", "c"]) == [1, 2, 3, 5, 7, 9, 11, 12]


def test_many_kinds_are_few_calls_all_the_same() -> None:
    calls = taken(list(range(100_000)))
    assert calls[: KINDS + 3] == list(range(1, KINDS + 4))
    assert len(calls) == KINDS + 24
    assert len(taken([n % 1000 for n in range(100_000)])) < KINDS * 11 + 24
