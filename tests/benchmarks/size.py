"""The size of the project; exit code 1 where a total exceeds what docs/code.md states for it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import networkx

ROOT = Path(__file__).parents[2]
PARTS = ("passes", "runtime", "tuner")
ENDINGS = {".py", ".cu", ".cuh", ".html", ".css", ".js", ".jinja"}
WORD = re.compile(r"\S*\w\S*")
STATED = re.compile(r"^\| ([a-z ]+) \| ([\d,]+) \|", re.MULTILINE)  # a row of the table


def product() -> list[Path]:
    """The files of the product; `mixpert_py/passes` and its like are links to the other parts."""
    own = [path for path in (ROOT / "mixpert_py").iterdir() if path.name not in PARTS]
    tops = [*own, *(ROOT / part for part in PARTS)]
    return [it for top in tops for it in (top, *top.rglob("*")) if it.suffix in ENDINGS]


def name_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "mixpert_py" else ["mixpert_py", *parts])


def circles(trees: dict[str, ast.Module]) -> list[set[str]]:
    """The modules that import one another: imports in functions count, those for types do not."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for module, tree in trees.items():
        typing = [node for node in tree.body if ast.unparse(node).startswith("if TYPE_CHECKING")]
        left_out = {inner for node in typing for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node not in left_out:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                graph.add_edges_from((module, n if n in trees else node.module) for n in names)
    graph.remove_nodes_from([name for name in graph if name not in trees])
    return [one for one in networkx.strongly_connected_components(graph) if len(one) > 1]


def parameters(tree: ast.Module) -> Iterator[int]:
    """The number of parameters of each function of the host: kernels lie in other functions."""
    classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in (*tree.body, *(node for body in classes for node in body)):
        if isinstance(node, ast.FunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield len(given) - (given[:1] != [] and given[0].arg in ("self", "cls"))


def untyped(tree: ast.Module) -> int:
    names = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg))
    return sum(isinstance(name, ast.Name) and name.id == "Any" for name in names)


def totals() -> dict[str, int]:
    files = product()
    trees = {name_of(f): ast.parse(f.read_text("utf-8")) for f in files if f.suffix == ".py"}
    tests = (ROOT / "tests").rglob("*.py")
    words = {
        page.name: len(WORD.findall(page.read_text("utf-8")))
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    }
    classes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    return {
        "product lines": sum(f.read_text("utf-8").count("\n") for f in files),
        "product files": len(files),
        "lines of tests and benchmarks": sum(f.read_text("utf-8").count("\n") for f in tests),
        "words of pages": sum(words.values()),
        "words of the readme": words["README.md"],
        "parameters of type any": sum(map(untyped, trees.values())),
        "names of three classes": sum(number > 2 for number in classes.values()),
        "functions of eight parameters": sum(n >= 8 for t in trees.values() for n in parameters(t)),
        "modules in import circles": sum(map(len, circles(trees))),
    }


@click.command()
def command() -> int:
    """Print the totals beside those that docs/code.md states."""
    rows = STATED.findall((ROOT / "docs" / "code.md").read_text("utf-8"))
    stated = {name: int(number.replace(",", "")) for name, number in rows}
    for name, number in (found := totals()).items():
        click.echo(f"{name}: {number:,} of {stated[name]:,}")
    raise SystemExit(any(number > stated[name] for name, number in found.items()))


if __name__ == "__main__":
    command()
