"""Random pairs of families held against `faithful`'s bound."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mixpert_py.bench.arrays import Array, narrow, parts, wide
from mixpert_py.bench.contract import allowed
from mixpert_py.errors import MixPertError
from mixpert_py.runtime.gpu import guard
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from tests.mixpert_py.command import called
from tests.soak.command import soak
from tests.soak.random_products import sweep as products
from tests.soak.random_products.backend import Backend, backend
from tests.soak.random_products.case import Side, Way
from tests.soak.random_products.examine import Margin, Outcome
from tests.soak.random_products.examine_pair import all_guarded, examine
from tests.soak.random_products.pair import ALL, LAYOUTS, LONG_K, Pair, Scales, draw, operands

REFERENCE = backend("reference")
PLAIN = Side("float32", "C", (), False)
COMPLEX = replace(PLAIN, dtype="complex64")
NOTHING = Scales(False, False, False)


def pair(a: str = "normal", b: str = "spread 1", **other: Any) -> Pair:
    made = Pair(1, (a, b), 12, 40, 9, NOTHING, PLAIN, PLAIN, "", False)
    return replace(made, **other)


class TestDraw:
    def test_everything_is_drawn(self) -> None:
        pairs = [draw(seed) for seed in range(20_000)]
        assert len({one.families for one in pairs}) == len(ALL) ** 2
        assert {(one.left.layout, one.right.layout) for one in pairs} == set(
            product(LAYOUTS, LAYOUTS)
        )
        assert len({one.scales for one in pairs}) == 8
        for length in ("m", "k", "n"):
            found = sorted(getattr(one, length) for one in pairs)
            assert (found[0], found[-1]) == (1, 512)
            assert 40 < found[10_000] < 100

        def share(holds: Callable[[Pair], bool]) -> float:
            return sum(map(holds, pairs)) / len(pairs)

        assert share(lambda one: one.way != "") == pytest.approx(1 / 8, rel=0.1)
        assert share(lambda one: one.is_complex) == pytest.approx(1 / 16, rel=0.1)
        assert share(lambda one: one.is_stack) == pytest.approx(1 / 16, rel=0.1)
        assert share(lambda one: one.guarded) == pytest.approx(1 / 2, rel=0.1)
        assert share(lambda one: one.guarded and one.k >= LONG_K) > 1 / 5
        assert {one.way for one in pairs} == {"", "left packed", "right packed"}
        assert {one.left.stack for one in pairs} == {(), (2,), (3,), (4,)}

    @pytest.mark.parametrize("largest", [1, 2, 40, 200])
    def test_no_dimension_exceeds_the_largest(self, largest: int) -> None:
        pairs = [draw(seed, largest) for seed in range(300)]
        lengths = {length for one in pairs for length in (one.m, one.k, one.n)}
        assert 1 == min(lengths) <= max(lengths) <= largest

    def test_it_says_all_about_itself(self) -> None:
        one = pair(scales=Scales(True, False, True), right=Side("complex64", "F", (3,), False))
        assert str(replace(one, way="left packed", guarded=True)) == (
            "1: normal by spread 1, 12 × 40 × 9, scaled rows, K, float32 C by complex64 F (3,), "
            "left packed, guarded"
        )
        assert str(pair()) == "1: normal by spread 1, 12 × 40 × 9, float32 C by float32 C"


class TestOperands:
    def test_a_seed_makes_the_same(self) -> None:
        for one, other in zip(operands(draw(5), np), operands(draw(5), np), strict=True):
            np.testing.assert_array_equal(one, other)

    @np.errstate(over="ignore", under="ignore")
    def test_all_are_finite_and_of_their_shape(self) -> None:
        most = np.finfo(np.float32).max
        extremes = set()
        for one in (draw(seed, 80) for seed in range(1000)):
            a, b = operands(one, np)
            assert a.shape == (*one.left.stack, one.m, one.k)
            assert b.shape == (*one.right.stack, one.k, one.n)
            assert (a.dtype, b.dtype) == (one.left.dtype, one.right.dtype)
            for part in (*parts(a), *parts(b)):
                assert np.isfinite(part).all(), one
                extremes |= {str(sign) for sign in (1, -1) if (part == sign * most).any()}
        assert extremes == {"1", "-1"}  # out of range, brought to its end

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_each_is_of_its_own_family(self, side: str) -> None:
        """The left one alone has exponents apart, or the right one alone."""
        names = ("spread 4", "constant") if side == "left" else ("constant", "spread 4")
        spreads = [np.log2(abs(x)).std() for x in operands(pair(*names), np)]
        assert [spread > 3 for spread in spreads] == [side == "left", side == "right"]

    def test_scales_lie_where_they_are_said_to(self) -> None:
        """Constant operands show them: along which axes an operand's entries differ."""

        def differ(scales: Scales) -> list[bool]:
            a, b = operands(pair("constant", "constant", scales=scales), np)
            return [len({*x.ravel()}) > 1 for x in (a[:, 0], a[0], b[:, 0], b[0])]

        assert differ(NOTHING) == [False, False, False, False]
        assert differ(Scales(True, False, False)) == [True, False, False, False]
        assert differ(Scales(False, True, False)) == [False, False, False, True]
        assert differ(Scales(False, False, True)) == [False, True, True, False]
        a, b = operands(pair("constant", "constant", scales=Scales(False, False, True)), np)
        each = wide(a[0]) * wide(b[:, 0])  # the scales of K cancel out
        np.testing.assert_allclose(each, each[0], rtol=1e-6)

    def test_parts_differ(self) -> None:
        a, _ = operands(pair(left=COMPLEX), np)
        assert abs(np.corrcoef(a.real.ravel(), a.imag.ravel())[0, 1]) < 0.2


