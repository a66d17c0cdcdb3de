"""Model files: what is saved comes back bit by bit, and what cannot be saved is refused by its place."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline, make_union
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
from sklearn.svm import SVC

import nearwise as nw
from nearwise._common.files import to_bytes
from nearwise.data import models
from nearwise.data._storable import SKLEARN
from tampering import parts, rewritten

X, y = load_iris(return_X_y=True)
X_new = X[::7] + 0.1

MODELS = {
    "default": nw.MetricLearner(random_state=0),
    "covariance": nw.MetricLearner(prior="covariance", penalty=0.5, random_state=0),
    "given prior": nw.MetricLearner(prior=np.diag([1.0, 2.0, 3.0, 4.0]), penalty=1.0),
    "subspace": nw.MetricLearner(rank=2, divergence=nw.VonNeumann(), penalty=1.0, random_state=3),
    "kernel": nw.KernelLearner(penalty=1.0, random_state=0),
    "reduced kernel": nw.KernelLearner(kernel="poly", degree=2, rank=9, penalty=1.0, random_state=0),
    "auto": nw.AutoLearner(penalty=1.0, random_state=0),
    "reducer": nw.KernelReducer(n_components=3, random_state=0),
    "clusters": nw.KernelLearner(basis="kmeans", rank=5, penalty=1.0, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_transforms_as_the_saved_one_bit_by_bit(name: str, tmp_path: Path) -> None:
    saved = clone(MODELS[name]).fit(X, y)
    nw.save(saved, tmp_path / "model.safetensors")
    loaded = nw.load(tmp_path / "model.safetensors")
    assert type(loaded) is type(saved)
    assert repr(loaded) == repr(saved)
    for method in ("transform", "distances"):
        np.testing.assert_array_equal(getattr(loaded, method)(X_new), getattr(saved, method)(X_new))
    assert loaded.score(X_new, y[::7]) == saved.score(X_new, y[::7])
    assert loaded.get_feature_names_out().tolist() == saved.get_feature_names_out().tolist()
    for attribute in ("status_", "n_iter_", "penalty_", "penalty_scores_", "n_constraints_used_", "rank_"):
        assert getattr(loaded, attribute) == getattr(saved, attribute), attribute
    assert loaded.result_.certificate == saved.result_.certificate
    assert loaded.result_.history == saved.result_.history
    assert repr(loaded.result_) == repr(saved.result_)
    np.testing.assert_array_equal(loaded.result_.dual, saved.result_.dual)
    np.testing.assert_allclose(loaded.result_.matrix, saved.result_.matrix, rtol=1e-12, atol=1e-12)
    assert len(loaded.result_.features) == 0


@pytest.mark.parametrize(
    "model",
    [
        *MODELS.values(),
        nw.KernelLearner(kernel="linear", penalty=1.0, random_state=0),
        nw.KernelReducer(kernel="laplacian", random_state=0),
        nw.FixedRankLearner(kernel="rbf", random_state=0, check=False),
        nw.OnlineLearner(random_state=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("layout", ["C", "F", "sparse"])
def test_the_same_bits_on_the_very_data_of_the_fit(model: object, layout: str, tmp_path: Path) -> None:
    """Of data and themselves scikit-learn computes distances in another way than of data and a copy."""
    if layout == "sparse" and not model._accept_sparse:
        layout = "C"
    rows = sparse.csr_array(X) if layout == "sparse" else np.array(X, order=layout)
    saved = clone(model).fit(rows, y)
    nw.save(saved, tmp_path / "model")
    for loaded in (nw.load(tmp_path / "model"), pickle.loads(pickle.dumps(saved))):
        np.testing.assert_array_equal(loaded.transform(rows), saved.transform(rows))
        np.testing.assert_array_equal(loaded.distances(rows), saved.distances(rows))
        assert loaded.score(rows, y) == saved.score(rows, y)
        if isinstance(model, nw.KernelLearner):
            np.testing.assert_array_equal(loaded.learned_kernel(rows), saved.learned_kernel(rows))


def test_changing_the_data_after_a_fit_changes_no_kernel(tmp_path: Path) -> None:
    for model in (nw.KernelLearner(penalty=1.0, random_state=0), nw.KernelReducer(random_state=0)):
        rows = X.copy()
        fitted = clone(model).fit(rows, y)
        before = fitted.transform(X_new)
        rows[:] = 0.0
        np.testing.assert_array_equal(fitted.transform(X_new), before)


def test_a_precomputed_kernel_comes_back(tmp_path: Path) -> None:
    K = X @ X.T
    saved = nw.KernelLearner(kernel="precomputed", penalty=1.0).fit(K, y)
    nw.save(saved, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.learned_kernel(K[:9]), saved.learned_kernel(K[:9]))
    assert loaded.get_params()["kernel"] == "precomputed"


def test_sparse_training_data_and_feature_names_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = sparse.random_array((40, 300), density=0.1, rng=0, format="csr")
    saved = nw.KernelLearner(kernel="cosine", penalty=1.0, random_state=0).fit(rows, np.arange(40) % 2)
    nw.save(saved, tmp_path / "model")
    np.testing.assert_array_equal(nw.load(tmp_path / "model").transform(rows), saved.transform(rows))

    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    named = nw.MetricLearner(penalty=1.0, random_state=0).fit(frame, y).set_output(transform="pandas")
    nw.save(named, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    pandas.testing.assert_frame_equal(loaded.transform(frame), named.transform(frame))


def test_a_metric_and_an_estimator_that_is_not_fitted_can_be_saved(tmp_path: Path) -> None:
    metric = nw.MetricLearner(penalty=1.0, rank=3, random_state=0).fit(X, y).metric_
    nw.save(metric, tmp_path / "metric")
    np.testing.assert_array_equal(nw.load(tmp_path / "metric").matrix, metric.matrix)
    nw.save(nw.MetricLearner(penalty=math.inf), tmp_path / "plain")
    loaded = nw.load(tmp_path / "plain")
    assert loaded.penalty == math.inf
    with pytest.raises(NotFittedError):
        loaded.transform(X)


def test_the_training_data_are_not_in_a_file_of_a_metric_learner(tmp_path: Path) -> None:
    nw.save(nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y), tmp_path / "model")
    assert all(tensor.shape[0] != len(X) for tensor in load_file(tmp_path / "model").values())


def test_every_estimator_can_be_saved() -> None:
    names = {name for name in nw.__all__ if hasattr(getattr(nw, name), "fit")}
    assert names
    assert names <= set(models._CLASSES)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        (nw.MetricLearner(random_state=np.random.RandomState(0)), "MetricLearner.random_state"),
        (nw.KernelLearner(kernel=lambda a, b: float(a @ b)), "KernelLearner.kernel"),
        (nw.KernelLearner(kernel_params={"f": print}), r"KernelLearner.kernel_params.f"),
        (
            nw.MetricLearner(prior=np.zeros((2, 2), dtype=complex)),
            "MetricLearner.prior is an array of complex",
        ),
    ],
)
def test_what_a_file_cannot_hold_is_refused_by_its_place(model: object, place: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=place):
        nw.save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("learner", [MODELS["default"], MODELS["reduced kernel"]])
def test_a_pipeline_that_scales_comes_back(learner: object, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    saved = Pipeline([("scale", StandardScaler()), ("learn", clone(learner))]).fit(frame, y)
    nw.save(saved, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    assert repr(loaded) == repr(saved)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(loaded.transform(frame), saved.transform(frame))
    assert loaded.score(frame, y) == saved.score(frame, y)
    with pytest.raises(TypeError, match=r"Pipeline\.steps\[1\]\[1\] is SVC\(\)"):
        nw.save(Pipeline([("scale", StandardScaler()), ("svm", SVC())]), tmp_path / "other")


def messy_table() -> Any:
    """A DataFrame with gaps, categories and truth values."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = np.where(rng.random(len(X)) < 0.3, "x", np.where(y == 1, "y", "z"))
    frame["rare"] = np.where(np.arange(len(X)) < 3, "seldom", "often")
    frame["yes"] = rng.random(len(X)) < 0.5
    frame.loc[::9, "a"] = np.nan
    frame.loc[::17, "kind"] = None
    return frame


