"""From a program to its plan: what is lowered, what stays, and why."""

import os
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.errors import ProgramError
from mixpert_py.launch.program import script
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py.tuning.chain import CHAIN, tuned
from tests.mixpert_py.tuning.chain import chain as chain
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
    """The chain, tuned to a wide budget."""
    path = tmp_path_factory.mktemp("lowered") / "chain.py"
    path.write_text(CHAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        return tuned(path, 1e-4, float32_is_faster)


def schemes(found: TuningResult) -> list[str]:
    """Schemes in the order of the source."""
    lines = {verdict.operator.id: verdict.operator.line for verdict in found.outcome.verdicts}
    chosen = found.plan.schemes()
    return [chosen[site] for site in sorted(chosen, key=lines.__getitem__)]


def test_everything_is_lowered_within_a_wide_budget(chain: Path, lowered: TuningResult) -> None:
    found = lowered
    assert schemes(found) == ["float32", "float32"]
    assert 0 < found.verification.error <= 1e-4
    assert {value.name for value in found.plan.criterion} == {"c"}  # b is a step to it
    assert max(value.achieved for value in found.plan.criterion) == found.verification.error
    rerun = tuned(chain, 1e-4, float32_is_faster)
    assert rerun.plan.schemes() == found.plan.schemes()


def test_a_locked_site_keeps_its_scheme(chain: Path, lowered: TuningResult) -> None:
    first = lowered.plan.site[0]
    locked = plan.loads(
        plan.dumps(Plan(site=[plan.Site(id=first.id, scheme="native", locked=True)]))
    )
    found = tuned(chain, 1e-4, float32_is_faster, existing=locked)
    assert found.plan.schemes()[first.id] == "native"
    assert sorted(schemes(found)) == ["float32", "native"]
    assert {site.id: site.locked for site in found.plan.site}[first.id]


def test_locks_and_other_modules_entries_survive(chain: Path) -> None:
    chain.write_text(CHAIN.replace("b = a @ a", "def square(x):\n    return x @ x\nb = square(a)"))
    (site,) = (s for s in analyze(chain.read_bytes(), "chain") if s.expression == "x @ x")
    renamed = site.id.replace("square", "old_name")
    others = ["chain:gone/matmul~ffff#0", "other:f/matmul~ffff#0"]
    existing = Plan(
        site=[
            plan.Site(id=renamed, scheme="native", locked=True),
            plan.Site(id=others[0], scheme="float32", locked=True),
            plan.Site(id=others[1], scheme="float32"),
            plan.Site(id="chain:gone/matmul~eeee#0", scheme="float32"),
        ]
    )
    found = tuned(chain, 1e-4, float32_is_faster, existing=existing)
    entries = {entry.id: entry for entry in found.plan.site}
    assert entries[site.id].locked
    assert entries[site.id].scheme == "native"
    assert entries.keys() == {site.id, *others, *(s for s in entries if "/dot~" in s)}


def test_a_plan_beside_the_script_does_not_leak_into_native_runs(
    chain: Path, lowered: TuningResult
) -> None:
    plan.save(lowered.plan, chain.with_name("chain.mixpert.toml"))
    again = tuned(chain, 1e-15, float32_is_faster)
    assert schemes(again) == ["native", "native"]
    # Had the old plan been in force, float32 would have shown no error against "native".
    assert all(trial.measurement.error > 1e-9 for trial in again.outcome.trials[1:])


def test_the_emulated_ladder_goes_by_slice_products(chain: Path) -> None:
    found = tuned_program(
        script(str(chain)), TuningOptions(Limits(Limit(1e-5)), backend="reference")
    )
    assert found.predicted
    assert set(schemes(found)) <= {"int8x6", "faithful", "int8x10"}
    assert found.outcome.best.seconds < found.outcome.start.seconds / 3
    for verdict in found.outcome.verdicts:
        assert {"int8x10", "int8x1"} < verdict.operator.local_errors.keys()


def test_float32_programs_are_judged_against_float64(chain: Path) -> None:
    chain.write_text(CHAIN.replace("(160, 160))", "(160, 160), dtype=np.float32)"))
    found = tuned(chain, 1e-15, float32_is_faster)
    assert {verdict.reason for verdict in found.outcome.verdicts} == {StopReason.START_OVER_BUDGET}
    assert 1e-8 < found.outcome.start.error < 1e-5


def test_a_scheme_that_takes_no_call_is_not_kept(chain: Path) -> None:
    chain.write_text(CHAIN.replace("(160, 160))", "(160, 160)).astype(np.longdouble)"))
    found = tuned(chain, 1e-4, lambda site, trace, scheme: 2.0 if scheme == "native" else 1.0)
    assert schemes(found) == ["native", "native"]
    assert {verdict.reason for verdict in found.outcome.verdicts} == {StopReason.NOT_TAKEN}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_childs_values_are_not_the_programs(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        f"{CHAIN}import os\nif os.fork():\n    os.wait()\n    os._exit(0)\n"
    )
    with pytest.raises(ProgramError, match="left before its end"):
        tuned(tmp_path / "s.py", 1e-4, None)


def test_residues_descend_to_the_budget(tmp_path: Path) -> None:
    """One modulus fewer would be over it."""
    path = tmp_path / "product.py"
    path.write_text(
        "import numpy as np\na = np.random.default_rng(0).random((96, 96))\nb = a @ a\n"
    )
    options = TuningOptions(Limits(Limit(1e-11)), backend="reference", ladder="crt")
    found = tuned_program(script(str(path)), options)
    (operator,) = (verdict.operator for verdict in found.outcome.verdicts)
    (chosen,) = schemes(found)
    count = int(chosen.removeprefix("crt"))
    assert operator.local_errors[chosen] <= 1e-11 < operator.local_errors[f"crt{count - 1}"]
    assert 0 < found.verification.error <= 1e-11
