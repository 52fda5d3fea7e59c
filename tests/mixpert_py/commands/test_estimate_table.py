"""The tables of an estimate: their width, and the notes under them."""

from dataclasses import replace

import pytest

from mixpert_py.commands import estimate_table
from mixpert_py.tuner.estimate import Place
from mixpert_py.tuning.estimate import Estimate, EstimatedProduct

PRODUCT = EstimatedProduct(
    "m:f/matmul~1#0",
    "/home/m.py",
    12,
    "covariance[rows, :] @ weights.T",
    3,
    1.5,
    {"float32": 2e-7, "int8x6": 3e-7},
    {"here": {"float32": 1.8}, "H200": {"int8x6": 1.1}, "A100": {"int8x6": 1.4}, "T4": {}},
)
FOUND = Estimate(
    2.0,
    0.75,
    (PRODUCT,),
    (
        Place(None, 1.5, 1.0, {"m": "float32"}, error=2e-7),
        Place("H200", 1.05, 0.1, {"m": "int8x6"}, error=3e-7),
        Place("A100", 1.2, 0.2, {"m": "int8x6"}, error=3e-7),
        Place("T4", 1.0, 9.0, {}),
    ),
    0.0,
    on_gpu=True,
)


@pytest.mark.parametrize("width", [60, 80])
def test_the_tables_fit(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    estimate_table.print_estimate(FOUND, "1e-5", "s.py")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    head = next(line for line in lines if "level" in line)
    assert "here" in head
    assert "H200" in head  # the GPU that the verdict names
    assert any("1.80×" in line and "2.0e-07" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80])
def test_a_librarys_product_has_its_file_and_the_lines_that_called_it(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    callers = {"s.py:30": 2, "s.py:41": 1}
    product = replace(PRODUCT, path="shapes/deep.py", callers=callers)
    estimate_table.print_estimate(replace(FOUND, products=(product,)), "1e-5", "s.py")
    text = capsys.readouterr().out
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    head = next(line for line in text.splitlines() if "level" in line)
    assert "here" in head
    for words in ("called from", "H200"):
        assert (words in head) == (width == 80)
    for words in ("s.py:30", "(2),", "s.py:41", "(1)"):
        assert (words in text) == (width == 80)
    assert "shapes/" in text
    assert "deep.py:12" in text


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "1.80× in float32 2.0e-07"),
        ({"speeds": {"here": {"float32": 0.9}}}, "not faster in float32"),
        ({"speeds": {"here": {}}}, "not measured –"),
        ({"speeds": {"here": {}}, "unsuited": "6 × 6 × 6 is too small"}, "6 × 6 × 6 is too small"),
    ],
    ids=["faster", "not faster", "not measured", "too small"],
)
def test_without_a_gpu_each_product_is_one_row(
    width: int,
    changes: dict[str, object],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    product = replace(PRODUCT, **changes)
    estimate_table.print_estimate(replace(FOUND, products=(product,), on_gpu=False), "1e-5", "s.py")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    head = next(line for line in lines if "here" in line)
    assert "level" not in head
    assert "H200" not in head
    assert sum("e-0" in line and "float32" in line for line in lines) <= 1
    text = " ".join(" ".join(lines).split())
    assert said.split()[0] in text
    assert "0.90×" not in text
    assert any(line.startswith("H200") and "1.05×" in line for line in lines)


def notes(**changes: object) -> str:
    return " ".join(estimate_table._notes(replace(FOUND, **changes), 1e-5))


def test_the_notes() -> None:
    assert (
        "is estimated as 2.0e-07. It is within the budget unless the program amplifies errors 50"
        in notes()
    )
    assert "Here" not in notes(places=(Place(None, 1.0, 1.0, {}),))
    assert "GPUs are predicted" in notes()
    assert "GPUs are predicted" not in notes(places=FOUND.places[:1])
    assert "25 % of the products' time was not measured" in notes(unmeasured=0.25)
    assert "so short" in notes(seconds=0.05)
    assert "took 0.5 s of processor time" in notes(children=0.5)
    for absent in ("not measured", "so short", "processor time"):
        assert absent not in notes()


def test_a_time_without_an_error_is_not_told_as_a_gain(capsys: pytest.CaptureFixture[str]) -> None:
    product = replace(PRODUCT, errors={})
    estimate_table.print_estimate(replace(FOUND, products=(product,), on_gpu=False), "1e-5", "s.py")
    text = capsys.readouterr().out
    assert "not measured" in text
    assert "1.80×" not in text
