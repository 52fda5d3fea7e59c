"""The gain that is likely, from shares, times and errors of single products; and its sentence."""

from math import inf, nan

import pytest

from mixpert_py.tuner import prediction as estimate
from mixpert_py.tuner.prediction import PredictedGain
from mixpert_py.tuner.records import Operator

HERE = PredictedGain(None, 1.0, 1.0, {})


def operator(site: str, errors: dict[str, float], **times: float) -> Operator:
    return Operator(site, local_errors=errors, predicted=times)


def test_errors_add_up_to_the_budget_and_no_further() -> None:
    errors = {"float32": 3e-6}
    three = [operator(site, errors, native=2.0, float32=1.0) for site in ("x", "y", "z")]
    three[1] = operator("y", errors, native=6.0, float32=3.0)
    plan = estimate.likely_plan(three, 4.3e-6)  # √2 · 3e-6 is below it, √3 · 3e-6 is not
    assert plan["y"] == "float32"
    assert sorted(plan.values()) == ["float32", "float32", "native"]
    assert set(estimate.likely_plan(three, 1e-5).values()) == {"float32"}
    assert set(estimate.likely_plan(three, 1e-6).values()) == {"native"}


@pytest.mark.parametrize("errors", [{}, {"float32": nan}, {"float32": inf}])
def test_a_scheme_without_a_sound_error_is_not_chosen(errors: dict[str, float]) -> None:
    one = operator("x", errors, native=2.0, float32=1.0)
    assert estimate.likely_plan([one], 1.0) == {"x": "native"}


def test_a_place_counts_the_time_of_products_that_stay_native() -> None:
    errors = {"int8x6": 1e-7}
    both = [
        operator("x", errors, native=3.0, int8x6=1.0),
        operator("y", errors, native=1.0, int8x6=4.0),
    ]
    found = estimate.place("H200", 0.8, both, 1e-5)
    assert found.plan == {"x": "int8x6", "y": "native"}
    assert found.gain == pytest.approx(1 / (0.2 + 0.8 / 2))
    assert found.error == pytest.approx(1e-7)
    assert found.seconds == 2.0


def test_products_without_any_time_gain_nothing() -> None:
    one = operator("x", {}, native=0.0)
    assert estimate.place(None, 0.5, [one], 1e-5).gain == 1.0


VERDICTS = [
    (
        "too small a share",
        0.16,
        (HERE, PredictedGain("H200", 1.1, 1.0, {})),
        "Products are 16 % of the time: at most 1.19× here, and on a GPU where their share is the "
        "same; not worth it.",
    ),
    (
        "too small a share, and no GPU is known",
        0.16,
        (HERE,),
        "Products are 16 % of the time: at most 1.19× here; not worth it.",
    ),
    (
        "nothing within the budget",
        0.9,
        (HERE, PredictedGain("T4", 1.1, 1.0, {})),
        "Products are 90 % of the time, but 1.00× is likely at 1e-5 here, 1.10× on a T4; "
        "not worth it.",
    ),
    (
        "a GPU alone",
        0.9,
        (HERE, PredictedGain("H200", 3.1, 1.0, {})),
        "Worth it on an H200: 3.10× is likely at 1e-5 if products have the same share of the time "
        "there; 1.00× here.",
    ),
    (
        "here",
        0.9,
        (PredictedGain(None, 1.7, 1.0, {}), PredictedGain("H200", 3.1, 1.0, {})),
        "Worth it: 1.70× is likely at 1e-5 here, 3.10× on an H200.",
    ),
    (
        "no GPU is known",
        0.9,
        (PredictedGain(None, 1.7, 1.0, {}),),
        "Worth it: 1.70× is likely at 1e-5 here.",
    ),
    (
        "the first GPU counts, the fastest, and not the one that gains most",
        0.9,
        (HERE, PredictedGain("H200", 1.1, 1.0, {}), PredictedGain("RTX 3090", 9.0, 5.0, {})),
        "Products are 90 % of the time, but 1.00× is likely at 1e-5 here, 1.10× on an H200; "
        "not worth it.",
    ),
]


@pytest.mark.parametrize(
    ("share", "places", "words"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_verdicts(share: float, places: tuple[PredictedGain, ...], words: str) -> None:
    assert estimate.verdict(share, places, "1e-5") == words


def test_the_place_that_is_worth_it() -> None:
    here, there = PredictedGain(None, 1.5, 9.0, {}), PredictedGain("H200", 3.0, 1.0, {})
    assert estimate.worth((here, there)) is here
    assert estimate.worth((HERE, there)) is there
    assert estimate.worth((HERE,)) is None


def test_endless_gains_have_a_text() -> None:
    assert estimate.times_text(inf) == estimate.times_text(1e3) == "over 100×"
