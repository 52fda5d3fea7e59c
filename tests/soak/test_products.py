"""The sweep over random products, on the reference backend."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench.arrays import Array, Numbers, narrow, of_parts, parts, wide
from mixpert_py.bench.families import FAMILIES
from mixpert_py.errors import MixPertError
from mixpert_py.runtime.dtypes import PRECISION
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Digits
from tests.every_check import sweep
from tests.mixpert_py.command import called
from tests.runtime.emulations import EMULATIONS
from tests.soak.random_products import case as product_case
from tests.soak.random_products import examine as product_examine
from tests.soak.random_products import slices as product_slices
from tests.soak.random_products import sweep as products
from tests.soak.random_products.backend import Backend, Product, backend
from tests.soak.random_products.case import (
    LAYOUTS,
    NAMES,
    SPECIALS,
    TILES,
    Case,
    Side,
    Way,
    draw,
    operands,
)
from tests.soak.random_products.examine import Outcome
from tests.soak.random_products.slices import Slices

REFERENCE = backend("reference")
PLAIN = Side("float32", "C", (), False)


def case(scheme: str = "int8x6", family: str = "normal", **other: Any) -> Case:
    return replace(Case(1, scheme, None, family, 20, 130, 30, PLAIN, PLAIN, ""), **other)


class TestNumbers:
    def test_they_depend_on_the_seed_alone(self) -> None:
        one, same, other = (Numbers(np, seed).random((50, 3)) for seed in (4, 4, 5))
        np.testing.assert_array_equal(one, same)
        assert not (one == other).any()

    def test_they_are_what_they_are_called(self) -> None:
        numbers = Numbers(np, 1)
        uniform, normal = numbers.random(100_000), numbers.standard_normal(100_000)
        assert 0 <= uniform.min() < 1e-4 < 0.9999 < uniform.max() < 1
        assert uniform.std() == pytest.approx(12**-0.5, rel=0.01)
        assert abs(normal.mean()) < 0.02
        assert normal.std() == pytest.approx(1, rel=0.01)
        assert abs(np.corrcoef(normal[1:], normal[:-1])[0, 1]) < 0.02
        assert set(numbers.integers(-1, 2, 100)) == {-1, 0, 1}
        assert set(numbers.choice([0.5, 7.0], 100)) == {0.5, 7.0}

    @pytest.mark.parametrize("family", FAMILIES)
    def test_families_take_them(self, family: str) -> None:
        for m, k, n in ((9, 12, 7), (0, 3, 2), (2, 0, 3)):
            a, b = FAMILIES[family](Numbers(np, 3), m, k, n)
            assert (a.shape, b.shape) == ((m, k), (k, n))
            assert a.dtype == b.dtype == np.float64


class TestParts:
    def test_each_holds_what_it_did(self) -> None:
        real = np.array([[1.0, np.inf, np.nan, 2.0**-140]])
        imaginary = np.array([[np.inf, 1.0, -0.0, 2.0**-149]])
        for letter in "FD":
            whole = narrow(of_parts(real, imaginary), np.dtype(letter))
            assert whole.dtype == letter
            for x in (whole, wide(whole)):
                for part, given in zip(parts(x), (real, imaginary), strict=True):
                    np.testing.assert_array_equal(part, given)
            assert wide(whole).dtype == np.complex128

    def test_a_real_array_is_its_own(self) -> None:
        (part,) = parts(np.ones(3))
        assert of_parts(part) is part


class TestCase:
    def test_everything_is_drawn(self) -> None:
        cases = [draw(seed) for seed in range(3000)]
        assert {one.scheme for one in cases} == set(NAMES)
        assert {one.family for one in cases} == set(product_case.ALL)
        assert {one.left.layout for one in cases} == set(LAYOUTS)
        assert {one.special for one in cases} == set(SPECIALS)
        types = ("float32", "float64", "complex64", "complex128")
        assert {(one.left.dtype, one.right.dtype) for one in cases} == {
            (a, b) for a in types for b in types
        }
        complex_ones = [one for one in cases if max(one.left.parts, one.right.parts) == 2]
        assert len(complex_ones) == pytest.approx(len(cases) / 8, rel=0.15)
        assert {one.special for one in complex_ones} == set(SPECIALS)
        assert {one.way for one in complex_ones} == {"", "left packed", "right packed", "out"}
        assert {one.way for one in cases} == {"", "left packed", "right packed", "out"}
        assert any(one.block for one in cases)
        assert any(one.left.stack != one.right.stack for one in cases)
        assert any(one.left.vector for one in cases)
        lengths = Counter(length for one in cases for length in (one.m, one.k, one.n))
        assert min(lengths) == 0
        assert 4000 < max(lengths) <= 4096
        assert lengths[0] > 50
        beside = {t * i + d for t in TILES for i in range(65) for d in (-1, 0, 1)}
        assert sum(count for n, count in lengths.items() if n in beside) > 0.5 * lengths.total()

    @pytest.mark.parametrize("largest", [1, 2, 40, 1000])
    def test_no_dimension_exceeds_the_largest(self, largest: int) -> None:
        cases = [draw(seed, largest) for seed in range(300)]
        assert max(max(one.m, one.k, one.n) for one in cases) <= largest

    def test_a_seed_makes_the_same_operands(self) -> None:
        for one, other in zip(operands(draw(5, 64), np), operands(draw(5, 64), np), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_kinds_come_in_turn_with_shapes_of_their_own(self) -> None:
        cases = [draw(seed, 512, 20) for seed in range(200)]
        kinds = {(x.scheme, x.block, x.left, x.right, x.way) for x in cases}
        assert 10 < len(kinds) <= 20
        assert len({(x.m, x.k, x.n, x.family) for x in cases}) > 150
        one, other = cases[3], cases[23]
        assert (one.scheme, one.left, one.right) == (other.scheme, other.left, other.right)

    def test_complex_operands_change_no_other_draw(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = [draw(seed, 64) for seed in range(100)]
        monkeypatch.setattr(product_case, "_complex_sides", lambda seed: (False, False))
        for one, plain in ((one, draw(one.seed, 64)) for one in found):
            left, right = (
                replace(side, dtype=PRECISION[side.dtype]) for side in (one.left, one.right)
            )
            assert replace(one, left=left, right=right) == plain

    def test_complex_operands_have_two_parts_of_their_family(self) -> None:
        sizes = set()
        for seed in range(1, 9):
            (a, b), (real, _) = (
                operands(case(seed=seed, left=replace(PLAIN, dtype=name)), np)
                for name in ("complex64", "float32")
            )
            assert (a.dtype, b.dtype) == (np.complex64, np.float32)
            np.testing.assert_array_equal(a.real, real)
            assert abs(np.corrcoef(a.real.ravel(), a.imag.ravel())[0, 1]) < 0.1
            sizes.add(round(np.log2(a.imag.std() / a.real.std())))
        assert sizes == {0, -17}

    def test_complex_operands_that_are_not_finite(self) -> None:
        _, b = operands(case(right=replace(PLAIN, dtype="complex128"), special="not finite"), np)
        assert b.dtype == np.complex128
        for part in parts(b):
            assert 0 < np.count_nonzero(~np.isfinite(part)) <= 3
        assert (np.isfinite(b.real) != np.isfinite(b.imag)).any()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_layouts_hold_the_same_matrices(self, layout: str) -> None:
        side = Side("float32", layout, (2,), False)
        a, _ = operands(case(left=side), np)
        plain, _ = operands(case(left=replace(side, layout="C")), np)
        expected = {
            "C": (520, 4),
            "F": (4, 80),
            "strided": (2 * 3 * 130 * 4, 12),
            "negative": (-520, -4),
            "offset": (532, 4),
            "repeated": (0, 4),
        }
        assert a.shape == (2, 20, 130)
        assert a.strides[-2:] == expected[layout]
        shown = plain[:, :1] if layout == "repeated" else plain
        np.testing.assert_array_equal(a, np.broadcast_to(shown, a.shape))

    def test_it_says_all_about_itself(self) -> None:
        left = Side("float64", "F", (3,), False)
        one = case(scheme="int8x1", block=128, left=left, special="overflow", way="out")
        assert str(one) == (
            "1: int8x1, block 128, 20 × 130 × 30, float64 F (3,) by float32 C, normal, "
            "overflow, out"
        )


@dataclass(frozen=True)
class Broken(Backend):
    """The reference backend with one thing wrong."""

    fault: str = ""

    def product(self, a: Array, b: Array, scheme: str, block: int | None, way: Way = "") -> Product:
        made = super().product(a, b, scheme, block, way)
        value = np.array(made.value)
        if self.fault == "an element":
            value[3, 4] += 1e-2
        elif self.fault == "rounding":
            value[3, 4] += 1e-4  # within what splitting may lose
        elif self.fault == "not a number":
            value[3, 4] = np.nan
        elif self.fault == "lost":
            value[np.isnan(value)] = 0
        elif self.fault == "type":
            value = value.astype(np.float16)
        elif self.fault == "crash":
            raise MixPertError("crash\nand more")
        elif self.fault == "imaginary" and value.dtype.kind == "c":
            value.imag *= 1 - 1e-6
        elif self.fault == "last place" and value.dtype.kind == "c":
            value[3, 4] = np.nextafter(value[3, 4].real, np.float32(0)) + 1j * value[3, 4].imag
        elif self.fault == "a part's contents" and value.dtype.kind == "c":
            value.imag[np.isnan(value.imag)] = np.inf
        elif self.fault == "no certificate":
            return replace(made, certificate=None)
        return replace(made, value=value)

    def slices(self, a: Array, b: Array, scheme: Scheme) -> tuple[Slices, Slices]:
        left, right = super().slices(a, b, scheme)
        if self.fault == "norms":
            return replace(left, residual=left.residual * 0.99), right
        return left, right


class TestCheck:
    @pytest.mark.parametrize("scheme", NAMES)
    @pytest.mark.parametrize("special", SPECIALS)
    def test_every_scheme_holds(self, scheme: str, special: Any) -> None:
        for family in ("normal", "spread 4"):
            found = product_examine.examine(REFERENCE, case(scheme, family, special=special))
            assert found == Outcome(scheme, [])

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            ("an element", "certificate: 1 elements beyond the bound, [3, 4] is "),
            ("rounding", "terms: 1 elements beyond the bound, [3, 4] is "),
            ("not a number", "certificate: 1 elements beyond the bound, [3, 4] is nan"),
            ("type", "the result is float16 (20, 30), to be float32 (20, 30)"),
            ("crash", "MixPertError: crash"),
            ("no certificate", "there is no certificate"),
            ("norms", "residual of A is no upper bound in 20 rows"),
        ],
    )
    def test_what_is_wrong_is_found(self, fault: str, expected: str) -> None:
        failures = product_examine.examine(Broken("reference", np, fault), case()).failures
        assert any(expected in failure for failure in failures), failures

    def test_residues_that_lose_more_than_they_state_are_found(self) -> None:
        class Coarse(Backend):
            def product(
                self, a: Array, b: Array, scheme: str, block: int | None, way: Way = ""
            ) -> Product:
                made = super().product(a, b, scheme, block, way)
                return replace(made, value=made.value * (1 + 2.0**-44))

        side = replace(PLAIN, dtype="float64")
        one = case("crt15", "uniform [0, 1)", left=side, right=side)
        assert product_examine.examine(REFERENCE, one) == Outcome("crt15", [])
        failures = product_examine.examine(Coarse("reference", np), one).failures
        assert any(failure.startswith("residues: [") for failure in failures), failures

    @pytest.mark.parametrize(
        ("special", "scheme", "pair"),
        sweep(
            SPECIALS,
            ["int8x6", "mixpert-IV", "fp16x3", "bf16x6", "faithful"],
            ["FF", "DD", "Fd", "fF", "dD"],
        ),
    )
    def test_complex_products_hold(self, scheme: str, special: Any, pair: str) -> None:
        left, right = (replace(PLAIN, dtype=np.dtype(letter).name) for letter in pair)
        for seed, family in ((1, "normal"), (2, "spread 4")):
            one = case(scheme, family, seed=seed, left=left, right=right, special=special)
            assert product_examine.examine(REFERENCE, one) == Outcome(scheme, [])

    @pytest.mark.parametrize(
        ("fault", "special", "expected"),
        [
            ("an element", "", "certificate: 1 elements beyond the bound, [3, 4] is ("),
            ("rounding", "", "1 elements differ from what the parts make"),
            ("last place", "", "1 elements differ from what the parts make"),
            ("imaginary", "", "elements differ from what the parts make"),
            ("lost", "not finite", "NaN and Inf: "),
            ("a part's contents", "not finite", "NaN and Inf: "),
            ("norms", "", "of parts: residual of A is no upper bound in 20 rows"),
            ("no certificate", "", "there is no certificate"),
        ],
    )
    def test_what_is_wrong_with_a_complex_product_is_found(
        self, fault: str, special: Any, expected: str
    ) -> None:
        side = replace(PLAIN, dtype="complex64")
        one = case(left=side, right=side, special=special)
        failures = product_examine.examine(Broken("reference", np, fault), one).failures
        assert any(expected in failure for failure in failures), failures

    @pytest.mark.parametrize("pair", ["FF", "Ff", "fF"])
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("stack", [(), (2,)], ids=["matrix", "stack"])
    def test_parts_lie_as_a_complex_product_has_them(
        self, stack: tuple[int, ...], layout: str, pair: str
    ) -> None:
        """In C order if they are of a complex operand, else as the real operand does."""

        class Repairs(Backend):
            def product(
                self, a: Array, b: Array, scheme: str, block: int | None, way: Way = ""
            ) -> Product:
                made = super().product(a, b, scheme, block, way)
                rounded = np.array(made.value)
                if any(x.dtype.kind == "f" and x.strides[-1] != x.itemsize for x in (a, b)):
                    for part in parts(rounded):
                        part[..., 3, 4] = np.nextafter(part[..., 3, 4], np.float32(0))
                return replace(made, value=rounded)

        left, right = (
            replace(PLAIN, dtype=np.dtype(letter).name, layout=layout, stack=stack)
            for letter in pair
        )
        one = case(left=left, right=right)
        assert product_examine.examine(Repairs("reference", np), one) == Outcome("int8x6", [])

    @pytest.mark.parametrize("special", ["", "not finite"])
    def test_native_complex_products_are_judged_as_such(self, special: Any) -> None:
        class Native(Backend):
            def product(
                self, a: Array, b: Array, scheme: str, block: int | None, way: Way = ""
            ) -> Product:
                return Product(a @ b * (1 + (scheme == "int8x1") * 1e-4), "native", "", None)

        side = replace(PLAIN, dtype="complex64")
        for scheme, wrong in (("int8x6", False), ("int8x1", True)):
            one = case(scheme, left=side, right=side, special=special)
            failures = product_examine.examine(Native("reference", np), one).failures
            assert [failure.split(":")[0] for failure in failures] == ["native"] * wrong, failures

    def test_values_that_are_not_finite_are_looked_for(self) -> None:
        broken = Broken("reference", np, "lost")
        failures = product_examine.examine(broken, case(special="not finite")).failures
        assert any("NaN and Inf: " in failure for failure in failures), failures

    def test_a_stack_is_what_its_matrices_are(self) -> None:
        stacked = case(left=replace(PLAIN, stack=(3,)))
        assert product_examine.examine(REFERENCE, stacked) == Outcome("int8x6", [])

        class Other(Backend):
            def product(
                self, a: Array, b: Array, scheme: str, block: int | None, way: Way = ""
            ) -> Product:
                made = super().product(a, b, scheme, block, way)
                return replace(made, value=made.value * (1 + (a.ndim == 3) * np.float32(1e-7)))

        failures = product_examine.examine(Other("reference", np), stacked).failures
        assert any("of matrix (2,) differ" in failure for failure in failures), failures


@dataclass(frozen=True)
class FakePacked:
    """Slices laid out byte by byte as the device's kernels take them."""

    layout: Any
    splitter: Any
    arrays: dict[str, Array]

    def view(self, name: str) -> Array:
        return self.arrays[name]


