"""The pictures that are committed, and the names that stand beside points."""

import re
from pathlib import Path

import pytest

from mixpert_py.bench import pictures, readme
from mixpert_py.bench.pictures import DARK, LIGHT, Label, Theme
from tests import browser
from tests.mixpert_py.command import ROOT

COMMITTED = sorted((ROOT / "docs").glob("*.svg"))
IDS = [path.stem for path in COMMITTED]


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text("utf-8"))


def dark_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}{DARK.suffix}.svg")


def test_every_picture_has_a_light_and_a_dark_form() -> None:
    dark = {path for path in COMMITTED if path.stem.endswith(DARK.suffix)}
    light = set(COMMITTED) - dark
    assert {path.stem for path in light} >= {"staircase", "gemm-speed", "apps-accuracy"}
    assert {dark_of(path) for path in light} == dark
    for path in light:
        assert texts(path) == texts(dark_of(path)) != []
        assert LIGHT.page in path.read_text("utf-8")
        assert DARK.page in dark_of(path).read_text("utf-8")


def test_they_say_what_the_kept_results_say(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for draw in readme.PICTURES:
        draw(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in COMMITTED]
    for path in COMMITTED:
        assert texts(path) == texts(tmp_path / path.name)


@pytest.mark.parametrize("path", COMMITTED, ids=IDS)
def test_no_text_covers_another(chromium: browser.Page, path: Path) -> None:
    chromium.window(1200)
    chromium.open(path)
    assert chromium.evaluate("document.querySelectorAll('text').length") > 5
    assert chromium.colliding_texts() == []


@pytest.mark.parametrize("path", COMMITTED, ids=IDS)
def test_texts_can_be_read_at_400_pixels(path: Path) -> None:
    """Of a picture that is 700 wide, and is shown 400 wide."""
    text = path.read_text("utf-8")
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', text)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:bold )?([\d.]+)px", text)]
    assert sizes
    assert min(sizes) * 400 / float(width) >= 8.0


def luminance(color: str) -> float:
    """As WCAG defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out(theme: Theme) -> None:
    for ground in (theme.page, theme.tint):
        for color in (theme.text, theme.vendor, theme.tuned):
            dark, light = sorted((luminance(ground), luminance(color)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, color)


def named(tmp_path: Path, labels: list[Label], at_right: bool = False) -> Path:
    def make(theme: Theme) -> "pictures.Axes":
        axes = pictures.axes(theme, 300.0, "T", "S")
        axes.set(xlim=(0, 10), ylim=(0, 10))
        pictures.name_points(axes, labels, at_right=at_right)
        return axes

    return pictures.draw({"names": make}, tmp_path)[0]


def test_names_keep_clear_of_one_another(chromium: browser.Page, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    close = [Label(5.0 + 0.2 * i, 5.0 + 0.1 * i, f"name {i}", "#000000") for i in range(4)]
    edges = [Label(x, y, "at the edge", "#000000") for x in (0.1, 9.9) for y in (0.4, 9.6)]
    chromium.open(named(tmp_path, [*close, *edges]))
    assert chromium.colliding_texts() == []


def test_a_name_without_room_is_written_all_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    crowd = [Label(5.0, 5.0, f"name {i}", "#000000") for i in range(40)]
    edge = Label(9.99, 5.0, "at the edge", "#000000")
    found = texts(named(tmp_path, [*crowd, edge], at_right=True))
    assert {label.text for label in [*crowd, edge]} <= set(found)
