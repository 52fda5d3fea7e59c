"""`--package`: the products of libraries that a program uses."""

from pathlib import Path

import pytest

from mixpert_py.plan import Package, load
from tests.mixpert_py.command import Said, Shell, forked

USES = """\
import numpy as np
from shapes.deep import square
x = np.random.default_rng(0).standard_normal((300, 300))
y = square(x)
print(float(np.abs(y - np.float32(y)).max()) == 0)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A program and a package that is installed beside it, not in its project."""
    files = {
        "shapes/__init__.py": '__version__ = "1.0"\n',
        "shapes/deep.py": "def square(x):\n    return x @ x\n",
        "shapes/never.py": "def cube(x):\n    return x @ x @ x\n",
        "shapes_of_old-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: shapes-of-old\n"
        "Version: 1.0\n",
        "shapes_of_old-1.0.dist-info/top_level.txt": "shapes\n",
    }
    folder = tmp_path / "lib" / "site-packages"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "s.py").write_text(USES)
    return folder


@pytest.fixture
def sh(tmp_path: Path, library: Path) -> Shell:
    """Runs commands in processes whose path has the package."""

    def call(*arguments: str, stdin: str = "") -> Said:
        return forked("mixpert_py", *arguments, folder=tmp_path, importable=(str(library),))

    return Shell(tmp_path, call)


def test_a_named_package_is_rewritten(sh: Shell) -> None:
    for pattern in ("shapes", "shapes.*"):
        (record,) = sh.profile(f"--package {pattern} s.py")
        assert record["id"].startswith("shapes.deep:square/")
        assert (record["path"], record["line"]) == ("shapes/deep.py", 2)
        sh(f"run --package {pattern} s.py", out="False\n")
        sh(f"run --package {pattern} --scheme float32 s.py", out="True\n")
    sh.write({"pyproject.toml": '[tool.mixpert]\npackages = ["shapes"]\n'})
    assert sh.profile("s.py")[0]["path"] == "shapes/deep.py"


REFUSED = {
    "no_such_package": "no such package is installed",
    "numpy": "stays as it is",
    "*": "give a package",
    "sys": "no Python source",
}


def test_what_can_never_be_rewritten_is_refused(sh: Shell) -> None:
    for package, says in REFUSED.items():
        said = sh(f"run --package {package} s.py", 2, out="", err=says)
        assert said.one_clear_line().startswith(f"mixpert: --package {package}: ")
    told = "mixpert: package shapes.nev*: the program imported no module of it\n"
    sh("run --package shapes.nev* s.py", out="False\n", err=told)


TUNED = "tune --backend reference --error 1e-2 --package shapes s.py"


def test_a_tuning_lowers_it_and_its_plan_remembers_the_package(sh: Shell) -> None:
    said = sh(TUNED, out="shapes/deep.py:2")
    assert "imported no module" not in said.err
    plan = load(sh.folder / "s.mixpert.toml")
    assert plan.package == [Package("shapes", "shapes-of-old", "1.0")]
    (site,) = plan.site
    assert site.id.startswith("shapes.deep:square/")
    assert site.scheme != "native"
    (record,) = sh.profile("--backend reference s.py")
    assert record["schemes"] == {site.scheme: 1}
    sh("verify s.mixpert.toml s.py", err="")
    sh("run --backend reference s.py", err="")


FITTED = """\
import numpy as np
from shapes.model import Model
x = np.random.default_rng(0).standard_normal((300, 300))
model = Model().fit(x)
own = x @ x
print(model.trace(x))
"""


def test_a_tuning_says_that_attributes_of_a_librarys_object_are_not_judged(
    sh: Shell, library: Path
) -> None:
    (library / "shapes" / "model.py").write_text(
        "class Model:\n    name, seconds = 'm', 1\n"
        "    def fit(self, x):\n        self.gram = x.T @ x\n        return self\n"
        "    def trace(self, x):\n        return (x @ x.T).trace()\n"
    )
    sh.write({"s.py": FITTED})
    assert "are not checked" in " ".join(sh(TUNED).out.split())
    plan = load(sh.folder / "s.mixpert.toml")
    assert [value.name for value in plan.criterion] == ["own"]
    sh("verify --compare model.gram s.mixpert.toml s.py", out="'model.gram'")
