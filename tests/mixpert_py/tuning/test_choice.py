"""What a tuning compares by default: results, and neither steps to them nor residuals."""

from pathlib import Path

import pytest

from mixpert_py.launch.program import script
from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.tuning.judge import ComparedValues, choose
from mixpert_py.tuning.options import TuningOptions, limits_from
from mixpert_py.tuning.search import TuningResult
from mixpert_py.tuning.verify import check_plan
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

CONJUGATE_GRADIENTS = """\
import numpy as np
rng = np.random.default_rng(0)
m = rng.standard_normal((160, 160))
a = m @ m.T / 160 + np.eye(160)
b = rng.standard_normal((160, 160))
x = np.zeros((160, 160))
r = b - a @ x
p = r.copy()
rs = np.sum(r * r, axis=0)
for k in range(200):
    ap = a @ p
    alpha = rs / np.sum(p * ap, axis=0)
    x = x + alpha * p
    r = r - alpha * ap
    new = np.sum(r * r, axis=0)
    p = r + new / rs * p
    rs = new
    if np.sqrt(new.max()) < 1e-8:
        break
residual = np.linalg.norm(b - a @ x) / np.linalg.norm(b)
print(residual)
"""
SILENT = CONJUGATE_GRADIENTS.replace("print(residual)\n", "")
REFINEMENT = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((160, 160)) + 40 * np.eye(160)
b = rng.standard_normal((160, 160))
inverse = np.linalg.inv(a.astype(np.float32)).astype(np.float64)
x = inverse @ b
for _ in range(5):
    r = b - a @ x
    d = inverse @ r
    x = x + d
