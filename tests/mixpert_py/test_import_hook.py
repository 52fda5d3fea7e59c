"""The import hook: what it rewrites, what it leaves alone and why, and how little it disturbs."""

import importlib
import importlib.resources
import inspect
import os
import pkgutil
import py_compile
import subprocess
import sys
import textwrap
import traceback
import zipfile
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan, Site, save
from mixpert_py.runtime.context import Context, use
from tests.mixpert_py import squares
from tests.mixpert_py.command import IMPORTABLE
from tests.mixpert_py.squares import EXACT, A, sites

PRODUCT = "def call(x):\n    return x @ x\n"

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes importable files; what is imported in a test is forgotten behind it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def call(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return tmp_path

    yield call
    for name, module in reversed(list(sys.modules.items())):  # submodules first
        if str(tmp_path) in f"{module} {getattr(module, '__path__', '')}":
            del sys.modules[name]


NET = {
    "net/__init__.py": "from net.layers import dense\n",
    "net/layers.py": "import numpy as np\n\n\ndef dense(x):\n    return np.dot(x, x)\n",
    "net/deep/__init__.py": PRODUCT,
    "net/deep/one.py": PRODUCT,
    "network.py": PRODUCT,
}


def is_emulated(function: Callable[..., Any]) -> bool:
    with use(Context(backend="reference")):
        return squares.is_emulated(function(A))


def test_a_package_is_rewritten_with_all_below_it(write: Write) -> None:
    root = write(NET)
    hook = mixpert_py.install(packages=["net"])
    functions = {
        "net.layers": importlib.import_module("net").dense,
        "net.deep": importlib.import_module("net.deep").call,
        "net.deep.one": importlib.import_module("net.deep.one").call,
    }
    for name, function in functions.items():
        path = Path(inspect.getfile(function))
        known = [site.id for site in analyze(path.read_bytes(), name)]
        assert sites(function) == known
        assert hook.rewritten[name] == (str(path), name)
    assert sites(importlib.import_module("network").call) == []
    assert hook.left == {"net": "no product to rewrite"}
    assert hook.rewritten["net.deep"][0] == str(root / "net" / "deep" / "__init__.py")


def test_a_scheme_holds_for_its_packages_only(write: Write) -> None:
    write(NET)
    mixpert_py.install(["net.deep"], scheme="int8x6")
    mixpert_py.install(["network"])
    assert is_emulated(importlib.import_module("net.deep.one").call)
    assert not is_emulated(importlib.import_module("network").call)
    assert not sites(importlib.import_module("net").dense)


def test_a_plan_comes_before_the_scheme(write: Write) -> None:
    root = write({"one.py": "def call(x):\n    return x @ x\n\ndef dot(x):\n    return x.dot(x)\n"})
    planned, _ = analyze((root / "one.py").read_bytes(), "one")
    plan = Plan(site=[Site(id=planned.id, scheme="native")])
    save(plan, root / "plan.toml")
    for given in (plan, str(root / "plan.toml"), root / "plan.toml"):
        with mixpert_py.install(["one"], plan=given, scheme="int8x6"):
            module = importlib.import_module("one")
        assert not is_emulated(module.call)
        assert is_emulated(module.dot)
        del sys.modules["one"]


def test_a_changed_source_is_rewritten_anew(write: Write) -> None:
    mixpert_py.install(["one"], scheme="int8x6")
    for text in (PRODUCT, PRODUCT.replace("x @ x", "x @ x.T"), PRODUCT):
        path = write({"one.py": text}) / "one.py"
        os.utime(path, (1, 1))  # nor does its date say anything
        module = importlib.import_module("one")
        with use(Context(backend="reference")):
            expected = A @ A.T if "x.T" in text else EXACT
            assert 0 < np.abs(module.call(A) - expected).max() < 1e-2
        del sys.modules["one"]


def test_it_ends(write: Write) -> None:
    write({"one.py": PRODUCT, "two.py": PRODUCT, "three.py": PRODUCT})
    before = list(sys.meta_path)
    with mixpert_py.install(["one", "two", "three"]) as hook:
        one = importlib.import_module("one")
        assert sys.meta_path == [hook, *before]
    assert sys.meta_path == before
    hook.uninstall()
    assert sites(one.call)
    assert not sites(importlib.import_module("two").call)
    hook.install()
    assert sites(importlib.import_module("three").call)


def test_modules_that_are_imported_already_are_named_in_one_warning(write: Write) -> None:
    write(NET)
    importlib.import_module("net.layers")
    with pytest.warns(UserWarning, match="imported already") as caught:
        hook = mixpert_py.install(["net", "network"])
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "install: imported already, so left as they are: net, net.layers; "
        "call install before they are imported"
    )
    assert hook.left["net.layers"] == "imported before the hook was installed"
    assert sites(importlib.import_module("net.deep").call)


def test_reload_rewrites(write: Write) -> None:
    write({"one.py": PRODUCT})
    module = importlib.import_module("one")
    with pytest.warns(UserWarning, match="imported already"):
        hook = mixpert_py.install(["one"])
    importlib.reload(module)
    assert sites(module.call)
    assert hook.left == {}
    hook.uninstall()
    importlib.reload(module)
    assert not sites(module.call)


