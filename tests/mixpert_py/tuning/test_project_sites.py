"""The products of a program: those of its own file, and of what it imports of its project."""

from pathlib import Path

import pytest

from mixpert_py.launch.program import module, script
from mixpert_py.tuning.project_sites import ProjectSites, read_sites
from tests.mixpert_py.command import Mixpert

FILES = {
    "pyproject.toml": "",
    "main.py": "import numpy as np\nfrom lib.core import gram\nimport lib.sub as s\n"
    "import scipy, missing\nx = np.ones((3, 3))\nn = 5\ny = gram(x)\nz = y @ x\nw = s.Model(z)\n"
    "u = w.fit()\n",
    "lib/__init__.py": "",
    "lib/core.py": "from .deep import square\ndef gram(x):\n    return square(x.T) @ x\n",
    "lib/deep.py": "from .core import gram\ndef square(x):\n    return x @ x\n",
    "lib/sub.py": "class Model:\n    def __init__(self, x): self.x = x\n"
    "    def fit(self): return self.x.dot(self.x)\n",
    "lib/unused.py": "a @ b\n",
    "venv/scipy/__init__.py": "a @ b\n",
    "canary.py": "raise SystemExit\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def sites(project: Path) -> ProjectSites:
    return read_sites(script(str(project / "main.py")))


def test_sites_of_all_files_that_are_imported(sites: ProjectSites, project: Path) -> None:
    found = {site: Path(file).relative_to(project) for site, file in sites.files.items()}
    assert sorted({str(file) for file in found.values()}) == [
        "lib/core.py",
        "lib/deep.py",
        "lib/sub.py",
        "main.py",
    ]
    assert {site.partition("/")[0] for site in sites.sites} == {
        "main:<module>",
        "lib.core:gram",
        "lib.deep:square",
        "lib.sub:Model.fit",
    }
    assert next(iter(sites.sites)).startswith("main:")


def test_values_flow_through_calls_of_other_files(sites: ProjectSites) -> None:
    ids = {site.partition("/")[0]: site for site in sites.sites}
    main, gram, square, fit = (
        ids[name]
        for name in ("main:<module>", "lib.core:gram", "lib.deep:square", "lib.sub:Model.fit")
    )
    assert {(gram, main), (square, main), (square, gram), (main, fit)} <= sites.flow.edges
    assert (fit, main) not in sites.flow.edges
    assert sites.flow.names == ("u", "w", "y", "z")
    assert set(sites.flow.sinks) == {fit}


def test_products_of_a_module_that_the_source_does_not_name_are_tuned(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "plugin.py").write_text("def f(a):\n    return a @ a\n")
    (tmp_path / "s.py").write_text(
        "import importlib\nimport numpy as np\na = np.ones((96, 96))\nb = a @ a\n"
        "c = importlib.import_module('plug' + 'in').f(a)\n"
    )
    said = mixpert("tune", "--error", "1e-5", "--backend", "reference", "s.py")
    assert "plugin.py:2" in said.out


PROGRAM = """\
import sys
import numpy as np
from .lib import gram

n = int(sys.argv[1])
x = np.random.default_rng(0).standard_normal((n, n))
g = gram(x)
h = g @ x
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "pkg" / "lib.py").write_text("def gram(x):\n    return x.T @ x\n")
    return tmp_path


def test_a_package_is_tuned_verified_and_run(package: Path, mixpert: Mixpert) -> None:
    options = ("--error", "1e-5", "--backend", "reference")
    said = mixpert("tune", *options, "-m", "pkg", "96")
    assert said.code == 0, said
    assert "pkg/lib.py:2" in said.out
    assert "pkg/__main__.py:8" in said.out
    (plan,) = package.glob("pkg/*.mixpert.toml")
    assert 'id = "pkg.lib:gram/matmul~' in plan.read_text()
    words = ("verify", "--backend", "reference", str(plan), "-m", "pkg", "96")
    assert ": holds: " in mixpert(*words).out
    words = ("run", "--profile", "--backend", "reference", "-m", "pkg", "96")
    assert mixpert(*words).err.count("int8") >= 2


def test_a_module_in_a_folder_without_init_below_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pkg/__init__.py": "", "pkg/ex/m.py": "y = a @ a\n", "s.py": "import pkg.ex.m\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for program in (script("s.py"), module("pkg.ex.m")):
        (site,) = read_sites(program).sites
        assert site.endswith("m:<module>/matmul~534ee7#0")