def steps() -> dict[str, Any]:
    """Every step of scikit-learn that a file holds, in some pipeline."""
    numbers = ["a", "b", "c", "d"]
    fill = SimpleImputer(add_indicator=True)
    encode = OneHotEncoder(min_frequency=5, handle_unknown="infrequent_if_exist", sparse_output=False)
    texts = make_pipeline(SimpleImputer(strategy="most_frequent", missing_values=None), encode)
    columns = [
        ("numbers", make_pipeline(fill, PowerTransformer(), PCA(3)), numbers),
        ("texts", texts, make_column_selector(pattern="kind|rare")),
        ("order", OrdinalEncoder(dtype=np.float32), ["rare"]),
        ("as they are", "passthrough", ["yes"]),
        ("left out", "drop", ["d"]),
    ]
    scalers = (StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler(), Normalizer())
    chosen = [("numbers", SimpleImputer(), slice(0, 4))]
    return {
        "columns": ColumnTransformer(columns),
        "scalers": make_pipeline(ColumnTransformer(chosen), make_union(*scalers)),
        "others": make_pipeline(
            ColumnTransformer(chosen),
            QuantileTransformer(n_quantiles=20),
            VarianceThreshold(),
            TruncatedSVD(3, random_state=0),
        ),
    }


@pytest.mark.parametrize("name", steps())
def test_steps_of_scikit_learn_come_back(name: str, tmp_path: Path) -> None:
    frame, path = messy_table(), tmp_path / "model.safetensors"
    frame["kind"] = frame["kind"].astype(object).where(frame["kind"].notna(), None)
    learner = nw.MetricLearner(penalty=1.0, random_state=0)
    saved = make_pipeline(steps()[name], StandardScaler(), learner).fit(frame, y)
    nw.save(saved, path)
    loaded = nw.load(path)
    assert repr(loaded[1:]) == repr(saved[1:])
    assert np.array_equal(loaded.transform(frame), saved.transform(frame))
    turned = frame[frame.columns[::-1]] if name == "columns" else frame
    assert np.array_equal(loaded.transform(turned), saved.transform(frame))
    before = [model[:-1].get_feature_names_out().tolist() for model in (loaded, saved)]
    assert before[0] == before[1]