def zipped(root: Path) -> None:
    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        archive.writestr("odd.py", PRODUCT)
    sys.path.insert(0, str(root / "a.zip"))


def bytecode_only(root: Path) -> None:
    (root / "odd.txt").write_text(PRODUCT)
    py_compile.compile(str(root / "odd.txt"), cfile=str(root / "odd.pyc"))


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = type("Theirs", (SourceFileLoader,), {})(name, spec.loader.path)
        return spec


def another_loader(root: Path) -> None:
    (root / "odd.py").write_text(PRODUCT)
    sys.meta_path.insert(0, _Finder())


LEFT: dict[str, tuple[Callable[[Path], object], str]] = {
    "archive": (zipped, "by zipimporter"),
    "bytecode": (bytecode_only, "by SourcelessFileLoader"),
    "namespace": (lambda root: (root / "odd").mkdir(), "not loaded from a source file"),
    "another loader": (another_loader, "by Theirs"),
    "too deep": (
        lambda root: (root / "odd.py").write_text(f"{PRODUCT}x = {'-' * 300}1\n"),
        "nested more than 250 levels",
    ),
}


@pytest.mark.parametrize(("make", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_left_alone_has_a_reason(
    write: Write, make: Callable[[Path], object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write({})
    monkeypatch.setattr(sys, "path", list(sys.path))
    make(root)
    importlib.invalidate_caches()
    hook = mixpert_py.install(["odd"], scheme="int8x6")
    module = importlib.import_module("odd")
    assert reason in hook.left["odd"]
    assert not hasattr(module, "call") or not is_emulated(module.call)


def test_what_is_not_found_is_said_and_then_found(write: Write) -> None:
    hook = mixpert_py.install(["later", "never"])
    assert hook.left == {"later": "not found", "never": "not found"}
    write({"later.py": PRODUCT})
    assert sites(importlib.import_module("later").call)
    assert hook.left == {"never": "not found"}
    with pytest.raises(ModuleNotFoundError, match="No module named 'never'"):
        importlib.import_module("never")


def test_this_package_is_never_rewritten() -> None:
    hook = mixpert_py.install(["mixpert_py", "mixpert_py.runtime"])
    hook.uninstall()
    assert hook.left == {"mixpert_py": "MixPert-Py itself is never rewritten"}


def test_a_module_is_otherwise_as_python_would_have_made_it(write: Write) -> None:
    root = write({**NET, "net/table.txt": "1 2"})
    mixpert_py.install(["net"])
    module = importlib.import_module("net.layers")
    assert module.__file__ == str(root / "net" / "layers.py")
    assert module.__spec__ is not None
    assert (module.__name__, module.__package__) == ("net.layers", "net")
    assert inspect.getsource(module.dense) == "def dense(x):\n    return np.dot(x, x)\n"
    assert pkgutil.get_data("net", "table.txt") == b"1 2"
    assert importlib.resources.files("net").joinpath("table.txt").read_text() == "1 2"
    with pytest.raises(ValueError, match="shapes") as caught:
        module.dense(np.ones((2, 3)))
    frame = traceback.extract_tb(caught.value.__traceback__)[1]
    assert (frame.filename, frame.lineno, frame.line) == (module.__file__, 5, "return np.dot(x, x)")


BROKEN = {"syntax": f"{PRODUCT}x = (1 @\n", "while it runs": f"{PRODUCT}call(5)\n"}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_module_that_fails_does_so_as_under_python(write: Write, text: str) -> None:
    root = write({"broken.py": text})
    install = "import mixpert_py; mixpert_py.install(['broken']);"
    said = []
    for first in ("import mixpert_py;".ljust(len(install)), install):
        command = [sys.executable, "-c", f"{first} import broken"]
        environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
        done = subprocess.run(command, capture_output=True, cwd=root, env=environment, timeout=60)
        lines = done.stderr.decode().splitlines()
        said.append([line for line in lines if "mixpert_py" not in line])
        assert done.returncode == 1
    if "while it runs" not in text:
        assert "import_hook" not in "".join(said[1])
    assert said[0][-1] == said[1][-1]
    assert [line for line in said[1] if "in <module>" in line] == [
        line for line in said[0] if "in <module>" in line
    ]


ASKING = (
    "import sys, mixpert_py; mixpert_py.install(['one']); import one; "
    "print('mixpert_py.passes.pipeline' in sys.modules)"
)


def test_the_second_process_finds_the_code(write: Write, tmp_path: Path) -> None:
    root = write({"one.py": f"{PRODUCT}assert True, 'said'\n"})
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": IMPORTABLE, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def ask(*options: str) -> bool:
        command = [sys.executable, *options, "-c", ASKING]
        return "True" in subprocess.check_output(command, cwd=root, env=environment, text=True)

    assert [ask(), ask(), ask("-O"), ask("-O"), ask()] == [True, False, True, False, False]
    (kept, _) = (tmp_path / "cache" / "mixpert" / "code").iterdir()
    kept.write_bytes(b"broken")
    assert sorted([ask(), ask("-O"), ask(), ask("-O")]) == [False, False, False, True]
