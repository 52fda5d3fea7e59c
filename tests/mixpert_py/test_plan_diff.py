"""`mixpert plan diff`: what two plans decide differently."""

import json
from pathlib import Path

import msgspec
import pytest

from mixpert_py import plan as plan_file
from mixpert_py.plan import Criterion, Plan, Provenance, Site
from mixpert_py.plan_diff import difference
from tests.mixpert_py.command import Mixpert

A = Site(id="m:f/matmul~a1#0", scheme="int8x3", expression="a @ b", error=1e-5, ms=1.5)
B = Site(id="m:f/matmul~b2#0", scheme="native")
C = Site(id="m:g/dot~c3#0", scheme="native", expression="c.dot(d)")
OLD = Plan(
    provenance=Provenance(source="m.py", versions={"numpy": "2.0"}, date="2026-01-01"),
    criterion=[Criterion("x", "frobenius", 1e-4, achieved=1e-5)],
    site=[A, B],
)


def changed(plan: Plan, **values: object) -> Plan:
    return msgspec.structs.replace(plan, **values)


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        changed(OLD, site=[B, A]),
        changed(OLD, site=[msgspec.structs.replace(A, error=2e-5, ms=9.0, calls=3), B]),
        changed(OLD, criterion=[Criterion("x", "frobenius", 1e-4, achieved=2e-5, holdout=3e-5)]),
        changed(OLD, provenance=msgspec.structs.replace(OLD.provenance, date="2026-02-02")),
    ],
    ids=["itself", "order", "measured", "achieved", "date"],
)
def test_plans_that_decide_the_same(new: Plan) -> None:
    found = difference(OLD, new)
    assert not found
    assert list(found.lines()) == []


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (changed(OLD, site=[A, B, C]), ["+ m:g/dot~c3#0  c.dot(d)", "    native"]),
        (changed(OLD, site=[B]), ["- m:f/matmul~a1#0  a @ b", "    int8x3, error 1.0e-05, 1.5 ms"]),
        (
            changed(OLD, site=[msgspec.structs.replace(A, scheme="int8x6", error=1e-7), B]),
            [
                "~ m:f/matmul~a1#0  a @ b",
                "    int8x3, error 1.0e-05, 1.5 ms → int8x6, error 1.0e-07, 1.5 ms",
            ],
        ),
        (
            changed(OLD, site=[A, msgspec.structs.replace(B, block=64, locked=True)]),
            ["~ m:f/matmul~b2#0", "    native → native, block 64, locked"],
        ),
        (
            changed(OLD, site=[A, msgspec.structs.replace(B, locked=True)]),
            ["~ m:f/matmul~b2#0", "    native → native, locked"],
        ),
        (
            changed(OLD, criterion=[Criterion("x", "frobenius", 1e-3)]),
            ["x.budget: 0.0001 → 0.001"],
        ),
        (
            changed(OLD, provenance=Provenance(source="m.py", backend="reference")),
            ["backend: none → reference", "versions.numpy: 2.0 → none"],
        ),
    ],
    ids=["added", "gone", "scheme", "block-and-lock", "lock", "criterion", "provenance"],
)
def test_plans_that_differ(new: Plan, said: list[str]) -> None:
    found = difference(OLD, new)
    assert found
    assert sorted(found.lines()) == sorted(said)


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    plan_file.save(OLD, tmp_path / "old.toml")
    plan_file.save(changed(OLD, site=[B, C]), tmp_path / "new.toml")
    return tmp_path


def test_the_exit_code_is_that_of_diff(plans: Path, mixpert: Mixpert) -> None:
    same = mixpert("plan", "diff", "old.toml", "old.toml")
    assert (same.code, same.out, same.err) == (0, "", "")
    other = mixpert("plan", "diff", "old.toml", "new.toml")
    assert (other.code, other.err) == (1, "")
    assert other.out.splitlines()[0] == "+ m:g/dot~c3#0  c.dot(d)"
    missing = mixpert("plan", "diff", "old.toml", "none.toml")
    assert missing.code == 2
    assert "none.toml" in missing.one_clear_line()


def test_json(plans: Path, mixpert: Mixpert) -> None:
    done = mixpert("plan", "diff", "old.toml", "new.toml", "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert [site["id"] for site in found["added"]] == [C.id]
    assert [site["id"] for site in found["gone"]] == [A.id]
    assert found["changed"] == found["criterion"] == found["provenance"] == []
