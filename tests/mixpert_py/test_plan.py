"""Plan files: TOML both ways, and one clear line for everything malformed."""

import os
import re
from math import nan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py import plan as plan_file
from mixpert_py.errors import PlanError
from mixpert_py.plan import Criterion, Plan, Provenance, Site
from tests.every_check import examples

KNOWN = ("native", "float32", "int8x6")
ID = "mlp:forward/matmul~8f3a#0"

WHOLE = """\
# tuned on a quiet machine
schema = 1

[provenance]
source = "mlp.py"

[[criterion]]
name = "logits"
metric = "frobenius"
budget = 1e-5

[[site]]
id = "mlp:forward/matmul~8f3a#0"
scheme = "int8x6"  # by hand
calls = 128

[[site]]
id = "mlp:forward/matmul~8f3b#0"
scheme = "native"
"""

SITE_TABLE = f'[[site]]\nid = "{ID}"\nscheme = "x"\n'
CRITERION_TABLE = '[[criterion]]\nname = "logits"\nmetric = "max"\nbudget = 1.0\n'


MALFORMED = [
    ("unknown scheme", WHOLE.replace('"int8x6"', '"int9"'), 14, "scheme"),
    ("unknown key", WHOLE.replace("calls = 128", "block = 128"), 15, "block"),
    ("unknown top-level key", "version = 1\n", 1, "version"),
    ("wrong type", WHOLE.replace('"native"', "3"), 19, "scheme"),
    ("wrong type of a list", WHOLE + "shapes = 7\n", 20, "shapes"),
    ("too many shapes", WHOLE + f"shapes = [{'[1, 2, 3], ' * 1001}]\n", 20, "shapes"),
    ("not a number", WHOLE.replace("1e-5", '"small"'), 10, "budget"),
    ("negative budget", WHOLE.replace("1e-5", "-1.0"), 10, "budget"),
    ("missing key", '[[site]]\nscheme = "native"\n', 1, "id"),
    ("bad id", '[[site]]\nid = "../x"\nscheme = "native"\n', 2, "id"),
    ("same id twice", WHOLE.replace("8f3b", "8f3a"), 18, "id"),
    ("newer schema", "schema = 2\n", 1, "schema"),
    ("a version", "[provenance.versions]\nb = '1'\na = 1\n", 3, "provenance.versions.a"),
    ("bracket in a key", '[provenance]\n"a]" = 1\n', 2, "provenance.a]"),
    ("list of lists", "[[site]]\nshapes = [\n[1, 2],\n[3, 4]]\n", 1, "site[0].id"),
    ("after a comment", "# it's\n[provenance] # \"\nfile = 1\n", 3, "file"),
    ("Windows newlines", "schema = 1\r\n\r\n[provenance]\r\nfile = 1\r\n", 4, "file"),
]


@pytest.mark.parametrize(
    ("text", "line", "key"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED]
)
def test_a_malformed_plan_names_the_key_and_the_line(text: str, line: int, key: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_file.loads(text, "p.toml", KNOWN)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"p.toml:{line}: key '")
    assert key in message.partition("': ")[0]


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(WHOLE, "utf-8-sig")
    plan = plan_file.load(path)
    assert len(plan.site) == 2
    plan_file.save(plan, path)
    assert plan_file.load(path) == plan


@pytest.mark.parametrize("text", ["[[site]", "a = ", "= 1", "\x00", "a = 1\na = 2"])
def test_what_is_no_toml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PlanError, match="not valid TOML") as caught:
        plan_file.loads(text)
    assert re.search("line [0-9]+|end of document", str(caught.value))


def test_what_is_larger_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(PlanError, match=r"p\.toml: larger than 1 MiB$"):
        plan_file.load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(PlanError, match="cannot read"):
            plan_file.load(path)


LAYOUTS = [
    ("inline", f'provenance = {{source="a"}}\nsite = [{{id="{ID}", scheme="x"}}]\nschema = 1\n'),
    ("inline criterion", 'criterion = [\n  {name="logits", metric="max", budget=1.0}, # c\n]\n'),
    ("empty lists", "criterion = []\nsite = [\n]\n[provenance]\n"),
    ("dotted", 'provenance.source = "x"\nschema = 1\n'),
    ("dotted in a table", '[provenance]\nversions.numpy = "2"\nsource = "a"\n'),
    ("out of order", f'[provenance]\nsource="a"\n{SITE_TABLE}[provenance.versions]\nnumpy="1"\n'),
    ("lists mixed", f"{SITE_TABLE}{CRITERION_TABLE}{SITE_TABLE.replace('8f3a', '8f3b')}"),
    ("Windows newlines", WHOLE.replace("\n", "\r\n")),
    ("nothing", ""),
]
CHANGED = [
    Plan(),
    Plan(provenance=Provenance(versions={"numpy": "3"}, blas_threads=2)),
    Plan(
        provenance=Provenance(source="a", device="b", versions={"numpy": "2", "b c": "1"}),
        criterion=[Criterion("logits", "frobenius", 1e-5), Criterion("x", "max", 1.0)],
        site=[Site("m:f/matmul~1#0", "y", shapes=[[1, 2, 3]]), Site(ID, "x", calls=3)],
    ),
]


