"""What a tuning says where its times tell which is faster, and where they do not."""

import re
import sys
from collections.abc import Sequence
from math import hypot, log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mixpert_py.cli import main
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.products import MeasuredProduct, ProductTimes
from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.launch.program import script
from mixpert_py.passes.pipeline import analyze
from mixpert_py.tuner.ratio import Pace, Ratio
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuner.report import MEANING, START_UP, UNCLEAR, verified
from mixpert_py.tuning import prepare
from mixpert_py.tuning import verify as module
from mixpert_py.tuning.clock import PairedTimes, site_ratio
from mixpert_py.tuning.experiment import RunSettings
from mixpert_py.tuning.judge import Comparison
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult, record
from mixpert_py.tuning.verify import LEAST_PAIRS, MOST_PAIRS, verify
from tests.mixpert_py.tuning.tuned_program import CHAIN, tuned
from tests.mixpert_py.tuning.tuned_program import chain as chain

FASTER, SLOWER = Ratio(0.5, 0.4, 0.6), Ratio(1.5, 1.4, 1.6)
NONE = dict.fromkeys(("exact", "blas"), StopReason.NOT_TAKEN)  # of float64 products
WIDE = Ratio(0.9, 0.5, 1.5)
SITES = [site.id for site in analyze(CHAIN.encode(), "chain")]


def paired(path: Path, *ratios: Ratio | StopReason, budget: float = 1e-4) -> TuningResult:
    """The chain tuned by these ratios of its two products, each of which takes 10 s."""
    times = PairedTimes(
        dict.fromkeys(SITES, 10.0),
        {site: {**NONE, "float32": x} for site, x in zip(SITES, ratios, strict=True)},
    )
    return tuned(path, budget, times)


def reasons(found: TuningResult) -> dict[str, StopReason]:
    return {verdict.operator.id: verdict.reason for verdict in found.outcome.verdicts}


def says(monkeypatch: pytest.MonkeyPatch, ratio: Ratio) -> None:
    """Let pairs of runs have this ratio."""

    def of(*runs: object) -> Ratio:
        return ratio

    monkeypatch.setattr(module, "pair_ratio", of)


def test_only_what_is_faster_for_certain_is_lowered(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, FASTER)
    found = paired(chain, FASTER, WIDE)
    assert list(found.plan.schemes().values()) == ["float32", "native"]
    assert reasons(found) == {SITES[0]: StopReason.BOTTOM, SITES[1]: StopReason.UNCLEAR}
    assert not found.unclear
    assert not found.predicted
    assert found.plan.provenance.gain == ""
    assert START_UP in found.notes  # since the chain takes less than a second
    assert [site.ms for site in found.plan.site] == [5e3, 1e4]


def test_a_machine_that_does_not_tell_is_no_verdict(chain: Path) -> None:
    found = paired(chain, WIDE, SLOWER)
    assert set(found.plan.schemes().values()) == {"native"}
    assert found.unclear
    assert found.plan.provenance.gain == "cannot tell"
    assert verified(record(found)) == UNCLEAR


