"""The report as Markdown."""

import re
from pathlib import Path

import msgspec

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.record import Record, ValueEntry, VerificationEntry
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import A, B, C, many, not_finite, small

WRITTEN = Path(__file__).with_name("reports.txt")


def reports() -> dict[str, Record]:
    """Title → the record of a report."""

    def of(**values: object) -> Record:
        return msgspec.structs.replace(small(), **values)

    fresh = VerificationEntry(
        error=2e-5, worst="y", native_seconds=8.0, spread=0.1, native_lowered=5.0, lowered=1.0
    )
    values = [
        ValueEntry(name="y", criterion="max", budget=1e-3, error=5e-4),
        ValueEntry(name="z", criterion="mred", budget=None, error=None),
    ]
    first, second, third = small().operators
    problem = "Traceback:\n  x\nValueError: y\n"
    failed = msgspec.structs.replace(second, reason=Reason.FAILED, detail=problem)
    raised = msgspec.structs.replace(first, reason=Reason.RAISED, detail=B)
    return {
        "lowered": of(verification=fresh),
        "kept": small(budget=0.0),
        "interrupted": of(interrupted=True),
        "reverted": of(reverted=True),
        "over the budget": of(budget=-1.0),
        "raised and failed": of(operators=[raised, failed, third]),
        "several budgets": of(criterion=None, budget=1.0, values=values),
        "several budgets, one of which counts": of(values=values),
        "no error": of(verification=msgspec.structs.replace(fresh, error=0.0)),
        "not finite": not_finite(),
        "no product": many(0),
    }


def written() -> str:
    """All reports, each under its title."""
    program = Program("m.py", numbers={A: 1, C: 2}, notes=("Mind this.",))
    return "".join(f"==== {name}\n{markdown(one, program)}" for name, one in reports().items())


def test_the_reports() -> None:
    """`python -m tests.tuner.report.test_markdown` writes the file anew."""
    assert written().split("==== ") == WRITTEN.read_text("utf-8").split("==== ")


def test_a_row_stays_a_row_whatever_the_program_says() -> None:
    record = small()
    operators = [
        msgspec.structs.replace(entry, expression="a `|` ``b``\n| <b>", reason="*x* | [y](z)")
        for entry in record.operators
    ]
    text = markdown(msgspec.structs.replace(record, operators=operators), Program("<i>m</i>"))
    assert text.startswith("# \\<i\\>m\\</i\\>")
    table = text.split("## Products\n\n")[1].split("\n\n")[0].splitlines()
    assert len(table) == 2 + len(operators)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 9 for row in table)
    assert "``` a `\\|` ``b`` \\| <b> ```" in table[2]
    assert "\\*x\\* \\| \\[y\\](z)" in table[2]
    assert C not in text


if __name__ == "__main__":
    WRITTEN.write_text(written(), "utf-8")
