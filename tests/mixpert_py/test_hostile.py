"""Hostile files: one clear line each, in bounded time and memory, and the run goes on."""

from tests.mixpert_py.command import Shell

REFUSED = {
    "brackets.py": (b"(" * 100_000 + b"a @ b" + b")" * 100_000, "too many nested"),
    "bytes.py": (b"s = '\xe9' @ b\n", "cannot be decoded"),
    "line.py": (b"x = [" + b"1," * 5_000_000 + b"a @ b]\n", "larger than 4 MiB"),
    "minuses.py": (b"a @ " + b"-" * 100_000 + b"1\n", "nested too deeply"),
    "nul.py": (b"a @ b\0\n", "null bytes"),
    "shift_jis.py": ("# 日本\na @ b\n".encode("shift_jis"), "cannot be decoded"),
    "tokens.py": (b"x = [" + b"1," * 2_000_000 + b"a @ b]\n", "words and signs"),
    "utf_16.py": ("a @ b\n".encode("utf-16"), "cannot be decoded"),
}
ACCEPTED = {
    "known_latin_1.py": "# coding: latin-1\né = a @ b\n".encode("latin-1"),
    "known_shift_jis.py": "# coding: shift_jis\ns = '日本'; c = a @ s\n".encode("shift_jis"),
    "zuletzt.py": b"c = a @ b\n",
}


def test_the_run_goes_on_with_the_next_file(sh: Shell) -> None:
    contents = {name: content for name, (content, _) in REFUSED.items()}
    sh.write({**contents, **ACCEPTED})
    lines = sh("rewrite -w .", 2).err.splitlines()
    assert len(lines) == len(REFUSED)
    for line, (name, (content, words)) in zip(lines, REFUSED.items(), strict=True):
        assert line.startswith(f"mixpert: ./{name}: ")
        assert words in line
        assert len(line) < 200
        assert (sh.folder / name).read_bytes() == content
    for name, content in ACCEPTED.items():
        assert (sh.folder / name).read_bytes() != content