@pytest.mark.parametrize("text", [row[1] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_any_layout_can_be_updated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    for plan in (plan_file.loads(text), *CHANGED):
        path.write_bytes(text.encode())
        for again in (plan, *CHANGED):
            plan_file.save(again, path)
            assert plan_file.load(path) == again


def test_a_comment_beside_a_changed_value_survives() -> None:
    first, second = plan_file.loads(WHOLE).site
    changed = Plan(site=[Site(first.id, "float32", calls=3), second])
    written = plan_file.dumps(changed, WHOLE)
    assert 'scheme = "float32"  # by hand\n' in written
    assert plan_file.loads(written) == changed


UNREADABLE = [
    ("not a number", Plan(site=[Site(ID, "x", error=nan)])),
    ("same id twice", Plan(site=[Site(ID, "x"), Site(ID, "y")])),
    ("no id", Plan(site=[Site("x", "y")])),
    ("another schema", Plan(schema=2)),
    ("too large", Plan(site=[Site(ID, "x", expression="x" * (1 << 20))])),
]


@pytest.mark.parametrize("plan", [row[1] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "p.toml"
    with pytest.raises(PlanError, match="writ"):
        plan_file.save(plan, path)
    assert not path.exists()
    path.write_text(WHOLE)
    with pytest.raises(PlanError, match="writ"):
        plan_file.save(plan, path)
    assert path.read_text() == WHOLE


@pytest.mark.parametrize("old", [b"[project]\nname = 'x'\n", b"[[site]", b"\xff", b"schema = 2"])
def test_what_is_no_plan_is_not_overwritten(tmp_path: Path, old: bytes) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(old)
    with pytest.raises(PlanError) as caught:
        plan_file.save(Plan(), path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == old


def test_a_site_is_found_by_id_then_by_hash() -> None:
    plan = plan_file.loads(WHOLE)
    entry = plan.find(ID)
    assert entry is not None
    assert entry.scheme == "int8x6"
    assert plan.find("net:forward/matmul~8f3a#0") is entry
    assert plan.find("mlp:predict/matmul~8f3a#0") is entry
    assert plan.find("net:predict/matmul~8f3a#0") is None
    assert plan.find("net:predict/matmul~ffff#0") is None
    twice = Plan(
        site=[Site(id="a:f/matmul~1#0", scheme="x"), Site(id="b:f/matmul~1#0", scheme="y")]
    )
    assert twice.find("c:f/matmul~1#0") is None
    assert twice.find("b:f/matmul~1#0") is twice.site[1]


names = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)
numbers = st.floats(0, 1e9)
sites = st.builds(
    Site,
    id=st.integers(0, 10**6).map(lambda n: f"m:f/matmul~{n:x}#0"),
    scheme=st.sampled_from(KNOWN),
    expression=names,
    locked=st.booleans(),
    shapes=st.lists(st.lists(st.integers(0, 9999), min_size=3, max_size=3), max_size=2),
    calls=st.integers(0, 99),
    error=numbers,
    ms=numbers,
)
plans = st.builds(
    Plan,
    provenance=st.builds(Provenance, source=names, versions=st.dictionaries(names, names)),
    criterion=st.lists(
        st.builds(Criterion, name=names, metric=names, budget=numbers),
        max_size=2,
        unique_by=lambda criterion: criterion.name,
    ),
    site=st.lists(sites, max_size=3, unique_by=lambda site: site.id),
)


@settings(deadline=None, max_examples=examples(100))
@given(plans, plans)
def test_what_is_written_is_what_is_read(first: Plan, second: Plan) -> None:
    text = plan_file.dumps(first)
    assert plan_file.loads(text, known=KNOWN) == first
    assert plan_file.loads(plan_file.dumps(second, text), known=KNOWN) == second


@settings(deadline=None, max_examples=examples(100))
@given(st.text(max_size=60) | st.integers(0, len(WHOLE)).map(lambda n: WHOLE[:n] + WHOLE[n + 3 :]))
def test_any_text_is_a_plan_or_one_clear_line(text: str) -> None:
    try:
        plan_file.loads(text, known=KNOWN)
    except PlanError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message
