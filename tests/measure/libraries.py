"""Products of libraries: how many `--package` finds, and what part of the time they take.

`python -m tests.measure.libraries` runs small programs that call scikit-learn, statsmodels and
SciPy, which have to be installed, and prints a table. `--end-to-end SCHEME` runs three programs of
scikit-learn as they are, and rewritten under a scheme, or under none for `default`; it wants a GPU.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import numpy as np

DRAW = "import numpy as np\ndraw = np.random.default_rng(0)\nx = draw.standard_normal(({}, {}))\n"
BEGIN, END = "import time\nstart = time.perf_counter()\n", "print(time.perf_counter() - start)\n"

# Name → package, rows, columns, imports, and what is timed.
PROGRAMS = {
    "PCA": (
        "sklearn",
        20_000,
        400,
        "from sklearn.decomposition import PCA",
        "PCA(20).fit_transform(x)",
    ),
    "TruncatedSVD": (
        "sklearn",
        20_000,
        400,
        "from sklearn.decomposition import TruncatedSVD",
        "TruncatedSVD(20).fit_transform(x)",
    ),
    "NMF": (
        "sklearn",
        4000,
        300,
        "from sklearn.decomposition import NMF",
        "NMF(20, solver='mu', max_iter=50).fit(abs(x))",
    ),
    "KMeans": (
        "sklearn",
        20_000,
        100,
        "from sklearn.cluster import KMeans",
        "KMeans(20, n_init=1, max_iter=20).fit(x)",
    ),
    "LedoitWolf": (
        "sklearn",
        8000,
        600,
        "from sklearn.covariance import LedoitWolf",
        "LedoitWolf().fit(x)",
    ),
    "KernelRidge": (
        "sklearn",
        2000,
        300,
        "from sklearn.kernel_ridge import KernelRidge",
        "KernelRidge(kernel='rbf').fit(x, x[:, 0]).predict(x)",
    ),
    "GaussianProcessRegressor": (
        "sklearn",
        800,
        20,
        "from sklearn.gaussian_process import GaussianProcessRegressor",
        "GaussianProcessRegressor().fit(x, x[:, 0]).predict(x, return_std=True)",
    ),
    "OLS": (
        "statsmodels",
        20_000,
        200,
        "import statsmodels.api as sm",
        "sm.OLS(x[:, 0], x[:, 1:]).fit().summary()",
    ),
    "VAR": ("statsmodels", 4000, 20, "from statsmodels.tsa.api import VAR", "VAR(x).fit(8)"),
    "UnobservedComponents": (
        "statsmodels",
        500,
        1,
        "import statsmodels.api as sm",
        "sm.tsa.UnobservedComponents(x[:, 0], 'lltrend').fit(disp=0)",
    ),
    "expm": ("scipy", 600, 600, "from scipy.linalg import expm", "expm(x / 100)"),
}

# Programs on NumPy arrays of float64 whose products take most of the time; r is compared.
WHOLE = {
    "LedoitWolf, 20,000 × 3000": (
        20_000,
        3000,
        "from sklearn.covariance import LedoitWolf",
        "r = LedoitWolf(store_precision=False).fit(x).covariance_",
    ),
    "cosine_similarity, 16,000 × 5000": (
        16_000,
        5000,
        "from sklearn.metrics.pairwise import cosine_similarity",
        "r = cosine_similarity(x)",
    ),
    "NMF, 10,000 × 4000, 500 components": (
        10_000,
        4000,
        "from sklearn.decomposition import NMF",
        "r = NMF(500, init='random', solver='mu', max_iter=50, random_state=0)"
        ".fit_transform(abs(x))",
    ),
    "OAS, 20,000 × 10,000": (
        20_000,
        10_000,
        "from sklearn.covariance import OAS",
        "r = OAS(store_precision=False).fit(x).covariance_",
    ),
    "GaussianRandomProjection, 20,000 × 8000 to 4000": (
        20_000,
        8000,
        "from sklearn.random_projection import GaussianRandomProjection",
        "r = GaussianRandomProjection(4000, random_state=0).fit_transform(x)",
    ),
    "PCA, 100,000 × 1500": (
        100_000,
        1500,
        "from sklearn.decomposition import PCA",
        "r = PCA(50, svd_solver='covariance_eigh').fit(x).explained_variance_",
    ),
    "euclidean_distances, 16,000 × 5000": (
        16_000,
        5000,
        "from sklearn.metrics.pairwise import euclidean_distances",
        "r = euclidean_distances(x)",
    ),
    "KernelRidge, 12,000 × 3000": (
        12_000,
        3000,
        "from sklearn.kernel_ridge import KernelRidge",
        "r = KernelRidge(alpha=3e3, kernel='linear').fit(x, x[:, 0]).predict(x)",
    ),
}


@click.command()
@click.option("--end-to-end", "scheme", metavar="SCHEME", help="Compare whole programs on a GPU.")
@click.option("--only", multiple=True, metavar="NAME", help="This program, several times.")
def command(scheme: str | None, only: Sequence[str]) -> None:
    """Count the products that --package finds in programs of libraries."""
    with tempfile.TemporaryDirectory() as folder:
        if scheme is None:
            table(Path(folder))
        else:
            end_to_end(Path(folder), scheme, only)


def run(folder: Path, *options: str) -> list[float]:
    """The seconds that the program printed; with options, rewritten under these."""
    command = [sys.executable, *(["-m", "mixpert_py", "run", *options] if options else []), "p.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def table(folder: Path) -> None:
    """A row for each program: sites called, products made, their share of the time."""
    print("| program | package | sites | products | share of the time |\n|---|---|---|---|---|")
    for name, (package, rows, columns, imports, work) in PROGRAMS.items():
        (folder / "p.py").write_text(f"{imports}\n{DRAW.format(rows, columns)}{BEGIN}{work}\n{END}")
        [seconds] = run(folder)
        run(folder, "--package", package, "--scheme", "native", "--json", "p.json")
        records = json.loads((folder / "p.json").read_text())
        calls = sum(record["calls"] for record in records)
        share = sum(record["seconds"] for record in records) / seconds
        print(f"| {name} | {package} | {len(records)} | {calls} | {share:.0%} |", flush=True)


def end_to_end(folder: Path, scheme: str, only: Sequence[str], rounds: int = 2) -> None:
    """A row for each program: its time as it is, rewritten, and the difference of its result.

    The first time includes what begins with it: NumPy's threads, CuPy, and CUDA.
    """
    print(
        "| program | NumPy, first | rewritten, first | NumPy, again | rewritten, again | × "
        "| error |\n|---|---|---|---|---|---|---|"
    )
    options = ["--package", "sklearn", *(() if scheme == "default" else ("--scheme", scheme))]
    for name, (rows, columns, imports, work) in WHOLE.items():
        if only and name.partition(",")[0] not in only:
            continue
        again = f"{BEGIN}{work}\n{END}"
        text = f"{imports}\n{DRAW.format(rows, columns)}{again}{again}{again}np.save('r.npy', r)\n"
        (folder / "p.py").write_text(text)
        times: dict[bool, list[list[float]]] = {False: [], True: []}
        values = {}
        for _ in range(rounds):
            for rewritten in times:
                times[rewritten].append(run(folder, *(options if rewritten else ())))
                values[rewritten] = np.load(folder / "r.npy")
        first = [median(one[0] for one in times[way]) for way in times]
        later = [median(t for one in times[way] for t in one[1:]) for way in times]
        error = np.linalg.norm(values[True] - values[False]) / np.linalg.norm(values[False])
        cells = [f"{seconds:.2f} s" for seconds in (*first, *later)]
        print(
            f"| {name} | {' | '.join(cells)} | {later[0] / later[1]:.1f}× | {error:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    command()
