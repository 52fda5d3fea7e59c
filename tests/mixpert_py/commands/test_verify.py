"""`mixpert verify`: whether a plan still holds, as an exit code and in words."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Criterion, Plan, Provenance, Site, save
from mixpert_py.tuner.ratio import Pace, Ratio
from mixpert_py.tuner.report.record import Gain
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.verify import PlanVerdict, Verification
from tests.mixpert_py.command import Mixpert

CHAIN = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((48, 48))
b = a @ a
c = b.dot(a)
def unused(x):
    return x @ x
"""

NARROW = CHAIN.replace("(48, 48))", "(48, 48)).astype('f4')")
EXACT = "exact = (a[:, :, None] * a).sum(1)\n"


def write(
    folder: Path, scheme: str, text: str = CHAIN, command: str = "", backend: str = "reference"
) -> Plan:
    """A program, and a plan with all its products under one scheme; budget 1e-3 for `c`."""
    (folder / "chain.py").write_text(text)
    made = Plan(
        provenance=Provenance(backend=backend, command=command),
        criterion=[Criterion("c", "frobenius", 1e-3)],
        site=[Site(id=site.id, scheme=scheme) for site in analyze(text.encode(), "chain")],
    )
    save(made, folder / "p.toml")
    return made


def test_a_plan_that_holds(tmp_path: Path, mixpert: Mixpert) -> None:
    made = write(tmp_path, "int8x6")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 0, said
    assert said.out.startswith("p.toml: holds: frobenius error ")
    assert "within the budget of 1e-3" in said.out
    assert "times say nothing" in said.out
    (unused,) = (site.id for site in made.site if ":unused/" in site.id)
    assert f"  {unused}: never ran\n" in said.out


def test_as_json_with_a_budget_of_its_own(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "int8x1")
    said = mixpert("verify", "p.toml", "--json", "--criterion", "max", "--error", "1e9", "chain.py")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert found["holds"]
    assert found["faster"] is None
    assert found["criterion"] == "max"
    assert 1e-1 < found["error"] < 1e9
    assert len(found["never_ran"]) == 1


def test_over_budget(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "int8x1")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 1
    assert "does not hold: frobenius error" in said.out
    assert "over the budget of 1e-3" in said.out


def test_nan_is_over(tmp_path: Path, mixpert: Mixpert) -> None:
    root = f"{EXACT}c = np.sqrt(1e-9 - abs(b - exact))\n"
    write(tmp_path, "int8x1", CHAIN.replace("c = b.dot(a)\n", root))
    said = mixpert("verify", "--error", "1e300", "p.toml", "chain.py", "--json")
    assert said.code == 1, said
    assert json.loads(said.out)["error"] is None


def test_a_program_that_fails_under_the_plan(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "int8x1", f"{CHAIN}{EXACT}assert abs(b - exact).max() < 1e-9, 'too far'\n")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 1
    assert "does not hold: under the plan, chain.py: ended with exit code 1" in said.out
    assert "too far" in said.out


def test_a_site_that_is_gone(tmp_path: Path, mixpert: Mixpert) -> None:
    made = write(tmp_path, "int8x6")
    (gone,) = (site.id for site in made.site if "/dot" in site.id)
    (tmp_path / "chain.py").write_text(CHAIN.replace("b.dot(a)", "a.copy()"))
    said = mixpert("verify", "p.toml", "chain.py", "--compare", "b")
    assert said.code == 1
    assert f"  {gone}: not in the program any more\n" in said.out
    (tmp_path / "chain.py").write_text("print(1)\n")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 1
    assert "does not hold: it has none of the plan's call sites" in said.out


def test_what_the_plan_does_not_list_is_not_judged(tmp_path: Path, mixpert: Mixpert) -> None:
    # `d` is over any budget.
    write(tmp_path, "int8x3", f"{CHAIN}{EXACT}d = b - exact\n")
    assert mixpert("verify", "p.toml", "chain.py").code == 0
    everything = "--error", "1e-3", "--compare", "c", "--compare", "d"
    assert mixpert("verify", "p.toml", *everything, "chain.py").code == 1
    # By default it is left out, as what is left of two large matrices; that is said.
    said = mixpert("verify", "p.toml", "--error", "1e-3", "chain.py")
    assert said.code == 0
    assert "since a plan may change such tiny differences: d." in said.out
    assert mixpert("verify", "p.toml", "--error", "1e-3", "--error", "d=1e-3", "chain.py").code == 1


SEVERAL = [Criterion("b", "max", 1e9), Criterion("c", "frobenius", 1e-3, reference="native")]


def test_values_with_budgets_of_their_own(tmp_path: Path, mixpert: Mixpert) -> None:
    made = write(tmp_path, "int8x3", CHAIN)
    save(Plan(provenance=made.provenance, criterion=SEVERAL, site=made.site), tmp_path / "p.toml")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 0, said
    assert "holds: frobenius error" in said.out
    assert "within the budget of 1e-3, in 'c'" in said.out
    assert "  b: max error " in said.out
    assert "of 1e9 allowed" in said.out
    found = json.loads(mixpert("verify", "p.toml", "--json", "--error=c=1e-9", "chain.py").out)
    assert not found["holds"]
    (value,) = found["values"]
    assert (value["name"], value["criterion"], value["budget"]) == ("c", "frobenius", 1e-9)
    said = mixpert("verify", "p.toml", "--error", "b=1e-9", "--error", "1", "chain.py")
    assert said.code == 1
    assert "does not hold: max error" in said.out
    assert "over the budget of 1e-9, in 'b'" in said.out


