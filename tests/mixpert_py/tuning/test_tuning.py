"""From a program to its plan: what is lowered, what stays, and why."""

import os
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.errors import DeviceError, ProgramError
from mixpert_py.execution.worker import SiteResult
from mixpert_py.launch.program import script
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan
from mixpert_py.runtime.model import device_model
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.baseline import why_all_native, why_native
from mixpert_py.tuning.clock import DeviceCost, int8_products
from mixpert_py.tuning.estimate import short_name
from mixpert_py.tuning.hold_out import highest_rate
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py.tuning.tuned_program import CHAIN, float32_is_faster, tuned, tuned_program
from tests.mixpert_py.tuning.tuned_program import chain as chain


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> TuningResult:
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
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


H200 = DeviceCost.of("h200")


def site(*shapes: tuple[int, int, int, int], dtype: str = "float32") -> SiteResult:
    calls = sum(shape[3] for shape in shapes)
    return SiteResult(calls, 1.0, list(shapes), {"native": calls}, {}, {dtype: calls}, {})


def cost(scheme: str, *shapes: tuple[int, int, int, int], dtype: str = "float32") -> float:
    return H200("s", site(*shapes, dtype=dtype), scheme)


def test_lower_levels_cost_less_where_products_are_large() -> None:
    large = (8192, 8192, 8192, 1)
    levels = [cost(s, large) for s in ("native", "faithful", "int8x3", "int8x1")]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] / levels[1] > 3
    assert len(set(levels)) == 4


def test_a_complex_product_costs_four_and_what_joins_them() -> None:
    shape = (4096, 4096, 4096, 1)
    for scheme in ("native", "int8x6"):
        ratio = cost(scheme, shape, dtype="complex64") / cost(scheme, shape)
        assert 3.8 < ratio < 4.4
    assert cost("native", shape, dtype="complex128") < cost("native", shape, dtype="complex64")
    a_little = (512, 512, 512, 1)  # pays the device, and not the host that launches so much
    assert cost("int8x6", a_little, dtype="complex64") == cost(
        "native", a_little, dtype="complex64"
    )
    counted = int8_products("s", site(shape, dtype="complex64"), "int8x6")
    assert counted == 4 * int8_products("s", site(shape), "int8x6")
    counted = int8_products("s", site(shape, dtype="complex128"), "crt14")
    assert counted == 30 / 14 * int8_products("s", site(shape, dtype="float64"), "crt14")
    complex_, real = (cost("crt14", shape, dtype=dtype) for dtype in ("complex128", "float64"))
    assert 2 < complex_ / real < 2.5


def test_empty_products_cost_nothing() -> None:
    assert cost("native", (0, 5, 5, 4)) == cost("int8x6", (5, 0, 5, 4)) == 0


def test_a_device_that_is_not_known_or_has_no_kernels_is_named() -> None:
    with pytest.raises(
        DeviceError, match=r"no device model is known for 'z9000'; choose from: .*h200"
    ):
        DeviceCost.of("z9000")
    with pytest.raises(DeviceError, match=r"Tesla T4 has compute capability 7\.5"):
        DeviceCost.of("t4")


def site_of(shape: tuple[int, int, int], calls: int, seconds: float) -> SiteResult:
    """A call site whose products, all of one shape, are too small for `float32`."""
    types, reasons = {"float64": calls}, {"too small": calls}
    return SiteResult(calls, seconds, [(*shape, calls)], {}, {}, types, {}, unsuited=reasons)


def test_the_largest_product_that_is_too_small_is_named() -> None:
    small, other = site_of((3, 3, 3), 900, 9e-4), site_of((1500, 1500, 24), 2, 0.02)
    assert why_native(small) == "3 × 3 × 3 is too small or too narrow for a level to be faster"
    said = why_all_native({"a": small, "b": other})
    assert said == (
        "902 products: 1500 × 1500 × 24 is too small or too narrow for a level to be faster"
    )


def test_narrow_types_have_no_faster_level() -> None:
    found = SiteResult(3, 0.1, [(9, 9, 9, 3)], {}, {}, {"float32": 2, "float16": 1}, {})
    assert why_all_native({"a": found}) == (
        "3 products: a processor has no faster level for float32, float16"
    )
    assert (
        why_all_native(
            {"a": found, "b": SiteResult(1, 0.1, [(9, 9, 9, 1)], {}, {}, {"float64": 1}, {})}
        )
        == ""
    )


def test_what_is_no_product_of_arrays_says_of_what_it_is() -> None:
    found = SiteResult(1, 0.1, [(0, 0, 0, 1)], {}, {}, {"list": 1}, {})
    assert why_native(found) == "no product of arrays that a scheme takes (list)"


@pytest.mark.parametrize(
    ("inputs", "percent"),
    [(0, 100.0), (1, 95.0), (29, 9.8), (59, 5.0), (299, 1.0)],  # 59 and 299: of Wilks (1941)
)
def test_known_bounds(inputs: int, percent: float) -> None:
    assert 100 * highest_rate(inputs) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize("tightened", range(4))
@pytest.mark.parametrize("inputs", [1, 10, 59])
def test_a_higher_rate_would_have_shown(inputs: int, tightened: int) -> None:
    rate = highest_rate(inputs, tightened)
    assert (1 - rate) ** inputs == pytest.approx(0.05 / 2**tightened)


def test_every_device_is_found_by_its_short_name() -> None:
    for name in device_model.names():
        device = device_model.find(name).device
        assert device_model.find(short_name(device).lower()).device == device
    assert short_name("NVIDIA A100-SXM4-80GB") == "A100"
    assert short_name("NVIDIA GeForce RTX 3090") == "RTX 3090"
