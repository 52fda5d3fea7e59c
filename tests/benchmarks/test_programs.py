"""The list of public programs, and the script that runs them, on tiny programs; without a clock."""

import hashlib
import re
from pathlib import Path
from typing import Any

from tests.benchmarks import programs, public_programs
from tests.benchmarks.public_programs import Program

SCRIPT = '"""Of a product."""\nfrom __future__ import annotations\nimport numpy as np\nN = 2\n'
SEEN = "open('seen', 'a').write(f\"{'mixpert_py.runtime.api' in sys.modules} \")\n"
USED = "import sys, part\nassert part.square(np.eye(N)).sum() == 3 == int(sys.argv[1])\n"
PART = "def square(x):\n    return x @ x\n"


def of(path: Path, name: str, files: dict[str, str], **given: Any) -> Program:
    """A program whose files lie in a folder of sources."""
    for file, text in files.items():
        (path / f"owner/name/c0/{file}").parent.mkdir(parents=True, exist_ok=True)
        (path / f"owner/name/c0/{file}").write_text(text)
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}
    facts = {"field": "products", "arrays": "numpy", "repository": "owner/name", "commit": "c0"}
    return Program(
        name=name, licence="MIT", script=next(iter(files)), files=digests, **facts, **given
    )


def test_the_list() -> None:
    both = [public_programs.public(gpu) for gpu in (False, True)]
    listed = {program.name: program for program in (*both[0], *both[1])}
    assert len(listed) == 20
    assert len({program.field for program in listed.values()}) >= 6
    assert [sum(it.arrays == "torch" for it in each) for each in both] == [5, 5]
    for program in listed.values():
        assert program.script in program.files
        assert re.fullmatch("[0-9a-f]{40}", program.commit)
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in program.files.values())
        assert all(old != new for old, new in (*program.edits, *program.gpu_edits))
    names = [sample.name for sample in public_programs.samples(gpu=False)]
    assert {*public_programs.LARGER} < {*names}
    assert not {*names} & {*listed}
    on_gpu = public_programs.samples(gpu=True)
    assert on_gpu
    assert {sample.name for sample in on_gpu} < {*names}
    assert all(sample.arguments[:1] == ["--gpu"] for sample in on_gpu)


def test_programs_run_in_both_ways_and_go_on(tmp_path: Path) -> None:
    sources, folder = tmp_path / "sources", tmp_path / "runs"
    folder.mkdir()
    files = {"a/main.py": SCRIPT + USED + SEEN, "a/part.py": PART}
    good = of(sources, "good", files, edits=[("N = 2", "N = 3")], arguments=["3"])
    bad = of(sources, "bad", {"main.py": "raise SystemExit('no')\n"})
    lines: list[str] = []

    def measured(rounds: int, **given: float) -> dict[str, Any]:
        return programs.measure(
            [bad, good], folder, rounds, sources=sources, report=lines.append, **given
        )

    first = measured(1)
    assert first["bad"]["error"] == "exit 1: no"
    assert first["good"]["done"] == 2
    for way in programs.COMMANDS:
        clocks = first["good"][way]
        assert [len(clocks[name]) for name in programs.CLOCKS] == [1, 1, 1]
        assert 0 < clocks["inside"][0] < clocks["whole"][0]
    assert [line.split(":")[0] for line in lines] == ["0/1 bad", "0/1 good", "1/1 good"]
    assert (folder / "good/a/seen").read_text().split() == ["True", "False", "False", "True"]

    assert measured(2, deadline=0.0) == first
    second = measured(2)
    assert second["good"]["native"]["whole"][:1] == first["good"]["native"]["whole"]
    assert len(second["good"]["ours"]["whole"]) == 2
    assert lines[3:] == [f"2/2 good: {lines[-1].partition(': ')[2]}"]

    good = of(sources, "good", files, edits=[("N = 2", "N = 4")], arguments=["3"])
    assert "AssertionError" in measured(1)["good"]["error"]  # another program, which fails