def test_the_plans_reference_is_the_reference(tmp_path: Path, mixpert: Mixpert) -> None:
    made = write(tmp_path, "float32", NARROW, backend="native")
    entry = Criterion("c", "frobenius", 1e-9, reference="native")
    save(Plan(provenance=made.provenance, criterion=[entry], site=made.site), tmp_path / "p.toml")
    assert mixpert("verify", "p.toml", "chain.py").code == 0
    assert mixpert("verify", "p.toml", "--reference", "float64", "chain.py").code == 1


def test_arguments_are_the_programs(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "int8x6", f"{CHAIN}import sys\nassert sys.argv[1:] == ['--json', 'x']\n")
    said = mixpert("verify", "p.toml", "chain.py", "--", "--json", "x")
    assert said.code == 0, said
    assert mixpert("verify", "p.toml", "chain.py", "x").code == 2


def test_a_noisy_program_cannot_be_judged(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "int8x6", CHAIN.replace("rng(0)", "rng()"))
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 1
    assert "differs by" in said.one_clear_line()


BAD = [
    ("no budget", ["bare.toml", "chain.py"], "bare.toml: it has no budget; give one (--error"),
    ("a criterion alone", ["p.toml", "--criterion", "c=max", "chain.py"], "--error c=BUDGET"),
    ("a missing variable", ["p.toml", "--compare", "zzz", "chain.py"], "zzz"),
    (
        "another value by now",
        ["q.toml", "chain.py"],
        "no value 'q' to judge; the program shows b, c",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "word"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_bad_input_gets_one_clear_line(
    tmp_path: Path, mixpert: Mixpert, arguments: list[str], word: str
) -> None:
    made = write(tmp_path, "int8x6")
    save(Plan(site=made.site), tmp_path / "bare.toml")
    save(Plan(criterion=[Criterion("q", "max", 1)], site=made.site), tmp_path / "q.toml")
    said = mixpert("verify", *arguments)
    assert said.code == 2
    assert word in said.one_clear_line()
    assert said.out == ""


def test_no_longer_faster_holds_and_says_so() -> None:
    found = Verification(1e-6, "c", 2.0, 0.1, 1.0, Ratio(0.99, 0.985, 1.0))
    judged = PlanVerdict(TuningOptions(Limits(Limit(1e-5))), found, lowers=True)
    assert judged.holds
    assert judged.pace is Pace.NOT_FASTER
    for ratio, pace in ((Ratio(0.5, 0.4, 0.6), "faster"), (Ratio(0.5, 0.2, 1.1), "cannot tell")):
        assert replace(judged, verification=replace(found, ratio=ratio)).pace == pace
    assert replace(judged, lowers=False).pace is None
    assert not replace(judged, verification=replace(found, error=float("nan"))).holds
    assert not replace(judged, stale=("m:f/matmul~ab#0",)).holds


def test_products_that_are_less_accurate_than_planned(tmp_path: Path, mixpert: Mixpert) -> None:
    """They run natively, which is told; with --strict the plan does not hold."""
    made = write(tmp_path, "int8x3", CHAIN.replace("48, 48", "96, 96"))
    sites = [msgspec.structs.replace(site, error=2e-7) for site in made.site]
    save(msgspec.structs.replace(made, site=sites), tmp_path / "p.toml")
    said = mixpert("verify", "p.toml", "chain.py")
    assert said.code == 0, said
    assert said.out.count("not as planned: less accurate than planned (1×)") == 2
    strict = mixpert("verify", "--strict", "p.toml", "chain.py")
    assert strict.code == 1, strict
    wanted = "p.toml: does not hold: 2 products were less accurate than when the plan was made\n"
    assert strict.out.startswith(wanted)
    save(msgspec.structs.replace(made, guard="off", site=sites), tmp_path / "p.toml")
    assert (tmp_path / "p.toml").read_text().count('guard = "off"') == 1
    assert mixpert("verify", "--strict", "p.toml", "chain.py").code == 0


def test_a_plan_that_lowers_nothing_holds_without_a_run(tmp_path: Path, mixpert: Mixpert) -> None:
    write(tmp_path, "native", f"{CHAIN}raise SystemExit(3)\n")
    said = mixpert("verify", "p.toml", "chain.py")
    assert (said.code, said.out) == (0, "p.toml: holds: the plan lowers no product\n")
    found = json.loads(mixpert("verify", "--json", "p.toml", "chain.py").out)
    assert (found["holds"], found["gain"]) == (True, None)


def test_a_gain_is_that_of_the_lowered_products() -> None:
    """Of 6 % of the time no plan can make more than 1.06 ×, whatever two runs took."""
    found = Verification(0.0, "c", 10.0, 3.0, 0.6, Ratio(0.5, 0.4, 0.6), Ratio(0.78, 0.3, 1.5))
    gain = found.gain(found.pace)
    assert (gain.before, gain.after) == (10.0, pytest.approx(9.7))
    assert (gain.least, gain.most) == (pytest.approx(1 / 0.976), pytest.approx(1 / 0.964))
    assert replace(found, ratio=Ratio(1e-9, 0.0, 1e-8)).program.mean >= 1 - 0.06
    unclear = replace(found, ratio=Ratio(0.5, 0.1, 2.0))
    assert unclear.gain(unclear.pace) == Gain(before=10.0, after=10.0, verdict="cannot tell")


def test_a_program_that_takes_longer_all_the_same_has_no_gain() -> None:
    """Such as one that needs more iterations under the plan."""
    found = Verification(0.0, "c", 10.0, 0.1, 6.0, Ratio(0.5, 0.4, 0.6), Ratio(1.3, 1.2, 1.4))
    assert found.gain(found.pace) == Gain(before=10.0, after=10.0, verdict="not faster")
