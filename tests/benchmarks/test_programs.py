"""The list of public programs, and the script that runs them, on tiny programs; without a clock."""

import hashlib
import re
from pathlib import Path
from typing import Any

from tests.benchmarks import programs
from tests.benchmarks.programs import Program

SCRIPT = '"""Of a product."""\nfrom __future__ import annotations\nimport numpy as np\nN = 2\n'
SEEN = "print('mixpert_py.runtime.api' in sys.modules, file=open({!r}, 'a'))\n"
USED = "import sys, part\nassert part.square(np.eye(N)).sum() == 3 == int(sys.argv[1])\n"
PART = "def square(x):\n    return x @ x\n"


def of(path: Path, name: str, files: dict[str, str], **given: Any) -> Program:
    """A program whose files lie in a folder of sources."""
    for file, text in files.items():
        (path / f"owner/name/c0/{file}").parent.mkdir(parents=True, exist_ok=True)
        (path / f"owner/name/c0/{file}").write_text(text)
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}
    facts = {"repository": "owner/name", "commit": "c0"}
    return Program(name=name, script=next(iter(files)), files=digests, **facts, **given)


def test_the_list() -> None:
    both = [programs.public(gpu) for gpu in (False, True)]
    listed = {program.name: program for program in (*both[0], *both[1])}
    assert len(listed) == 20
    assert len({program.field for program in listed.values()}) >= 6
    assert [sum(it.arrays == "torch" for it in each) for each in both] == [5, 5]
    for program in listed.values():
        assert program.script in program.files
        assert re.fullmatch("[0-9a-f]{40}", program.commit)
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in program.files.values())
        assert all(old != new for old, new in (*program.edits, *program.gpu_edits))
    names = [sample.name for sample in programs.samples(gpu=False)]
    assert {*programs.LARGER} < {*names}
    on_gpu = programs.samples(gpu=True)
    assert {sample.name for sample in on_gpu} < {*names}
    assert all(sample.arguments[:1] == ["--gpu"] for sample in on_gpu)


def test_programs_run_in_both_ways(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    files = {"a/main.py": SCRIPT + USED + SEEN.format(str(seen)), "a/part.py": PART}

    def measured(name: str, files: dict[str, str], **given: Any) -> Any:
        program = of(tmp_path, name, files, **given)
        return programs.measure(program, 1, sources=tmp_path, gpu=False)

    good = measured("good", files, edits=[("N = 2", "N = 3")], arguments=["3"])
    for way in programs.COMMANDS:
        (whole,), (inside,) = good[way]["whole"], good[way]["inside"]
        assert 0 < inside < whole
    assert seen.read_text().split() == ["True", "False", "False", "True"]
    assert measured("bad", {"main.py": "raise SystemExit('no')\n"}) == {"error": "exit 1: no"}
    assert measured("odd", files, edits=[("N = 1", "")])["error"].startswith("'N = 1' is not in")
