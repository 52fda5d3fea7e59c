"""The one import line: its place, and its name."""

import ast

import pytest

from mixpert_py.passes.pipeline import rewrite, rewrite_tree

LINE = "import mixpert_py as _mixpert  # added by mixpert rewrite"
SPLIT = f"{LINE}, which split this line"

IMPORTS = [
    # id, program, everything before the rewritten product
    ("code-first", "a @ b\n", "I"),
    ("shebang", "#!/bin/python\na @ b\n", "#!/bin/python\nI"),
    ("coding", "# coding: utf-8\na @ b\n", "# coding: utf-8\nI"),
    ("coding-in-line-2", "\n# coding: utf-8\na @ b\n", "\n# coding: utf-8\nI"),
    ("shebang-and-coding", "#!p\n# coding: utf-8\n\na @ b\n", "#!p\n# coding: utf-8\nI\n"),
    ("licence", "# Copyright\n# all\n\n# more\na @ b\n", "# Copyright\n# all\nI\n# more\n"),
    ("docstring", '"""doc"""\na @ b\n', '"""doc"""\nI'),
    ("long-docstring", '"""doc\n\nmore\n"""\n\na @ b\n', '"""doc\n\nmore\n"""\nI\n'),
    ("docstring-comment", "'doc'  # hi\na @ b\n", "'doc'  # hi\nI"),
    ("future", "from __future__ import annotations\na @ b\n",
     "from __future__ import annotations\nI"),
    ("docstring-futures", '"doc"\nfrom __future__ import division\n'
     "from __future__ import (\n  annotations,\n)\n\nimport os\na @ b\n",
     '"doc"\nfrom __future__ import division\nfrom __future__ import (\n  annotations,\n)\n\n'
     "Iimport os\n"),
    ("before-first-import", "# hi\n\nimport os\na @ b\n", "# hi\n\nIimport os\n"),
    ("before-from-import", '"doc"\n\nfrom os import path\na @ b\n',
     '"doc"\n\nIfrom os import path\n'),
    ("same-line-as-docstring", '"""doc"""; a @ b\n', '"""doc"""; J'),
    ("same-line-crlf", "'doc'; a @ b\r\n", "'doc'; J"),
    ("same-line-import", "'doc'; import os; a @ b\n", "'doc'; Jimport os; "),
    ("same-line-as-future", "from __future__ import annotations; a @ b\n",
     "from __future__ import annotations; J"),
    ("semicolon-then-newline", '"""doc""";\na @ b\n', '"""doc""";\nI'),
    ("continued-line", '"""doc"""; \\\na @ b\n', '"""doc"""; \\\nJ'),
    ("bytes-are-no-docstring", "b'doc'\na @ b\n", "Ib'doc'\n"),
    ("f-string-is-no-docstring", "f'doc'\na @ b\n", "If'doc'\n"),
    ("form-feed", "# hi\n\x0c\na @ b\n", "# hi\nI\x0c\n"),
    ("indented-comment", "  # hi\na @ b\n", "  # hi\nI"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "before"), [pytest.param(p, b, id=name) for name, p, b in IMPORTS]
)
def test_place_of_the_import(program: str, before: str) -> None:
    result = rewrite(program.encode(), "m").decode()
    newline = "\r\n" if "\r" in program else "\n"
    expected = before.replace("J", f"{newline}{SPLIT}{newline}").replace("I", f"{LINE}{newline}")
    assert result[: result.index("_mixpert.matmul")] == expected
    tree = ast.parse(program)
    assert ast.get_docstring(ast.parse(result)) == ast.get_docstring(tree)
    assert ast.get_docstring(rewrite_tree(program.encode(), "m", "m.py")) == ast.get_docstring(tree)


def test_a_name_already_in_use() -> None:
    result = rewrite(b"_mixpert = 1\n_mixpert_1 = 2\na @ b\n", "m").decode()
    assert "import mixpert_py as _mixpert_2  #" in result
    assert "_mixpert_2.matmul(a, b, " in result