@dataclass(frozen=True)
class Wrong(Backend):
    """The reference backend, its results changed by a function of operands and result."""

    change: Callable[[Array, Array, Array], Array]

    def value(self, a: Array, b: Array, scheme: str, way: Way = "") -> Array:
        return self.change(a, b, np.array(super().value(a, b, scheme, way)))


def wrong(change: Callable[[Array, Array, Array], Array]) -> Wrong:
    return Wrong("reference", np, change)


def off_by(times: float) -> Wrong:
    """Every element is so many times as far off as is allowed."""

    def change(a: Array, b: Array, value: Array) -> Array:
        exact, absolute = wide(a) @ wide(b), abs(wide(a)) @ abs(wide(b))
        return narrow(exact + times * allowed(a.shape[1], absolute), np.dtype(np.float32))

    return wrong(change)


class TestExamine:
    @pytest.mark.parametrize("left", [PLAIN, COMPLEX, replace(PLAIN, stack=(2,))], ids=str)
    @pytest.mark.parametrize("right", [PLAIN, COMPLEX, replace(PLAIN, stack=(2,))], ids=str)
    @pytest.mark.parametrize("way", ["", "left packed", "right packed"])
    def test_products_hold(self, left: Side, right: Side, way: Way) -> None:
        outcome = examine(REFERENCE, pair(left=left, right=right, way=way))
        assert outcome.failures == []
        assert outcome.margin is not None
        parts_of_c = 1 + (COMPLEX in (left, right))
        stacked = 2 if (2,) in (left.stack, right.stack) else 1
        assert outcome.margin.elements == parts_of_c * stacked * 12 * 9
        assert outcome.margin.families == "normal by spread 1"
        assert 0 < outcome.margin.ratio < 1

    @pytest.mark.parametrize(("times", "count"), [(0.97, 0), (-0.97, 0), (1.03, 108)])
    def test_the_bound_is_that_of_the_contract(self, times: float, count: int) -> None:
        """(12 + 40) · u · |A||B|, of which float32 holds all but 1 in 52."""
        outcome = examine(off_by(times), pair())
        failures = [failure.partition(",")[0] for failure in outcome.failures]
        assert failures == [f"{count} of 108 elements beyond the bound"] * (count > 0)
        assert outcome.margin is not None
        assert outcome.margin.ratio == pytest.approx(abs(times), rel=1 / 52)

    @pytest.mark.parametrize(("times", "holds"), [(3, True), (4, False)])
    def test_what_underflows_may(self, times: int, holds: bool) -> None:
        """Where |A||B| is 0, K smallest numbers are left of the bound."""
        nothing = wrong(lambda a, b, c: c * 0 + np.float32(times * 2.0**-149))
        outcome = examine(nothing, pair("sparse 1 %", "sparse 1 %", m=1, k=3, n=1))
        assert (outcome.failures == []) == holds
        assert outcome.margin == Margin("sparse 1 % by sparse 1 %", 1, times / 3)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_not_finite_is_found_in_every_part(self, value: float) -> None:
        def change(a: Array, b: Array, c: Array) -> Array:
            for part in parts(c):
                part[..., 3, 4] = value
            return c

        (failure,) = examine(wrong(change), pair()).failures
        assert failure.startswith(
            f"1 of 108 elements beyond the bound, [3, 4] is {value!r}, to be "
        )
        assert failure.endswith(": inf times what is allowed")
        both = examine(wrong(change), pair(left=COMPLEX, right=COMPLEX)).failures
        assert [failure.split(":")[0] for failure in both] == ["real part", "imaginary part"]
        stack = replace(PLAIN, stack=(2,))
        (failure,) = examine(wrong(change), pair(right=stack)).failures
        assert failure.startswith("2 of 216 elements beyond the bound, [0, 3, 4] is ")

    def test_what_overflows_is_not_held(self) -> None:
        """Where |A||B| is beyond float32's range, NaN is as good as anything."""
        lost = wrong(lambda a, b, c: np.where(np.isfinite(c), c, np.float32(np.nan)))
        one = pair("huge entry", "beyond half's range", seed=2)
        outcome = examine(lost, one)
        assert outcome.failures == []
        assert outcome.margin is not None
        assert 0 < outcome.margin.elements < 108

    def test_parts_of_a_complex_product_have_the_bounds_of_two_and_a_rounding(self) -> None:
        """Each of the four real products is off as far as it may be, then the sum is rounded."""

        def at(times: float) -> Outcome:
            def change(a: Array, b: Array, c: Array) -> Array:
                k = a.shape[1]

                def off(x: Array, y: Array, sign: float) -> Array:
                    x, y = wide(x), wide(y)
                    return x @ y + sign * times * allowed(k, abs(x) @ abs(y))

                pairs_of_parts = [(x, y) for x in parts(a) for y in parts(b)]
                rr, ri, ir, ii = (
                    off(x, y, sign)
                    for (x, y), sign in zip(pairs_of_parts, (1, 1, 1, -1), strict=True)
                )
                c.real, c.imag = rr - ii, ri + ir
                return c

            return examine(wrong(change), pair(left=COMPLEX, right=COMPLEX))

        assert at(0.999).failures == []
        assert [failure.split(":")[0] for failure in at(1.03).failures] == [
            "real part",
            "imaginary part",
        ]
        # A sum of two products is allowed as much as both, and no more than a rounding besides.
        margin = at(1).margin
        assert margin is not None
        assert 1 - 2 / (12 + 40) < margin.ratio < 1 + 2 / (12 + 40)

    def test_a_result_of_another_type_or_shape(self) -> None:
        halves = wrong(lambda a, b, c: c.astype(np.float16))
        assert examine(halves, pair()).failures == [
            "the result is float16 (12, 9), to be float32 (12, 9)"
        ]

    def test_what_raises_fails(self) -> None:
        def change(a: Array, b: Array, c: Array) -> Array:
            raise MixPertError("kernel\nand more")

        assert examine(wrong(change), pair()) == ("failed", ["MixPertError: kernel"], None)

    def test_on_a_gpu_half_are_prepared_as_large_ones_are(self) -> None:
        """Here the GPU's arrays are NumPy's, and its products the reference's."""
        seen = []

        @dataclass(frozen=True)
        class OnDevice(Backend):
            def value(self, a: Array, b: Array, scheme: str, way: Way = "") -> Array:
                seen.append(guard.wider_of(FP16X3, a, b))
                return REFERENCE.value(a, b, scheme, way)

        before = guard.LEAST
        for name, one, ran in (
            ("cuda", pair(k=128, guarded=True), "faithful, guarded"),
            ("cuda", pair(k=128), "faithful"),
            ("reference", pair(k=128, guarded=True), "faithful"),
        ):
            chosen: Any = name
            assert examine(OnDevice(chosen, np), one)[:2] == (ran, [])
        assert seen == [FP16X3.wider, None, None]
        assert guard.LEAST == before == (1 << 30) + 1

    def test_the_limit_is_what_it_was_after_a_failure_too(self) -> None:
        found = []

        def fail() -> None:
            with all_guarded():
                found.append(guard.LEAST)
                raise MixPertError("anything")

        before = guard.LEAST
        with pytest.raises(MixPertError):
            fail()
        assert [*found, guard.LEAST] == [1, before]


