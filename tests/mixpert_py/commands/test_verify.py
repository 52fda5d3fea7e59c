"""`mixpert verify`: whether a plan still holds, as an exit code and in words."""

from dataclasses import replace

import msgspec
import pytest

from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Criterion, Plan, Provenance, Site, save
from mixpert_py.tuner.ratio import Ratio
from mixpert_py.tuner.tuning_record import Gain
from mixpert_py.tuning.verify import Verification
from tests.mixpert_py.command import Shell

CHAIN = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((48, 48))
b = a @ a
c = b.dot(a)
def unused(x):
    return x @ x
"""
EXACT = "exact = (a[:, :, None] * a).sum(1)\n"
VERIFY = "verify p.toml chain.py"


def write(sh: Shell, scheme: str, text: str = CHAIN, backend: str = "reference") -> Plan:
    """A program, and a plan with all its products under one scheme; budget 1e-3 for `c`."""
    sh.write({"chain.py": text})
    return plan(
        sh,
        provenance=Provenance(backend=backend),
        criterion=[Criterion("c", "frobenius", 1e-3)],
        site=[Site(id=site.id, scheme=scheme) for site in analyze(text.encode(), "chain")],
    )


def plan(sh: Shell, made: Plan | None = None, **changes: object) -> Plan:
    made = msgspec.structs.replace(made or Plan(), **changes)
    save(made, sh.folder / "p.toml")
    return made


def test_a_plan_that_holds_and_one_that_does_not(sh: Shell) -> None:
    made = write(sh, "int8x6")
    (unused,) = (site.id for site in made.site if ":unused/" in site.id)
    parts = "within the budget of 1e-3", "times say nothing", f"  {unused}: never ran\n"
    said = sh(VERIFY, out=parts)
    assert said.out.startswith("p.toml: holds: frobenius error ")
    write(sh, "int8x1")
    sh(VERIFY, 1, out=("does not hold: frobenius error", "over the budget of 1e-3"))
    found = sh.json("verify p.toml --json --criterion max --error 1e9 chain.py")
    assert (found["holds"], found["faster"], found["criterion"]) == (True, None, "max")
    assert 1e-1 < found["error"] < 1e9
    assert len(found["never_ran"]) == 1


def test_nan_is_over_and_a_failure_under_the_plan_is_told(sh: Shell) -> None:
    root = f"{EXACT}c = np.sqrt(1e-9 - abs(b - exact))\n"
    write(sh, "int8x1", CHAIN.replace("c = b.dot(a)\n", root))
    assert sh.json("verify --error 1e300 p.toml chain.py --json", 1)["error"] is None
    write(sh, "int8x1", f"{CHAIN}{EXACT}assert abs(b - exact).max() < 1e-9, 'too far'\n")
    told = "does not hold: under the plan, chain.py: ended with exit code 1"
    sh(VERIFY, 1, out=(told, "too far"))


def test_a_site_that_is_gone(sh: Shell) -> None:
    (gone,) = (site.id for site in write(sh, "int8x6").site if "/dot" in site.id)
    sh.write({"chain.py": CHAIN.replace("b.dot(a)", "a.copy()")})
    sh(f"{VERIFY} --compare b", 1, out=f"  {gone}: not in the program any more")


def test_what_the_plan_does_not_list_is_not_judged(sh: Shell) -> None:
    # `d` is over any budget.
    write(sh, "int8x3", f"{CHAIN}{EXACT}d = b - exact\n")
    sh(VERIFY)
    sh("verify p.toml --error 1e-3 --compare c --compare d chain.py", 1)
    # By default it is left out, as what is left of two large matrices; that is said.
    told = "since a plan may change such tiny differences: d."
    sh("verify p.toml --error 1e-3 chain.py", out=told)
    sh("verify p.toml --error 1e-3 --error d=1e-3 chain.py", 1)


def test_the_plans_reference_is_the_reference(sh: Shell) -> None:
    made = write(sh, "float32", CHAIN.replace("(48, 48))", "(48, 48)).astype('f4')"), "native")
    plan(sh, made, criterion=[Criterion("c", "frobenius", 1e-9, reference="native")])
    sh(VERIFY)
    sh("verify p.toml --reference float64 chain.py", 1)


def test_arguments_are_the_programs_and_a_noisy_one_is_not_judged(sh: Shell) -> None:
    write(sh, "int8x6", f"{CHAIN}import sys\nassert sys.argv[1:] == ['--json', 'x']\n")
    sh(f"{VERIFY} -- --json x")
    sh(f"{VERIFY} x", 2)
    write(sh, "int8x6", CHAIN.replace("rng(0)", "rng()"))
    assert "differs by" in sh(VERIFY, 1).one_clear_line()


def test_products_that_are_less_accurate_than_planned(sh: Shell) -> None:
    """They run natively, which is told; with --strict the plan does not hold."""
    made = write(sh, "int8x3", CHAIN.replace("48, 48", "96, 96"))
    made = plan(sh, made, site=[msgspec.structs.replace(site, error=2e-7) for site in made.site])
    assert sh(VERIFY).out.count("not as planned: less accurate than planned (1×)") == 2
    told = "p.toml: does not hold: 2 products were less accurate than when the plan was made\n"
    assert sh("verify --strict p.toml chain.py", 1).out.startswith(told)
    plan(sh, made, guard="off")
    assert sh.read("p.toml").count('guard = "off"') == 1
    sh("verify --strict p.toml chain.py")


def test_a_plan_that_lowers_nothing_holds_without_a_run(sh: Shell) -> None:
    write(sh, "native", f"{CHAIN}raise SystemExit(3)\n")
    sh(VERIFY, out="p.toml: holds: the plan lowers no product\n")
    found = sh.json("verify --json p.toml chain.py")
    assert (found["holds"], found["gain"]) == (True, None)


def test_a_gain_is_that_of_the_lowered_products() -> None:
    """Of 6 % of the time no plan can make more than 1.06 ×, whatever two runs took."""
    found = Verification(0.0, "c", 10.0, 3.0, 0.6, Ratio(0.5, 0.4, 0.6), Ratio(0.78, 0.3, 1.5))
    gain = found.gain(found.pace)
    assert (gain.before, gain.after) == (10.0, pytest.approx(9.7))
    assert (gain.least, gain.most) == (pytest.approx(1 / 0.976), pytest.approx(1 / 0.964))
    extreme = replace(found, ratio=Ratio(1e-9, 0.0, 1e-8))
    assert extreme.gain(extreme.pace).after >= 10.0 * (1 - 0.06)
    unclear = replace(found, ratio=Ratio(0.5, 0.1, 2.0))
    assert unclear.gain(unclear.pace) == Gain(before=10.0, after=10.0, verdict="cannot tell")
    # A program that takes longer all the same, as it needs more iterations, has no gain.
    found = Verification(0.0, "c", 10.0, 0.1, 6.0, Ratio(0.5, 0.4, 0.6), Ratio(1.3, 1.2, 1.4))
    assert found.gain(found.pace) == Gain(before=10.0, after=10.0, verdict="not faster")
