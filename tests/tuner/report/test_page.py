"""The page as text; `tests/mixpert_py/commands/test_report_in_browser.py` opens one."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from mixpert_py.errors import MixPertError
from mixpert_py.tuner.report import page as pages
from mixpert_py.tuner.report.page import TRIALS_SHOWN, calls_text, page
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import A, B, many, not_finite, small

HOSTILE = "</script><script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class Parsed(HTMLParser):
    """Elements by name, ids, links within the page; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag != "meta":
            self._open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src"):
                assert value
                assert value.startswith("#")
                self.links.append(value[1:])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.mark.parametrize(
    "record",
    [
        small(),
        small(budget=0.0),
        many(0),
        many(1),
        many(50),
        not_finite(),
        msgspec.structs.replace(small(), interrupted=True),
        msgspec.structs.replace(small(), trials=[], error=None),
        msgspec.structs.replace(small(), budget=None, time_before=None),
    ],
    ids=["small", "kept", "none", "one", "fifty", "not-finite", "interrupted", "empty", "any"],
)
def test_every_search_has_a_sound_page(record: Record) -> None:
    found = Parsed(page(record, Program("m.py", "a @ b\n", {A: (0, 5)}, {A: 1})))
    assert len(found.ids) == len(set(found.ids))
    assert {link for link in found.links if link.startswith(("op-", "trial-"))} <= set(found.ids)
    assert found.count["h1"] == 1
    assert found.count["script"] == 1
    assert sum(one.startswith("op-") for one in found.ids) == len(record.operators)


def test_nothing_of_the_program_is_markup() -> None:
    record = small()
    operators = [
        msgspec.structs.replace(entry, expression=HOSTILE, detail=HOSTILE, reason=HOSTILE)
        for entry in record.operators
    ]
    trials = [
        msgspec.structs.replace(trial, problem=f"{HOSTILE}\n{HOSTILE}", reason=HOSTILE)
        for trial in record.trials
    ]
    hostile = msgspec.structs.replace(
        record,
        operators=operators,
        trials=trials,
        plan_file=HOSTILE,
        criterion=HOSTILE,
        schemes={A: HOSTILE},
    )
    clean = Parsed(page(record, Program("m.py", "a @ b", {A: (0, 5)})))
    text = page(hostile, Program(HOSTILE, HOSTILE, {A: (3, 20)}, notes=(HOSTILE,)))
    found = Parsed(text)
    assert found.count["script"] == clean.count["script"] == 1
    assert "img" not in found.count
    assert "<img" not in text


def test_it_allows_itself_no_network() -> None:
    text = unescape(page(small(), Program("m.py")))
    assert "default-src 'none'" in text
    without_names = text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|url\((?!#)|@import", without_names)


def test_what_is_not_there_has_no_section() -> None:
    ids = Parsed(page(small(), Program("m.py"))).ids
    assert {"plane", "operators", "trials", "made"} <= set(ids)
    assert {"source", "graph"}.isdisjoint(ids)


def test_many_plans_are_folded() -> None:
    record = small()
    more = msgspec.structs.replace(record, trials=record.trials * 100)
    text = page(more, Program("m.py"))
    assert f"{len(more.trials) - TRIALS_SHOWN} more plans" in text
    assert text.count('id="trial-') == len(more.trials)


@pytest.mark.parametrize("trials", [[], None], ids=["no-trial", "searched"])
def test_every_plan_that_ran_has_a_row_and_a_point(trials: list[Any] | None) -> None:
    record = small()
    if trials is not None:
        record = msgspec.structs.replace(record, trials=trials)
    text = page(record, Program("m.py"))
    ran = [at for at, trial in enumerate(record.trials, 1) if not trial.problem]
    points = re.findall(r'<a class="point (\w+)" href="#trial-(\d+)"', text)
    assert sorted(int(number) for _, number in points) == ran
    assert text.count('class="halo"') == text.count('class="badge"') == bool(ran)
    assert text.count('id="trial-') == len(record.trials)


def test_a_bar_has_a_piece_for_every_operator_with_its_colour() -> None:
    text = page(small(), Program("m.py"))
    pieces = re.findall(r'<a class="(level-\d)" href="#op-\d" data-op="(\d)" style="width:', text)
    assert [op for _, op in pieces] == ["1", "2", "3"] * 2
    assert [level for level, _ in pieces[:3]] == ["level-0"] * 3
    assert len({level for level, _ in pieces[3:]}) == 3
    assert text.count('<span class="rest" style="width:') == 2


def test_products_are_marked_in_the_source() -> None:
    text = "x = (a @ b @\n     c)  # </code>\n"
    found = page(small(), Program("m.py", text, {A: (5, 10), B: (5, 19)}, {A: 1, B: 2}))
    marked = re.findall(r'<a class="mark[^>]*data-op="(\d+)">(.*?)</a>', found)
    assert marked == [("1", "a @ b"), ("2", " @"), ("2", "     c")]
    assert re.findall(r'<a class="note[^>]*id="source-(\d+)"', found) == ["1", "2"]
    assert ")  # &lt;/code&gt;</code></div>" in found
    listed = re.findall(r'<div class="line product">.*</div>', found)
    assert len(listed) == 2  # a line of the source is a line of the page: blanks count in it


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(MixPertError, match=r"pip install 'mixpert-py\[report\]'"):
        page(small(), Program("m.py"))


def test_a_call_that_is_not_one_product_has_no_shape() -> None:
    entry = msgspec.structs.replace(small().operators[0], shapes=[[0, 0, 0]], calls=2)
    assert calls_text(entry) == "2 calls"
    entry = msgspec.structs.replace(entry, shapes=[[0, 0, 0], [4, 5, 6]])
    assert calls_text(entry) == "4 × 5 × 6, 2 calls"
