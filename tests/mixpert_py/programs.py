"""Small programs and other files that many tests of commands are about."""

EYE = "import numpy as np\na = np.eye(3)\nb = a @ a\n"
PLAN = '[[criterion]]\nname = "b"\nmetric = "max"\nbudget = 1.0\n'
NOISE = bytes(range(256)) * 4
# Python reads it, and MixPert-Py refuses it.
ODD = f"import numpy as np\nx = np.eye(3) @ np.eye(3)\ny = {'-' * 300}1\n"

FILES: dict[str, str | bytes] = {
    # Programs that are sound
    "s.py": EYE,
    "none.py": "x = 1\n",
    "long.py": EYE.replace("np.eye(3)", "np.eye(9, dtype=np.longdouble)"),
    "noisy.py": "import os\nimport numpy as np\na = np.frombuffer(os.urandom(9), np.uint8) / 99\n"
    "b = a.reshape(3, 3) @ np.eye(3)\n",
    "uncalled.py": "def f(a): return a @ a\n",
    "older.py": "try:\n    import broken\nexcept SyntaxError:\n    print('none')\n",
    # Programs that fail
    "fails.py": f"{EYE}raise SystemExit(3)\n",
    "kills.py": "import os\na @ b if 0 else os.kill(os.getpid(), 9)\n",
    "hangs.py": "import time\na @ b if 0 else time.sleep(60)\n",
    "nan.py": "import numpy as np\na = np.eye(200)\nx = a @ a * np.nan\nprint(x)\n",
    "nothing_left.py": "import numpy as np\ndef f(a): a @ a; return 1\nf(1)\n",
    # What is no Python, or is not read.
    "open.py": "x = (a @\n",
    "old.py": "x = a @ b\nprint x\n",
    "broken.py": "import numpy as np\nprint np.dot(1, 2)\n",
    "odd.py": ODD,
    "uses_odd.py": "import odd\nprint(odd.x.sum())\n",
    "binary.py": NOISE,
    "latin.py": 'x = "\xff" @ b\n'.encode("latin-1"),
    "zeros.py": b"\x7fELF\xff\0\0",
    # Plans and notebooks
    "p.toml": PLAN,
    "empty.toml": "",
    "binary.toml": NOISE,
    "syntax.toml": "site = [\n",
    "scheme.toml": '[[site]]\nid = "s:f/matmul~1#0"\nscheme = "int8x7"\n',
    "deep.toml": "a = " + "[" * 500_000,
    "damaged.toml": PLAN,
    "damaged.trials.jsonl": NOISE,
    "binary.ipynb": NOISE,
    "object.ipynb": "{}",
    # So that no folder above is the project
    "pyproject.toml": "",
}