def test_every_class_of_scikit_learn_is_in_some_pipeline() -> None:
    frame, found = messy_table(), set()
    frame["kind"] = frame["kind"].astype(object).where(frame["kind"].notna(), None)

    def collect(value: Any) -> None:
        if hasattr(value, "get_params"):
            found.add(type(value).__name__)
            for item in vars(value).values():
                collect(item)
        elif isinstance(value, list | tuple):
            for item in value:
                collect(item)

    for step in steps().values():
        collect(step.fit(frame))
    assert found == set(SKLEARN)


@pytest.mark.parametrize("key", ["fit", "__class__", "not_listed_"])
def test_a_file_sets_no_attribute_that_is_not_listed(key: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nw.save(make_pipeline(StandardScaler(), nw.MetricLearner(penalty=1.0)).fit(X, y), path)
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        header = file.metadata()
    tree = json.loads(header["model"])
    scaler = tree["state"]["steps"]["list"][0]["tuple"][1]
    scaler["state"][key] = 1
    path.write_bytes(to_bytes(tensors, {**header, "model": json.dumps(tree)}))
    with pytest.raises(models.ModelFileError, match="is not an attribute that a StandardScaler stores"):
        nw.load(path)


def test_a_function_in_a_step_is_refused_by_its_place(tmp_path: Path) -> None:
    model = make_pipeline(FunctionTransformer(np.log1p), nw.MetricLearner(penalty=1.0)).fit(X, y)
    with pytest.raises(TypeError, match=r"Pipeline\.steps\[0\]\[1\]\.func is .*cannot hold"):
        nw.save(model, tmp_path / "model.safetensors")


@pytest.mark.long
def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    # safetensors' own header has another order in every process, and at every call
    script = "import sys, numpy as np, nearwise as nw; nw.save(nw.Metric(np.eye(3)), sys.argv[1])"
    paths = [tmp_path / f"model{k}" for k in range(4)]
    subprocess.run([sys.executable, "-c", script, str(paths[0])], check=True)
    for path in paths[1:]:
        nw.save(nw.Metric(np.eye(3)), path)
    assert len({path.read_bytes() for path in paths}) == 1


def test_only_models_of_nearwise_are_saved(tmp_path: Path) -> None:
    class MetricLearner(nw.MetricLearner):
        pass

    for stranger in ([1, 2], MetricLearner(), {"a": 1}):
        with pytest.raises(TypeError, match="cannot save a"):
            nw.save(stranger, tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        nw.save(nw.MetricLearner(), tmp_path / "missing" / "model")


def test_a_callback_is_left_behind(tmp_path: Path) -> None:
    nw.save(nw.MetricLearner(callback=print), tmp_path / "model")
    assert nw.load(tmp_path / "model").callback is None


@pytest.mark.parametrize("basis", ["subset", "kmeans"])
def test_a_file_of_before_whole_distances_says_that_it_lacks_them(basis: str, tmp_path: Path) -> None:
    path, K = tmp_path / "model", X @ X.T
    saved = nw.KernelLearner("precomputed", basis=basis, rank=2, penalty=1.0, random_state=0).fit(K, y)
    nw.save(saved.metric_, path)
    tree = json.loads(parts(path.read_bytes())[0]["__metadata__"]["model"])
    del tree["state"]["span"]
    rewritten(path, model=json.dumps(tree))
    with pytest.warns(UserWarning, match="older nearwise.*fit the model again"):
        nw.load(path)
