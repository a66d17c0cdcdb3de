"""Learned maps in other programs: faiss, torch and ONNX, each where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw

X, y = load_iris(return_X_y=True)
LINEAR = [
    nw.MetricLearner(penalty=1.0, random_state=0),
    nw.MetricLearner(penalty=1.0, rank=2, random_state=0),
    nw.MetricLearner(penalty=1.0, rank=2, whole=True, random_state=0),
    nw.MetricLearner(penalty=1.0, structure="diagonal", random_state=0),
    nw.FixedRankLearner(2, random_state=0, check=False),
    nw.OnlineLearner(random_state=0),
]
NAMES = ["metric", "rank", "whole", "diagonal", "fixed-rank", "online"]


@pytest.mark.parametrize("learner", LINEAR, ids=NAMES)
def test_every_linear_learner_goes_before_an_index(learner: Any) -> None:
    faiss = pytest.importorskip("faiss", reason="needs faiss")
    learner.fit(X, y)
    index = learner.to_faiss(faiss.IndexFlatL2(2 if isinstance(learner, nw.FixedRankLearner) else 4))
    index.add(X.astype(np.float32))
    found, _ = index.search(X[:20].astype(np.float32), 5)
    expected = np.sort(learner.distances(X[:20], X, squared=True), axis=1)[:, :5]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "learner",
    [
        nw.KernelLearner("rbf", penalty=1.0, random_state=0),
        nw.KernelReducer(kernel="rbf", random_state=0),
        nw.FixedRankLearner(2, kernel="rbf", random_state=0, check=False),
    ],
    ids=["kernel", "reducer", "fixed-rank"],
)
def test_maps_that_are_not_linear_say_what_to_do(learner: Any) -> None:
    learner.fit(X, y)
    for export in (learner.to_faiss, learner.to_onnx):
        with pytest.raises(TypeError, match=r"not linear, .*transform\(X\) in the index"):
            export(object())
    with pytest.raises(TypeError, match="not linear"):
        learner.to_torch()


@pytest.mark.parametrize("learner", LINEAR, ids=NAMES)
def test_a_torch_layer(learner: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    layer = learner.fit(X, y).to_torch()
    with torch.no_grad():
        found = layer(torch.as_tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(found, learner.transform(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learner", LINEAR, ids=NAMES)
def test_an_onnx_file(learner: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from onnx.reference import ReferenceEvaluator

    path = tmp_path / "map.onnx"
    learner.fit(X, y).to_onnx(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    (found,) = ReferenceEvaluator(str(path)).run(None, {"X": X.astype(np.float32)})
    np.testing.assert_allclose(found, learner.transform(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "package"), [("to_torch", "torch"), ("to_onnx", "onnx")])
def test_without_the_package_it_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    learner = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        getattr(learner, name)(*(["map.onnx"] if package == "onnx" else []))