@dataclass(frozen=True)
class FakeLayout:
    count: int
    rows: int
    block: int
    padded_block: int


BYTES = {"int8": np.int8, "float16": np.float16, "bfloat16": np.uint16, "tf32": np.float32}


def laid_out(slices: Slices, scheme: Scheme, exponent: int) -> FakePacked:
    """Values (count, rows, k) with the unit g · 2^E = 2^exponent everywhere, element by element."""
    count, rows, k = slices.values.shape
    element, splitter = scheme.element.name, scheme.left
    size = np.dtype(BYTES[element]).itemsize
    block = min(100, k)
    padded = -(-block // (64 // size)) * (64 // size)
    blocks = -(-k // block)
    steps, rows8 = -(-blocks * padded // (64 // size)), -(-rows // 8) * 8
    raw = np.zeros(steps * count * rows8 * 64, np.uint8)
    width = splitter.width if isinstance(splitter, Digits) else splitter.step
    for p, row, j in np.ndindex(count, rows, k):
        digit = np.float32(slices.values[p, row, j] * 2.0 ** (width * p - exponent))
        if element == "bfloat16":
            stored = np.array(digit.view(np.uint32) >> 16, np.uint16)
        else:
            stored = np.array(digit, BYTES[element])
        s, i = divmod(j // block * padded + j % block, 64 // size)
        chunk, offset = divmod(i * size, 16)
        place = ((s * count + p) * rows8 + row) * 64 + (chunk ^ (row >> 1 & 3)) * 16 + offset
        raw[place : place + size] = stored.reshape(1).view(np.uint8)
    arrays = {
        "slices": raw.reshape(1, steps, count, rows8, 64),
        "scales": np.full((1, blocks, rows), (exponent - 8) << 9 | 256, np.int32),
        "flags": (~slices.whole).astype(np.uint8)[None],
        "norms": np.concatenate([[slices.norm], [slices.residual], slices.norms])[None],
    }
    return FakePacked(FakeLayout(count, rows, block, padded), splitter, arrays)


@pytest.mark.parametrize("name", ["int8x6", "mixpert-IV", "fp16x3", "legemm", "bf16x6", "tf32x3"])
def test_slices_of_the_device_are_read_back(name: str) -> None:
    scheme, k = EMULATIONS[name], 230
    # Entries of ±1 … ±2 in steps of 2^-6 have the same unit in every row: powers of two do.
    x = np.random.default_rng(1).integers(64, 128, (11, k)) / 64.0
    x[:, 0] = 1.984375
    x[4, 3] = np.nan
    plain = Scheme(name, scheme.element, _plain(scheme), _plain(scheme), scheme.terms, 0.0)
    left, _ = reference.pack(x, x.T, plain, "none")
    expected = product_slices.of_reference(left, plain.left, k, plain.lengths(k)[1], False)
    exponent = int(left.exponents[0, 0])
    found = product_slices.of_device(np, laid_out(expected, plain, exponent), k)
    for part in ("values", "whole", "norm", "residual", "norms"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
    assert found.whole.tolist() == [row != 4 for row in range(11)]
    np.testing.assert_array_equal(found.values.sum(axis=0)[found.whole], x[found.whole])


def _plain(scheme: Scheme) -> Any:
    """The splitter with one bare power of two for a row."""
    splitter = scheme.left
    return replace(splitter, fitted=False, block=None) if isinstance(splitter, Digits) else splitter


def test_a_product_that_is_not_repeatable_is_found() -> None:
    @dataclass(frozen=True)
    class Unsteady(Backend):
        made: list[int] = field(default_factory=list)

        def product(
            self, a: Array, b: Array, scheme: str, block: int | None, way: Way = ""
        ) -> Product:
            made = super().product(a, b, scheme, block, way)
            self.made.append(1)
            value = np.array(made.value)
            value[0, 0] = np.nextafter(value[0, 0], np.float32(np.inf * (-1) ** len(self.made)))
            return replace(made, value=value)

    failures = product_examine.examine(Unsteady("reference", np), case(seed=8)).failures
    assert failures == ["1 elements differ when the product is made again"]


class TestSweep:
    HERE = staticmethod(products.one_by_one("reference", 48, 1))

    def test_it_goes_on_where_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        messages: list[str] = []
        times = iter(range(1000))
        state = products.load(path, "reference", 48)
        products.sweep(self.HERE, state, 30, 20, path, messages.append, lambda: float(next(times)))
        assert 0 < state.next < 30
        again = products.load(path, "reference", 48)
        assert again == state
        products.sweep(self.HERE, again, 30, 1e9, path, messages.append)
        assert again.next == sum(again.ran.values()) == 30
        assert again.seconds > state.seconds
        assert not messages
        assert not again.failures

    def test_failures_are_kept_with_their_seed(self) -> None:
        state = products.State("reference", 32)
        messages: list[str] = []
        broken = Broken("reference", np, "crash")

        def examine(seeds: Iterator[int]) -> Iterator[Outcome]:
            return (product_examine.examine(broken, draw(seed, 32)) for seed in seeds)

        products.sweep(examine, state, 100, 1e9, None, messages.append)
        assert state.next == products.GIVE_UP
        assert messages[:-1] == state.failures
        assert state.failures[3] == f"{draw(3, 32)}: MixPertError: crash"
        assert messages[-1] == "25 products failed in a row: given up"

    def test_several_processes_do_what_one_does(self) -> None:
        states = [products.State("reference", 24) for _ in range(2)]
        for state, workers in zip(states, (1, 2), strict=True):
            examine = products.one_by_one("reference", 24, workers)
            products.sweep(examine, state, 20, 1e9, None, lambda line: None)
        assert states[0].ran == states[1].ran
        assert states[1].next == 20

    def test_a_state_of_another_sweep_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        products.write(products.State("reference", 64), path)
        with pytest.raises(MixPertError, match="on reference up to 64; give another file"):
            products.load(path, "cuda", 64)
        path.write_text('{"next": 3}')
        with pytest.raises(MixPertError, match="not a state"):
            products.load(path, "cuda", 64)


class TestCommand:
    def test_a_handful_of_products(self, tmp_path: Path) -> None:
        command = ("products", "--backend", "reference", "--largest", "40")
        for count in ("10", "15"):
            done = called(
                *("tests.soak", *command, "--count", count, "--state", "state.json"),
                folder=tmp_path,
            )
            assert done.code == 0, done
            assert done.err.startswith(f"products passed: {count} random products, ")
        done = called("tests.soak", *command, "--seed", "7", folder=tmp_path)
        assert done.code == 0
        assert done.out.splitlines()[0] == str(draw(7, 40))
        assert done.out.endswith(": holds\n")

    def test_without_a_gpu(self, tmp_path: Path) -> None:
        done = called("tests.soak", "products", folder=tmp_path, CUDA_VISIBLE_DEVICES="")
        assert done.code == 2
        assert "runs on a GPU" in done.one_clear_line()


def stuck_at_two(seed: int) -> Outcome:
    if seed == 2:
        sleep(600)
    return Outcome(str(seed), [])


def test_a_product_that_never_comes_fails_and_the_others_go_on() -> None:
    found = list(products.in_processes(stuck_at_two, iter(range(6)), 2, patience=6))
    assert [outcome.ran for outcome in found] == ["0", "1", "failed", "3", "4", "5"]
    assert found[2].failures == ["no product after 6 s"]