"""


def chosen(source: str, ratios: dict[str, float], *named: str, **kinds: str) -> ComparedValues:
    """The choice for a source; all variables are floats but those in `kinds`."""
    flow = dependencies(source.encode(), "m")
    return choose(dict.fromkeys(flow.names, "f") | kinds, flow, ratios, named)


def left_out(choice: ComparedValues) -> tuple[set[str], set[str]]:
    return set(choice.steps), set(choice.residuals)


TINY = {"r": 1e-9, "residual": 1e-9}


def test_the_answer_of_conjugate_gradients() -> None:
    found = chosen(SILENT, TINY)
    assert found.compared == ("x",)
    assert left_out(found) == ({"a", "alpha", "ap", "new", "p", "rs"}, {"r", "residual"})
    # Nothing else shows the error of the product in the last line.
    (check,) = found.products
    assert check.endswith("#1")


def test_a_residual_that_is_shown_is_compared_beside_the_answer() -> None:
    """Nobody but the user knows that it is none of the results."""
    found = chosen(CONJUGATE_GRADIENTS, TINY)
    assert found.compared == ("residual", "x")
    assert found.residuals == ("r",)
    source = "p = a @ b\nq = c @ b\ngap = q - p\nprint(gap)\n"
    assert chosen(source, {"gap": 1e-9}).compared == ("gap", "p", "q")


def test_a_product_that_no_variable_shows_is_compared() -> None:
    source = "def f():\n    return (a @ b)[0] - 1\nx = c @ d\nprint(f())\n"
    found = chosen(source, {})
    assert found.compared == ("x",)
    assert len(found.products) == 1
    assert "and 1 product that they do not show." in found.sentence


def test_a_difference_that_is_not_small_is_a_result() -> None:
    assert chosen(CONJUGATE_GRADIENTS, {"r": 1e-9, "residual": 0.1}).compared == ("residual",)


def test_what_is_named_or_shown_is_compared() -> None:
    source = "p = a @ b\nq = p + 1\ns = q * 2\nprint(q)\n"
    assert chosen(source, {}).compared == ("q", "s")
    assert chosen(source, {}, "p").compared == ("p", "q", "s")
    assert chosen(SILENT, TINY, "r", "p").compared == ("p", "r", "x")


def test_learned_weights_are_results() -> None:
    learning = (
        "w = a @ b\nfor k in range(9):\n    e = c @ w - t\n    loss = e.sum()\n    w -= c.T @ e\n"
    )
    assert chosen(learning, {}).compared == ("loss", "w")
    # Where the program goes on with them, they are a step.
    assert chosen(f"{learning}y = c @ w\n", {}).compared == ("loss", "y")


def test_decisions_hide_no_numbers() -> None:
    source = "s = a @ b\nlabels = s.argmax(1)\nhit = labels == t\nmean = hit.mean()\n"
    found = chosen(source, {}, labels="i", hit="b")
    assert found.compared == ("labels", "mean")
    assert found.steps == ("hit", "s")
    assert chosen("s = a @ b\nmask = s > 0\n", {}, mask="b").compared == ("mask", "s")


def test_the_sentence_says_how_to_choose_otherwise() -> None:
    assert chosen("x = a @ b\n", {}).sentence == "Compared: x."
    in_main = chosen("def main():\n    print(a @ b)\nmain()\n", {}).sentence
    assert in_main.startswith("Compared: the last result of 1 product, since no variable")
    assert chosen(REFINEMENT, {"r": 1e-9}).sentence == (
        "Compared: x. Not compared, since compared values are computed from them: d. Not compared, "
        "since a plan may change such tiny differences: r. To compare others: --compare NAME, for "
        "each."
    )


def options(*names: str, compare: tuple[str, ...] = (), **more: object) -> TuningOptions:
    return TuningOptions(limits_from({None: 2e-6}, {}), compare or names, **more)  # type: ignore[arg-type]


def tuned(path: Path, source: str, **more: object) -> TuningResult:
    path.write_text(source)
    return tuned_program(script(str(path)), options(**more), cost=float32_is_faster)


def values(found: TuningResult) -> set[str]:
    return {value.name for value in found.plan.criterion if ":" not in value.name}


def lowered(found: TuningResult) -> int:
    return sum(scheme != "native" for scheme in found.plan.schemes().values())


def test_a_plan_is_verified_by_what_it_was_tuned_on(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    found = tuned(path, f"{REFINEMENT}last = b - a @ x\n", hold_outs=(("1",),))
    assert len(found.plan.criterion) == 2  # x, and the product of the last line
    assert {value.name for value in found.plan.criterion if value.holdout is not None} == {
        value.name for value in found.plan.criterion
    }
    verdict = check_plan(script(str(path)), found.plan, options())
    assert verdict.holds
    assert [value.name for value in verdict.values] == [v.name for v in found.plan.criterion]


@pytest.mark.parametrize("name", ["_", "__", "_rest", "dummy", "unused_r"])
def test_what_a_program_throws_away_is_no_result(name: str) -> None:
    text = f"import numpy as np\ny = np.eye(3)\nq, {name} = np.linalg.qr(y @ y)\n"
    assert chosen(text, {}).compared == ("q",)
    assert set(chosen(text, {}, name).compared) == {"q", name}
    assert set(chosen(f"{text}print({name})\n", {}).compared) == {"q", name}


IN_A_FUNCTION = """\
import numpy as np
def main():
    a = np.random.default_rng(0).standard_normal((160, 160))
    print(np.argmax(a @ a))
main()
"""


@pytest.mark.parametrize(("budget", "count"), [(2e-6, 1), (1e-12, 0)])
def test_a_program_in_a_function_is_judged_by_its_last_product(
    budget: float, count: int, tmp_path: Path
) -> None:
    (tmp_path / "s.py").write_text(IN_A_FUNCTION)
    limits = TuningOptions(limits_from({None: budget}, {}))
    found = tuned_program(script(str(tmp_path / "s.py")), limits, cost=float32_is_faster)
    assert lowered(found) == count
    assert found.notes[0].startswith("Compared: the last result of 1 product")
