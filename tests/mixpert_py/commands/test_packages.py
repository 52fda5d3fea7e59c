"""`--package`: the products of libraries that a program uses."""

import json
from pathlib import Path

import pytest

from mixpert_py.plan import Package, Plan, Site, load, save
from tests.mixpert_py.command import Mixpert, Said, forked

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
    folder = tmp_path / "lib" / "site-packages"
    package = folder / "shapes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "1.0"\n')
    (package / "deep.py").write_text("def square(x):\n    return x @ x\n")
    (package / "never.py").write_text("def cube(x):\n    return x @ x @ x\n")
    info = folder / "shapes_of_old-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shapes-of-old\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("shapes\n")
    (tmp_path / "s.py").write_text(USES)
    return folder


@pytest.fixture
def mixpert(tmp_path: Path, library: Path) -> Mixpert:
    """Runs commands in processes whose path has the package."""

    def call(*arguments: str) -> Said:
        return forked("mixpert_py", *arguments, folder=tmp_path, importable=(str(library),))

    return call


def profiled(tmp_path: Path, mixpert: Mixpert, *options: str) -> list[dict[str, object]]:
    said = mixpert("run", "--json", "p.json", *options, "s.py")
    assert said.code == 0, said.err
    records: list[dict[str, object]] = json.loads((tmp_path / "p.json").read_text())
    return records


@pytest.mark.parametrize("pattern", ["shapes", "shapes.*"])
def test_a_named_package_is_rewritten(tmp_path: Path, mixpert: Mixpert, pattern: str) -> None:
    (record,) = profiled(tmp_path, mixpert, "--package", pattern)
    assert str(record["id"]).startswith("shapes.deep:square/")
    assert (record["path"], record["line"]) == ("shapes/deep.py", 2)
    assert mixpert("run", "--package", pattern, "s.py").out == "False\n"
    assert mixpert("run", "--package", pattern, "--scheme", "float32", "s.py").out == "True\n"


def test_a_project_names_packages(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.mixpert]\npackages = ["shapes"]\n')
    (record,) = profiled(tmp_path, mixpert)
    assert record["path"] == "shapes/deep.py"


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("no_such_package", "no such package is installed"),
        ("numpy", "stays as it is"),
        ("*", "give a package"),
        ("sys", "no Python source"),
    ],
)
def test_what_can_never_be_rewritten_is_refused(
    tmp_path: Path, mixpert: Mixpert, package: str, says: str
) -> None:
    said = mixpert("run", "--package", package, "s.py")
    assert (said.code, said.out) == (2, "")
    assert said.one_clear_line().startswith(f"mixpert: --package {package}: ")
    assert says in said.err


def test_a_glob_without_an_imported_module_is_named(tmp_path: Path, mixpert: Mixpert) -> None:
    said = mixpert("run", "--package", "shapes.nev*", "s.py")
    assert (said.code, said.out) == (0, "False\n")
    line = "mixpert: package shapes.nev*: the program imported no module of it"
    assert said.one_clear_line() == line
    assert mixpert("run", "--strict", "--package", "shapes.nev*", "s.py").code == 1


TUNED = ("tune", "--backend", "reference", "--error", "1e-2", "--package", "shapes", "s.py")


