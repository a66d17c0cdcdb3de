"""Writes the model files and checkpoints of this folder, each with a record of what it answers.

    python tests/files/write.py

A file that is there is never written again: it stands for those that users have. So this is run only to add
files for a new class, or for an option that changes what is stored. At the end it says which classes that a
model file can hold are in no file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

sys.path.insert(0, str(Path(__file__).parents[1]))

import nearwise as nw
import stored
from nearwise.cli import main
from nearwise.data import models

c = nw.constraints
Made = tuple[Any, dict[str, Any], list[str]]  # a model, the inputs of its record, what it is asked


def numbers(n: int, d: int, shift: int = 0) -> NDArray[np.float64]:
    """Rows of quarters, so that sums and products of a few have no rounding errors."""
    i, k = np.ogrid[:n, :d]
    return ((5 * i * i + 3 * i * k + 7 * k + shift) % 16) / 4 - 2.0


N = 12
LABELS = np.arange(N) % 3
X = numbers(N, 3) + LABELS[:, None] * [1.0, 0.5, 0.0]
MORE, MORE_LABELS = numbers(24, 3) + (np.arange(24) % 2)[:, None], np.arange(24) % 2  # AutoLearner needs 20
NEW = numbers(3, 3, 3)
SPARSE = np.where(numbers(N, 6) > 0.5, numbers(N, 6), 0.0) + np.eye(6)[np.arange(N) % 6]
KNOWN = np.array([[i, j] for i in range(N) for j in range(i + 1, N) if (i + j) % 5 == 0])
ALIKE = np.where(LABELS[KNOWN[:, 0]] == LABELS[KNOWN[:, 1]], 1, -1)
BOUNDS = c.at_most([[0, 3], [1, 4], [2, 5]], 2.0) + c.at_least([[0, 1], [1, 2], [6, 8]], 3.0)
COMPARED = c.closer([[0, 3, 1], [1, 4, 2]], margin=1.0) + c.similarity([[0, 5]], 1.0, "<=")
NAMES, GROUPS = ["height", "width", "age"], {"size": ["height", "width"], "years": ["age"]}
GROWS = X[:, 0] ** 2 + X[:, 1] ** 2 + X[:, 2] ** 2 + 1.0

WHERE = ["transform new", "transform rows"]
APART = ["distances new rows squared=true", "pair_distance pairs new squared=true", "get_feature_names_out"]
SOLVED = ["status_", "penalty_", "n_iter_", "result_.certificate.primal", "result_.dual"]
KERNEL = ["learned_kernel new rows"]
DECIDES = ["decision_function pairs new", "predict pairs new", "predict_proba pairs new", "threshold_"]
SEEN = ["n_feedback_", "n_violated_", "get_mahalanobis_matrix"]
MEASURES = ["squared_distances new rows", "transform new"]
MATRIX = ["matrix", "factor"]

metric = partial(nw.MetricLearner, penalty=1.0, n_pairs=4, tol=1e-4, random_state=0)
kernel = partial(nw.KernelLearner, penalty=1.0, n_pairs=4, gamma="scale", tol=1e-4, random_state=0)
fixed = partial(nw.FixedRankLearner, n_pairs=4, max_iter=8, random_state=0)
regressor = partial(nw.FixedRankRegressor, max_iter=8, random_state=0)
of_rows = partial(fixed, kernel="rbf", kernel_params={"gamma": 0.25}, n_basis=4, check=False)


def dense(rows: Any) -> dict[str, Any]:
    """An array in the words of a record."""
    return {"kind": "dense", "values": np.asarray(rows).tolist()}


def spread(rows: Any) -> dict[str, Any]:
    """A sparse matrix."""
    return dense(rows) | {"kind": "sparse"}


def table(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """A table."""
    return {"kind": "table", "values": columns}


def named(rows: Any) -> dict[str, Any]:
    """A table of numbers."""
    return table(dict(zip(NAMES, np.asarray(rows).T.tolist(), strict=True)))


def given(new: Any = NEW, rows: Any = X[:2], kind: Callable[[Any], dict[str, Any]] = dense) -> dict[str, Any]:
    """Inputs: other rows, rows of the fit, and pairs of other ones."""
    return {"new": kind(new), "rows": kind(rows), "pairs": dense([[0, 1], [0, 2], [1, 2]])}


def learned(learner: Any, asked: list[str], **side: Any) -> Made:
    """From X, with its labels if nothing else is said."""
    return learner.fit(X, **(side or {"y": LABELS})), given(), asked


def learners() -> Iterator[tuple[str, Made]]:
    """Metrics of vectors by structure, divergence, prior, subspace and side information."""
    asked = WHERE + APART + SOLVED
    for name in ("logdet", "vonneumann", "frobenius"):
        yield f"metric-{name}", learned(metric(name), asked)
    yield "metric-own-divergence", learned(metric(nw.VonNeumann(), pairs="random"), asked)
    yield "metric-covariance", learned(metric(prior="covariance"), asked)
    yield "metric-prior", learned(metric(prior=np.diag([1.0, 2.0, 4.0])), asked)
    yield "metric-auto", learned(metric(penalty="auto"), [*WHERE, *APART, "penalty_scores_", "kept_prior_"])
    yield "metric-rank", learned(metric(rank=2), asked)
    yield "metric-whole", learned(metric(rank=1, basis="svd", whole=True), asked)
    yield "metric-basis", learned(metric(nw.LogDet(), basis=np.eye(3)[:, :2], rank=2), asked)
    yield "metric-diagonal", learned(metric(structure="diagonal"), [*asked, "weights_"])
    yield "metric-hard", learned(metric(penalty=np.inf), asked, constraints=BOUNDS)
    yield "metric-compared", learned(metric(), asked, constraints=COMPARED)
    yield "metric-weighted", learned(metric(), asked, y=LABELS, sample_weight=np.arange(N) % 2 + 1.0)
    yield "metric-stopped", learned(metric(max_iter=1, tol=1e-12, pairs="random"), asked)
    plain = nw.MetricLearner(nw.Frobenius(), penalty=np.inf, structure="blocks", groups=GROUPS)
    yield "metric-not-fitted", (plain, {}, ["penalty", "groups", "structure", "tol"])

    frame, rows = stored.read({"X": named(X)})["X"], stored.read({"X": spread(SPARSE)})["X"]
    blocks = metric(structure="blocks", groups=GROUPS).fit(frame, LABELS).set_output(transform="pandas")
    yield "metric-blocks", (blocks, given(kind=named), [*asked, "groups_", "feature_names_in_"])
    inputs = given(SPARSE[:3] + np.eye(6)[:3], SPARSE[:2], spread)
    yield "metric-diagonal-sparse", (metric(structure="diagonal").fit(rows, LABELS), inputs, asked)
    yield "kernel-sparse", (kernel("cosine").fit(rows, LABELS), inputs, asked + KERNEL)

    decides = metric().fit(X, LABELS).calibrate_threshold(KNOWN, ALIKE, X)
    yield "metric-isotonic", (decides.calibrate_probability(KNOWN, ALIKE, X), given(), DECIDES)
    decides = kernel("linear").fit(X, LABELS).set_threshold(1.5)
    yield "kernel-platt", (decides.calibrate_probability(KNOWN, ALIKE, X, method="platt"), given(), DECIDES)

    for kind in ("linear", "rbf", "linear+rbf", "auto"):
        penalty = "auto" if kind == "auto" else 1.0
        learner = nw.AutoLearner(kind, penalty=penalty, n_pairs=4, tol=1e-4, random_state=0)
        asks = [*WHERE, *APART, "choice_", "choice_scores_", "status_"]
        yield f"auto-{kind}", (learner.fit(MORE, MORE_LABELS), given(rows=MORE[:2]), asks)


def kernel_learners() -> Iterator[tuple[str, Made]]:
    """Kernels by name, sums, bases, and kernels that are computed elsewhere."""
    asked = WHERE + APART + SOLVED + KERNEL
    for name in ("rbf", "laplacian", "poly", "linear", "linear+rbf"):
        yield f"kernel-{name}", learned(kernel(name), asked)
    yield "kernel-auto", learned(kernel(gamma="auto"), [*WHERE, *APART, *KERNEL, "gamma_", "gamma_scores_"])
    own = kernel("chi2", gamma=None, kernel_params={"gamma": 0.25}).fit(X + 4.0, LABELS)
    yield "kernel-params", (own, given(NEW + 4.0, X[:2] + 4.0), asked)
    yield "kernel-alpha", learned(kernel("linear", divergence="frobenius", alpha=0.5), asked)
    for basis in ("principal", "subset", "kmeans", "class_means"):
        rank = None if basis == "class_means" else 3
        yield f"kernel-{basis}", learned(kernel(basis=basis, rank=rank), asked)
    asked = [*WHERE, *SOLVED, "learned_kernel rows"]
    K = X @ X.T + np.eye(N)
    for name, learner in {"": kernel(), "-reduced": kernel(basis="subset", rank=3)}.items():
        own = learner.set_params(kernel="precomputed").fit(K, LABELS)
        yield f"kernel-precomputed{name}", (own, given(K[:3] + 1.0, K[:2]), asked)
    reducer = partial(nw.KernelReducer, n_pairs=4, tol=1e-4, random_state=0)
    yield "reducer", learned(reducer(), [*WHERE, *APART, "components_", "status_"])
    yield "reducer-poly", learned(reducer(1, "poly", degree=2, rank=5), WHERE + APART)


def other_learners() -> Iterator[tuple[str, Made]]:
    """Neighbours, streams and matrices of fixed rank."""
    yield "neighbors", learned(nw.NeighborLearner(random_state=0), WHERE + APART)
    yield "neighbors-numbers", learned(nw.NeighborLearner(target="numbers", random_state=0), WHERE, y=GROWS)

    for update in ("logdet", "exponentiated_gradient", "pola"):
        yield f"online-{update}", learned(nw.OnlineLearner(update, random_state=0), WHERE + APART + SEEN)
    yield "online-rank", learned(nw.OnlineLearner(rank=2, whole=True, random_state=0), WHERE + APART + SEEN)
    before = nw.Metric(np.diag([1.0, 2.0, 0.5]))
    yield "online-prior", learned(nw.OnlineLearner(prior=before, random_state=0), WHERE + SEEN)
    stream = nw.OnlineLearner(bounds=(1.0, 4.0), random_state=0)
    pairs = np.stack([X[KNOWN[:, 0]], X[KNOWN[:, 1]]], axis=1)
    inputs = given() | {"feedback": dense(pairs[4:6] + np.array([[0.25], [0.5]])), "apart": dense([1.0, 4.0])}
    asked = [*WHERE, *SEEN, "partial_fit feedback squared_distances=apart", *WHERE, *SEEN]
    yield "online-stream", (stream.partial_fit(pairs, ALIKE), inputs, asked)

    ends = ["status_", "n_iter_", "rank_"]
    for geometry in ("polar", "flat"):
        yield f"fixed-rank-{geometry}", learned(fixed(geometry=geometry), WHERE + APART + ends)
        own = regressor(geometry=geometry)
        yield f"regressor-{geometry}", learned(own, ["predict new", "get_matrix", *ends], y=GROWS)
    yield "fixed-rank-kernel", learned(of_rows(), WHERE + APART)
    yield "fixed-rank-online", learned(fixed(solver="online", epochs=2), WHERE + APART + ends)
    own = regressor(None, "affine_invariant")
    yield "regressor-full-rank", learned(own, ["predict new"], y=GROWS)
    own = regressor(kernel="rbf", kernel_params={"gamma": 0.25}, n_basis=4)
    yield "regressor-kernel", learned(own, ["predict new"], y=GROWS)
    own = regressor(solver="online", epochs=2)
    yield "regressor-online", learned(own, ["predict new", "n_seen_"], y=GROWS)
    apart, asked = np.square(X[:6, None] - X[:6]).sum(axis=2), ["embedding_", "distances squared=true"]
    own = nw.FixedRankEmbedding(max_iter=8, random_state=0)
    yield "embedding", (own.fit(apart), {}, [*asked, "sstress_", *ends[:2]])
    own = nw.FixedRankEmbedding(input="kernel", geometry="polar", max_iter=8, random_state=0)
    own.fit(X[:6] @ X[:6].T, constraints=c.closer([[0, 3, 1], [1, 4, 2]]))
    yield "embedding-kernel", (own, {}, [*asked, "margin_"])


def metrics() -> Iterator[tuple[str, Made]]:
    """What learners learn, saved by itself."""

    def alone(learner: Any, asked: list[str]) -> Made:
        return learner.fit(MORE, MORE_LABELS).metric_, given(rows=MORE[:2]), asked

    yield "of-metric", alone(metric(), MEASURES + MATRIX)
    yield "of-subspace", alone(metric(rank=2), MEASURES + MATRIX)
    yield "of-diagonal", alone(metric(structure="diagonal"), MEASURES + MATRIX)
    yield "of-kernel", alone(kernel(rank=4), MEASURES[:1])
    yield "of-auto", alone(nw.AutoLearner("linear+rbf", penalty=1.0, n_pairs=4, random_state=0), MEASURES)
    yield "of-reducer", alone(nw.KernelReducer(n_pairs=4, rank=4, random_state=0), MEASURES)
    yield "of-fixed-rank", alone(of_rows(), MEASURES)


def messy(n: int, shift: int = 0) -> dict[str, list[Any]]:
    """Columns with gaps, categories and truth values."""
    rows, kinds = numbers(n, 3, shift), ["round", "flat", "long"]
    return {
        "a": [None if i % 7 == 3 else value for i, value in enumerate(rows[:, 0].tolist())],
        "b": (rows[:, 1] + 4.0).tolist(),
        "c": (rows[:, 2] + np.arange(n) % 2).tolist(),
        "kind": [kinds[(i * i + shift) % 3] for i in range(n)],
        "rare": ["seldom" if i < 2 else "often" for i in range(n)],
        "yes": [float(i % 2) for i in range(n)],
    }


def pipelines() -> Iterator[tuple[str, Made]]:
    """Every step of scikit-learn that a file holds, before a learner."""
    encode = OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist", sparse_output=False)
    fill = make_pipeline(SimpleImputer(add_indicator=True), PowerTransformer(), PCA(2))
    columns = [
        ("numbers", fill, ["a", "b", "c"]),
        ("texts", encode, ["kind", "rare"]),
        ("order", OrdinalEncoder(dtype=np.float32), ["rare"]),
        ("as they are", "passthrough", ["yes"]),
    ]
    asked = ["transform new", "get_feature_names_out"]
    inputs = {"X": table(messy(N)), "new": table(messy(4, 2))}
    model = make_pipeline(ColumnTransformer(columns), StandardScaler(), metric())
    model.fit(stored.read(inputs)["X"], LABELS)
    yield "pipeline-columns", (model, {"new": inputs["new"]}, asked)
    scalers = (StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), Normalizer())
    chosen = {
        "scaler": (StandardScaler(), metric()),
        "scaler-kernel": (StandardScaler(), kernel()),
        "scaler-fixed-rank": (StandardScaler(), fixed()),
        "scalers": (make_union(*scalers, FunctionTransformer(feature_names_out="one-to-one")), metric()),
        "others": (QuantileTransformer(n_quantiles=6), VarianceThreshold(), TruncatedSVD(2), metric()),
    }
    for name, steps in chosen.items():
        yield f"pipeline-{name}", (make_pipeline(*steps).fit(X, LABELS), {"new": dense(NEW)}, asked)


# class, settings, and the iteration after which the fit was stopped
CHECKPOINTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "metric": ("MetricLearner", {"penalty": 4.0}, 3),
    "metric-chosen-penalty": ("MetricLearner", {}, 20),
    "metric-diagonal": ("MetricLearner", {"structure": "diagonal", "penalty": 4.0}, 2),
    "metric-rank": ("MetricLearner", {"rank": 2, "basis": [[1, 0], [0, 1], [0, 0]], "penalty": 4.0}, 2),
    "auto": ("AutoLearner", {}, 20),
    "kernel": ("KernelLearner", {"kernel": "precomputed", "penalty": 4.0}, 2),
    "fixed-rank": (
        "FixedRankLearner",
        {"solver": "armijo", "rank": 1, "start": [[1.0], [0.5], [0.0]], "check": False},
        20,
    ),
}


def write_models() -> Iterator[str]:
    """The models that have no file yet."""
    for make in (learners, kernel_learners, other_learners, metrics, pipelines):
        for name, (model, inputs, asked) in make():
            path = stored.FILES / "models" / f"{name}.safetensors"
            if not path.exists():
                nw.save(model, path.with_suffix(".tmp"))
                found = stored.answers(nw.load(path.with_suffix(".tmp")), stored.read(inputs), asked)
                kind = type(model).__name__
                _record(path, {"class": kind, "inputs": inputs, "asked": asked, "answers": found})
                path.with_suffix(".tmp").rename(path)
                yield path.name


def write_checkpoints() -> Iterator[str]:
    """The checkpoints that have no file yet."""
    K = np.diag(1.0 + np.arange(24) ** 2 / 16)  # no two distances from an object are equal
    for name, (kind, settings, stop) in CHECKPOINTS.items():
        path = stored.FILES / "checkpoints" / f"{name}.checkpoint"
        if path.exists():
            continue
        rows, own = K if "kernel" in settings else MORE, {"tol": 1e-9, "n_pairs": 20} | settings
        make, left = partial(getattr(nw, kind), **own, random_state=0), iter(range(stop - 1, -1, -1))
        make(checkpoint=path, callback=lambda _, left=left: next(left, 0) == 0).fit(rows, MORE_LABELS)
        assert path.exists(), f"{name} ended before iteration {stop}"
        whole = make(checkpoint=path.with_suffix(".tmp")).fit(rows, MORE_LABELS)
        inputs = {"X": dense(rows), "y": dense(MORE_LABELS), "new": dense(rows[:3])}
        asked = ["distances new squared=true", "status_"]
        found = stored.answers(whole, stored.read(inputs), asked)
        record = {"class": kind, "settings": own, "inputs": inputs, "asked": asked, "answers": found}
        _record(path, record)
        yield path.name


def write_command() -> Iterator[str]:
    """The model that `nearwise learn` makes of a table, and what `nearwise apply` writes."""
    path = stored.FILES / "command" / "objects.safetensors"
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    columns = {"name": [f"n{i}" for i in range(N)], **messy(N), "label": [f"l{k}" for k in LABELS]}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    (path.parent / "objects.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    options = ["--labels", "label", "--id", "name", "--missing", "impute", "--categorical", "onehot"]
    with chdir(path.parent), tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.csv"
        assert main(["learn", "objects.csv", *options, "-o", path.name, "--quiet"]) == 0
        assert main(["apply", path.name, "objects.csv", "--id", "name", "-o", str(out), "--quiet"]) == 0
        found = [line.split(",") for line in out.read_text(encoding="utf-8").splitlines()]
    _record(path, {"columns": found[0], "values": [list(map(float, row[1:])) for row in found[1:]]})
    yield path.name


def _record(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"version": nw.__version__, **content}, separators=(",", ":"))
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def classes() -> set[str]:
    """The names of all classes in the stored model files."""

    def of(tree: Any) -> Iterator[str]:
        if isinstance(tree, dict):
            yield from (tree[key] for key in ("object", "enum") if isinstance(tree.get(key), str))
        for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            yield from of(part)

    found: set[str] = set()
    for path in stored.FILES.glob("*/*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            found |= set(of(json.loads(file.metadata()["model"])))
    return found


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for write in (write_models, write_checkpoints, write_command):
            for written in write():
                print(f"written: {written}", flush=True)
    missing = sorted(models._CLASSES.keys() - classes())
    print(f"in no file: {', '.join(missing) or 'none'}")
