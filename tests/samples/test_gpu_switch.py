"""With `--gpu`, samples keep arrays of the host and of the device apart, as CuPy wants it."""

from pathlib import Path

import pytest

from tests.samples.test_samples import CASES, SAMPLES, figure, printed

STRICT = Path(__file__).with_name("strict")  # in which `cupy` is NumPy that mixes nothing
WITHOUT = {"diffusion.py", "knn_digits.py"}


@pytest.mark.parametrize(
    ("name", "arguments", "label", "bounds"),
    [case for case in CASES if case.values[0] not in WITHOUT],
)
def test_the_figure_is_sensible_there_too(
    name: str, arguments: list[str], label: str, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    assert low <= figure(printed(name, *arguments, "--gpu", importable=STRICT), label) <= high


def test_the_others_have_no_such_switch() -> None:
    switched = {path.name for path in SAMPLES.glob("*.py") if "--gpu" in path.read_text("utf-8")}
    assert switched == {path.name for path in SAMPLES.glob("*.py")} - WITHOUT
