"""The report as Markdown."""

import re

import msgspec

from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.summary import Program
from tests.tuner.report.records import A, C, many, small


def test_it_says_what_the_page_says() -> None:
    record = small()
    lines = markdown(record, Program("m.py", numbers={A: 1}, notes=("Mind this.",))).splitlines()
    assert lines[0] == "# m.py"
    assert lines[2].startswith("2 of 3 products lowered.")
    assert "- Error: 1.0e-05 of 1e-4 allowed" in lines
    assert "> Mind this." in lines
    assert any(re.match(r"\| 1 \| 1 \| `m:f/.*` \| 42.9% \| native → int8x3 \|", x) for x in lines)
    assert sum("**chosen**" in line for line in lines) == 1
    assert sum("failed: exit code 3" in line for line in lines) == 1 + sum(
        trial.problem is not None for trial in record.trials
    )


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


def test_a_program_without_products() -> None:
    assert "The program calls no matrix product." in markdown(many(0), Program("m.py"))
