"""What the README says is what the committed results and the commands say."""

import re

from mixpert_py.bench import readme
from mixpert_py.rewriting import rewrite_source
from mixpert_py.source_files import SourceFile
from tests.mixpert_py.command import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")


def test_the_table_is_made_from_the_committed_results() -> None:
    assert readme.table() in TEXT
    assert readme.where() in TEXT


def test_the_diff_is_what_rewrite_makes() -> None:
    (shown,) = re.findall(r"```diff\n(.*?)```", TEXT, re.DOTALL)
    source = (ROOT / "samples" / "mlp.py").read_bytes()
    made = rewrite_source(source, SourceFile("samples/mlp.py", "samples"), "mlp").diff()
    # Blank lines of context are empty here, and a single blank in a diff.
    assert shown == "".join(f"{line.rstrip()}\n" for line in made.splitlines())


def test_every_command_of_the_readme_exists() -> None:
    from mixpert_py.cli import cli

    for name in re.findall(r"\bmixpert (\w+)", TEXT):
        assert name in cli.commands, name
