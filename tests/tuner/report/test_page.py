"""The page as text."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from mixpert_py.errors import MixPertError
from mixpert_py.plan import Provenance
from mixpert_py.tuner.report import page as pages
from mixpert_py.tuner.report.page import calls_text, page
from mixpert_py.tuner.report.record import Gain, Record
from tests.tuner.report.records import many, not_finite, small

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
            if name in ("href", "src", "xlink:href"):
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
        msgspec.structs.replace(small(), budget=None, gain=Gain()),
    ],
    ids=["small", "kept", "none", "one", "fifty", "not-finite", "interrupted", "empty", "any"],
)
def test_every_search_has_a_sound_page(record: Record) -> None:
    found = Parsed(page(record))
    assert len(found.ids) == len(set(found.ids))
    assert {link for link in found.links if link.startswith(("op-", "trial-"))} <= set(found.ids)
    assert found.count["h1"] == 1
    assert "script" not in found.count
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
        provenance=Provenance(source=HOSTILE),
        notes=[HOSTILE],
    )
    text = page(hostile)
    found = Parsed(text)
    assert "script" not in found.count
    assert "img" not in found.count
    assert "<img" not in text


def test_it_allows_itself_no_network() -> None:
    text = unescape(page(small()))
    assert "default-src 'none'" in text
    without_names = re.sub(r'http-equiv|xmlns(:xlink)?="[^"]*"', "", text)
    assert not re.search(r"https?:|url\((?!#)|@import", without_names)


@pytest.mark.parametrize("trials", [[], None], ids=["no-trial", "searched"])
def test_every_plan_that_ran_has_a_row(trials: list[Any] | None) -> None:
    record = small()
    if trials is not None:
        record = msgspec.structs.replace(record, trials=trials)
    text = page(record)
    assert text.count('class="badge"') == bool(record.trials)
    assert text.count('id="trial-') == len(record.trials)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(MixPertError, match=r"pip install '\.\[report\]' in a checkout"):
        page(small())


def test_a_call_that_is_not_one_product_has_no_shape() -> None:
    entry = msgspec.structs.replace(small().operators[0], shapes=[[0, 0, 0]], calls=2)
    assert calls_text(entry) == "2 calls"
    entry = msgspec.structs.replace(entry, shapes=[[0, 0, 0], [4, 5, 6]])
    assert calls_text(entry) == "4 × 5 × 6, 2 calls"