def test_a_tuning_lowers_it_and_its_plan_remembers_the_package(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    said = mixpert(*TUNED)
    assert said.code == 0, said.err
    assert "shapes/deep.py:2" in said.out
    assert "imported no module" not in said.err
    plan = load(tmp_path / "s.mixpert.toml")
    assert plan.package == [Package("shapes", "shapes-of-old", "1.0")]
    (site,) = plan.site
    assert site.id.startswith("shapes.deep:square/")
    assert site.scheme != "native"
    (record,) = profiled(tmp_path, mixpert, "--backend", "reference")
    assert record["schemes"] == {site.scheme: 1}
    said = mixpert("verify", "s.mixpert.toml", "s.py")
    assert (said.code, said.err) == (0, ""), said.out
    said = mixpert("run", "--strict", "--backend", "reference", "s.py")
    assert (said.code, said.err) == (0, "")


def test_a_plan_holds_for_one_version(tmp_path: Path, mixpert: Mixpert, library: Path) -> None:
    site = profiled(tmp_path, mixpert, "--package", "shapes")[0]["id"]
    place = tmp_path / "s.mixpert.toml"
    entry = Site(id=str(site), scheme="float32")
    for version, lowered in (("1.0", True), ("0.9", False)):
        save(Plan(package=[Package("shapes", "shapes-of-old", version)], site=[entry]), place)
        said = mixpert("run", "s.py")
        assert (said.code, said.out) == (0, f"{lowered}\n")
        code = mixpert("run", "--strict", "s.py").code
        assert code == (0 if lowered else 1)
    assert said.one_clear_line() == (
        "mixpert: the plan is for shapes-of-old 0.9, and 1.0 is installed: its products run as "
        "without one"
    )
    assert mixpert("verify", "--error", "1e-2", "--strict", str(place), "s.py").code == 1


def test_sites_and_graph_name_files_from_the_packages_folder(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    said = mixpert("sites", "--package", "shapes")
    assert said.out.splitlines()[0] == "shapes/deep.py:2:12: x @ x — is rewritten"
    assert said.out.splitlines()[-1] == "3 rewritten, 0 left alone"
    assert len(json.loads(mixpert("sites", "--json", "--package", "shapes.deep").out)) == 1
    drawn = mixpert("graph", "--format", "json", "--package", "shapes.*e*").out
    assert '"shapes/deep.py"' in drawn
    assert '"shapes/never.py"' in drawn
    assert str(tmp_path) not in drawn
    said = mixpert("sites", "--package", "shapes.none")
    assert (said.code, said.out) == (2, "")
    assert said.one_clear_line() == "mixpert: --package shapes.none: it has no such module"
    assert mixpert("sites").code == 2


TWICE = """\
import numpy as np
from shapes.deep import square
from own import twice
x = np.ones((3, 3))
y = square(x)
y = square(x) + twice(x)
"""
OWN = """\
from shapes.deep import square


def twice(x):
    return square(square(x)) + x @ x
"""


def test_a_profile_has_the_lines_that_called_a_product(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(TWICE)
    (tmp_path / "own.py").write_text(OWN)
    records = profiled(tmp_path, mixpert, "--package", "shapes")
    callers = {str(record["path"]): record["callers"] for record in records}
    assert callers["shapes/deep.py"] == {"own.py:5": 2, "s.py:5": 1, "s.py:6": 1}
    assert callers[str(tmp_path / "own.py")] == {}
    table = mixpert("run", "--profile", "--package", "shapes", "s.py").err
    assert "called from" in table
    assert "own.py:5 (2)" in table


def test_a_tuning_has_the_lines_that_called_a_product(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(TWICE)
    (tmp_path / "own.py").write_text(OWN)
    tuned = mixpert(*TUNED)
    assert tuned.code == 0, tuned.err
    shown = {"table": tuned.out, "summary": mixpert("report", "s.mixpert.toml").out}
    assert mixpert("report", "--html", "page", "s.mixpert.toml").code == 0
    shown["page"] = (tmp_path / "page" / "index.html").read_text()
    for name, text in shown.items():
        assert "called from" in text, name
        assert "own.py:5 (2)" in text, name
    entries = json.loads(mixpert("report", "--json", "s.mixpert.toml").out)["operators"]
    callers = {entry["path"]: entry["callers"] for entry in entries}
    assert callers == {
        "shapes/deep.py": {"own.py:5": 2, "s.py:5": 1, "s.py:6": 1},
        "own.py": {},
    }
    assert next(iter(callers["shapes/deep.py"])) == "own.py:5"


def test_an_estimate_has_it(mixpert: Mixpert) -> None:
    words = "estimate", "--json", "--error", "1e-2", "--time-limit", "30"
    said = mixpert(*words, "--package", "shapes", "s.py")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    (product,) = found["products"]
    assert product["id"].startswith("shapes.deep:square/")
    assert Path(product["path"]).name == "deep.py"
    assert "int8x6" in product["errors"]
    if found["command"] is not None:  # whether it gains depends on the models of devices
        assert "--package shapes" in found["command"]
    assert product["callers"] == {"s.py:4": 1}
    assert mixpert(*words, "s.py").code == 1


FITTED = """\
import numpy as np
from shapes.model import Model
x = np.random.default_rng(0).standard_normal((300, 300))
model = Model().fit(x)
own = x @ x
"""


@pytest.mark.parametrize(
    ("shown", "compared"),
    [
        ("print(model.trace(x))", ["own"]),
    ],
)
def test_a_tuning_judges_attributes_of_a_librarys_object_or_says_that_nothing_does(
    tmp_path: Path, library: Path, mixpert: Mixpert, shown: str, compared: list[str]
) -> None:
    (library / "shapes" / "model.py").write_text(
        "class Model:\n    name, seconds = 'm', 1\n"
        "    def fit(self, x):\n        self.gram = x.T @ x\n        return self\n"
        "    def trace(self, x):\n        return (x @ x.T).trace()\n"
    )
    (tmp_path / "s.py").write_text(FITTED + shown + "\n")
    said = mixpert(*TUNED)
    assert said.code == 0, said.err
    plan = load(tmp_path / "s.mixpert.toml")
    assert sorted(value.name for value in plan.criterion) == compared
    assert ("are not checked" in " ".join(said.out.split())) == ("model.gram" not in compared)
    said = mixpert("verify", "--compare", "model.gram", "s.mixpert.toml", "s.py")
    assert said.code == 0, said.err
    assert "'model.gram'" in said.out