def test_the_command_exits_with_1_and_the_plan_file_says_why(
    chain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = PairedTimes(
        dict.fromkeys(SITES, 10.0), {site: {**NONE, "float32": WIDE} for site in SITES}
    )

    def of(*measured: object) -> PairedTimes:
        return times

    monkeypatch.setattr(prepare.PairedTimes, "of", of)
    monkeypatch.setattr(sys, "argv", ["mixpert", "tune", "--error", "1e-4", str(chain)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    words = " ".join(capsys.readouterr().out.split())
    assert UNCLEAR in words
    assert f"cannot tell: {MEANING[StopReason.UNCLEAR]}" in words
    assert 'gain = "cannot tell"' in chain.with_name("chain.mixpert.toml").read_text("utf-8")


def test_what_is_over_the_budget_anyway_needs_no_clock(chain: Path) -> None:
    found = paired(chain, WIDE, WIDE, budget=1e-15)
    assert set(reasons(found).values()) == {StopReason.PREDICTED}
    assert not found.unclear


def test_a_plan_that_is_not_faster_in_fresh_processes_is_taken_back(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, SLOWER)
    chain.write_text(f"{CHAIN}print(1e9 * (b[0, 0] - (a[0] * a[:, 0]).sum()))\n")  # loses digits
    found = paired(chain, FASTER, FASTER)
    assert found.reverted
    assert not [note for note in found.notes if "plan" in note]
    assert not found.unclear
    assert set(found.plan.schemes().values()) == {"native"}
    entry = msgspec.to_builtins(record(found, "p.toml"))
    start = dict.fromkeys(SITES, "native")
    assert entry["plan"] == entry["schemes"] == start
    assert {row["after"] for row in entry["operators"]} == {"native"}
    assert {row["reason"] for row in entry["operators"]} == {"not faster"}
    assert entry["error"] == entry["trials"][0]["error"]
    assert entry["verification"] is None
    assert entry["gain"]["before"] == entry["gain"]["after"]
    assert entry["gain"]["verdict"] == "not faster"
    assert "showed no gain" in verified(record(found))


def test_a_small_gain_that_fresh_processes_do_not_show_is_none(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, WIDE)
    found = paired(chain, Ratio(0.95, 0.93, 0.97), SLOWER)  # of half the time: 2.5 %
    assert (found.reverted, found.unclear, found.gain.verdict) == (True, False, "not faster")
    assert "showed no gain" in verified(record(found))


class Runs:
    """An experiment whose runs take given times, pair by pair; `order` is what was run."""

    def __init__(self, native: Sequence[float], planned: Sequence[float]) -> None:
        self._native, self._planned = iter(native), iter(planned)
        self.order = ""
        self.comparison = Comparison(Limits(Limit(1.0)))

    def native(self, purpose: str, reference: object) -> ProgramRun:
        self.order += "n"
        return run(next(self._native))

    def planned(self, plan: object, reference: object, purpose: str) -> ProgramRun:
        self.order += "p"
        return run(next(self._planned))


def run(seconds: float) -> ProgramRun:
    site = SiteResult(1, seconds, [], {}, {}, {}, {})
    return ProgramRun(Result(seconds, {"s": site}, {}, []), {}, 0.0, "c", {"c": 0.0})


def pairs(
    native: Sequence[float], planned: Sequence[float], *, timed: bool = True, **most: Any
) -> tuple[str, Pace]:
    runs = Runs(native, planned)
    found = verify(runs, {}, {"s": "float32"}, timed=timed, **most)  # type: ignore[arg-type]
    return runs.order, found.ratio.pace


def test_pairs_are_run_until_they_tell_and_each_kind_is_first_in_turn() -> None:
    assert pairs([2.0] * 9, [1.0] * 9) == ("nppnnp", Pace.FASTER)
    assert pairs([1.0] * 9, [2.0] * 9) == ("nppnnp", Pace.NOT_FASTER)
    order, pace = pairs([2.0] * 9, [1.0, 1.5, 0.8, 1.2, 1.0, 1.1, 1.0, 1.0, 1.0])
    assert order == "nppn" * 3  # it would tell after five already
    assert pace is Pace.FASTER


def test_there_is_an_end_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    order, pace = pairs(draw.uniform(1, 2, 20).tolist(), draw.uniform(1, 2, 20).tolist())
    assert (len(order), pace) == (2 * MOST_PAIRS, Pace.UNCLEAR)
    order, pace = pairs([1.0, 2.0] * 2, [2.0, 1.0] * 2, runs=8)
    assert (len(order), pace) == (8, Pace.UNCLEAR)
    order, pace = pairs([1.0, 2.0] * 2, [2.0, 1.0] * 2, runs=5, alone=FASTER)
    assert (len(order), pace) == (4, Pace.UNCLEAR)
    monkeypatch.setattr(module, "SECONDS", -1.0)
    order, pace = pairs([1.0, 2.0, 1.0, 2.0], [2.0, 1.0, 1.0, 1.0])
    assert (len(order), pace) == (2 * LEAST_PAIRS, Pace.UNCLEAR)


def test_times_of_products_alone_count_where_most_pairs_show_a_gain() -> None:
    alone = Ratio(0.7, 0.65, 0.75)
    one_disturbed, no_gain = [1.4, 1.4, 4.0], [1.4, 2.0, 2.1]
    assert pairs([2.0] * 3, one_disturbed, runs=6, alone=alone)[1] is Pace.FASTER
    assert pairs([2.0] * 3, no_gain, runs=6, alone=alone)[1] is Pace.UNCLEAR


def test_where_times_mean_nothing_there_is_one_pair() -> None:
    assert pairs([2.0], [1.0], timed=False)[0] == "np"


def test_a_line_says_how_long_a_tuning_takes(chain: Path) -> None:
    """Of a program that takes a second: 4 to 12 runs of it, and five seconds for its products."""
    chain.write_text(f"{CHAIN}import time\ntime.sleep(1)\n")
    lines: list[str] = []
    options = TuningOptions(Limits(Limit(1e-4)))
    settings = RunSettings(announce=lines.append)
    prepare.prepare(script(str(chain)), options, settings=settings)
    (line,) = lines
    found = re.fullmatch(r"a tuning takes about ([\d.]+) s: most often 4 to 12 runs .*", line)
    assert found is not None
    assert 13 <= float(found[1]) <= 40


def test_a_program_saves_what_its_lowered_products_save() -> None:
    found = module.Verification(
        error=0.0, worst="c", native_seconds=2.0, spread=0.0, native_lowered=1.0, ratio=FASTER
    )
    gain = found.gain(Pace.FASTER, native_seconds=4.0)  # where a report goes by a slower run
    assert (gain.before, gain.after) == (4.0, pytest.approx(3.5))


FAST, SLOW = Ratio(0.5, 0.4, 0.5 / 0.8), Ratio(1.5, 1.4, 1.5 * 15 / 14)
SMALL, LARGE = (10, 10, 10), (20, 10, 10)


def trace(**shapes: int) -> SiteResult:
    """A site's trace: calls of the small and the large shape."""
    known = {"small": SMALL, "large": LARGE}
    rows = [(*known[name], calls) for name, calls in shapes.items()]
    return SiteResult(sum(shapes.values()), 1.0, rows, {}, {}, {}, {})


def product(shape: tuple[int, int, int], ratio: Ratio | None, site: str = "s") -> MeasuredProduct:
    times = None if ratio is None else ProductTimes(1.0, ratio)
    return MeasuredProduct(site, shape, {}, {"float32": times})


def test_a_sites_ratio_is_that_of_its_shapes_by_their_parts_of_its_time() -> None:
    found = site_ratio(
        trace(small=2, large=3), [product(SMALL, FAST), product(LARGE, SLOW)], "float32"
    )
    assert isinstance(found, Ratio)
    # Of eight parts, the large calls make six.
    assert found.mean == pytest.approx((2 * 0.5 + 6 * 1.5) / 8)
    # The errors of both are independent: of 2 · 0.5 parts, and of 6 · 1.5.
    assert found.half_width == pytest.approx(hypot(log(5 / 4), 9 * log(15 / 14)) / 10, rel=0.05)


@pytest.mark.parametrize(("seconds", "saved"), [(0.04, 0.5), (0.08, 0.5 * 5 / 8), (2.0, 0.488)])
def test_what_new_memory_takes_in_the_program_is_saved_by_no_scheme(
    seconds: float, saved: float
) -> None:
    """Of 24 MB a call, at most 24 ms: whatever else the calls take longer is the machine's load."""
    cube = (1000, 1000, 1000)
    found = [MeasuredProduct("s", cube, {}, {"float32": ProductTimes(0.025, FAST)})]
    trace = SiteResult(2, seconds, [(*cube, 2)], {}, {}, {}, {})
    ratio = site_ratio(trace, found, "float32")
    assert isinstance(ratio, Ratio)
    assert ratio.mean == pytest.approx(1 - saved)


def test_a_shape_that_does_not_take_the_scheme_stays_native() -> None:
    found = site_ratio(
        trace(small=2, large=1), [product(SMALL, FAST), product(LARGE, None)], "float32"
    )
    assert isinstance(found, Ratio)
    assert found.mean == pytest.approx(0.75)


def test_why_a_site_has_no_ratio() -> None:
    assert site_ratio(trace(small=1), [], "float32") is StopReason.UNCLEAR
    assert site_ratio(trace(small=1), [product(SMALL, FAST)], "int8x6") is StopReason.UNCLEAR
    assert site_ratio(trace(small=1), [product(SMALL, None)], "float32") is StopReason.NOT_TAKEN


def test_a_site_below_one_percent_is_not_timed() -> None:
    sites = {"s": trace(small=1), "little": trace(small=1), "late": trace(small=1)}
    native = {"s": 2.0, "little": 0.01, "late": 0.1}
    cost = PairedTimes.of(native, sites, [product(SMALL, FAST)], ["float32"])
    slightly = PairedTimes(native, {"late": {"float32": Ratio(0.93, 0.9, 0.97)}})
    assert slightly.excluded("late") == {"float32": StopReason.TOO_LITTLE}  # saves 0.3 %
    assert cost.excluded("little") == {"float32": StopReason.NEGLIGIBLE}
    assert cost.excluded("late") == {"float32": StopReason.UNCLEAR}  # there was no time for it
    assert cost("little", sites["little"], "float32") == 0.01


@pytest.mark.parametrize(
    ("ratio", "seconds", "reason"),
    [
        (FAST, 1.0, None),
        (SLOW, 3.0, StopReason.NOT_FASTER),
        (Ratio(0.9, 0.5, 1.5), 1.8, StopReason.UNCLEAR),
        (Ratio(0.975, 0.95, 1.0), 1.95, StopReason.NOT_FASTER),  # at most a little faster
        (None, 2.0, StopReason.NOT_TAKEN),
    ],
)
def test_times_and_what_is_not_tried(
    ratio: Ratio | None, seconds: float, reason: StopReason | None
) -> None:
    site = trace(small=1)
    cost = PairedTimes.of({"s": 2.0}, {"s": site}, [product(SMALL, ratio)], ["float32"])
    assert cost("s", site, "native") == 2.0
    assert cost("s", site, "float32") == seconds
    assert cost.excluded("s") == ({} if reason is None else {"float32": reason})