def swept(examined: Callable[[int], Outcome], count: int) -> tuple[products.State, list[str]]:
    def outcomes(seeds: Iterator[int]) -> Iterator[Outcome]:
        return map(examined, seeds)

    state, messages = products.State("reference", 64, contract=True), []
    products.sweep(outcomes, state, count, 1e9, None, messages.append)
    return state, messages


class TestSweep:
    def test_a_hundred_hold(self) -> None:
        state, messages = swept(lambda seed: examine(REFERENCE, draw(seed, 64)), 100)
        assert messages == state.failures == []
        assert state.next == sum(state.ran.values()) == 100
        assert state.elements > 10_000
        assert len(state.ratios) > 90
        assert state.ratios.keys() == state.nearest.keys()
        assert 0.2 < max(state.ratios.values()) <= 1

    def test_a_wrong_product_is_named_by_its_seed(self) -> None:
        """In product 7 of forty, one element loses its last four digits."""

        def change(a: Array, b: Array, c: Array) -> Array:
            flat = c.reshape(-1)
            place = abs(flat).argmax()
            flat[place] *= np.float32(1 - 1e-3)
            return c

        def examined(seed: int) -> Outcome:
            return examine(wrong(change) if seed == 7 else REFERENCE, draw(seed, 64))

        state, messages = swept(examined, 40)
        assert state.next == 40
        (line,) = messages
        assert line.startswith(f"{draw(7, 64)}: ")
        assert "1 of " in line
        assert state.failures == messages
        assert max(state.ratios, key=lambda name: state.ratios[name]) == " by ".join(
            draw(7, 64).families
        )

    def test_the_narrowest_margin_of_each_pair_is_kept_with_its_seed(self) -> None:
        found = [("x", 5, 0.2), ("y", 3, 0.0), ("x", 4, 0.5), ("x", 1, 0.4)]
        state, _ = swept(lambda seed: Outcome("faithful", [], Margin(*found[seed])), 4)
        assert state.elements == 13
        assert state.ratios == {"x": 0.5, "y": 0.0}
        assert state.nearest == {"x": 2, "y": 1}

    def test_several_processes_find_what_one_does_and_go_on(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        alone = products.State("reference", 24, contract=True)
        work = products.one_by_one("reference", 24, 1, contract=True)
        products.sweep(work, alone, 30, 1e9, None, print)
        work = products.one_by_one("reference", 24, 2, contract=True)
        for count in (12, 30):
            state = products.load(path, "reference", 24, contract=True)
            products.sweep(work, state, count, 1e9, path, print)
        assert replace(state, seconds=0.0) == replace(alone, seconds=0.0)
        with pytest.raises(MixPertError, match="up to 24, of the contract; give another file"):
            products.load(path, "reference", 24)


class TestCommand:
    COMMAND = ("products", "--contract", "--backend", "reference", "--largest", "40")

    def test_a_handful_of_products(self, tmp_path: Path) -> None:
        given = (*self.COMMAND, "--count", "20", "--state", "state.json")
        done = called("tests.soak", *given, folder=tmp_path)
        assert done.code == 0, done
        *lines, last = done.err.splitlines()
        assert last.startswith("contract passed: 20 random products of ")
        assert len(lines) == 5
        ratios = [float(line.split()[0]) for line in lines]
        assert ratios == sorted(ratios, reverse=True)
        assert last.endswith(f": 0 beyond it, the largest error {ratios[0]:.3f} of what is allowed")
        assert json.loads(done.out)["gate"] == "contract"
        seed = lines[0].rpartition("(seed ")[2].rstrip(")")
        done = called("tests.soak", *self.COMMAND, "--seed", seed, folder=tmp_path)
        assert done.code == 0
        first, second = done.out.splitlines()
        assert first == str(draw(int(seed), 40))
        assert second.endswith(f": holds, at most {ratios[0]:.3f} of what is allowed")

    def test_the_exit_code_of_a_failure(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def value(self: Backend, a: Array, b: Array, scheme: str, way: Way = "") -> Array:
            made = REFERENCE_VALUE(self, a, b, scheme, way)
            return made * np.float32(np.nan) if a.shape[-2] == marked.m else made

        marked = draw(5, 40)
        monkeypatch.setattr(Backend, "value", value)
        state = str(tmp_path / "state.json")
        command = (
            "products",
            "--contract",
            "--backend",
            "reference",
            "--largest",
            "40",
            "--state",
            state,
        )
        done = CliRunner().invoke(soak, [*command, "--count", "8"], standalone_mode=False)
        assert done.return_value == 1
        assert done.output.startswith(f"{marked}: ")
        failures = json.loads(Path(state).read_text("utf-8"))["failures"]
        assert json.loads(done.stdout)["figures"]["failures"] == failures
        assert len(failures) >= 1
        for seed, code in ((5, 1), (4, 0)):
            done = CliRunner().invoke(soak, [*command, "--seed", str(seed)], standalone_mode=False)
            assert done.return_value == code
            assert done.output.startswith(f"{draw(seed, 40)}\n")

    def test_the_default_size(self, tmp_path: Path) -> None:
        done = called("tests.soak", *self.COMMAND[:4], "--seed", "3", folder=tmp_path)
        assert done.code == 0
        assert done.out.splitlines()[0] == str(draw(3))

    def test_kinds_are_of_schemes(self, tmp_path: Path) -> None:
        done = called("tests.soak", *self.COMMAND, "--kinds", "3", folder=tmp_path)
        assert done.code == 2
        assert "--kinds draws schemes" in done.err


REFERENCE_VALUE = Backend.value
