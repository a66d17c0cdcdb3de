"""JKDD12 6.2, figure 2(a, b): text in bases of rising size: 10 nearest neighbours beside Euclidean and LSA.

The learned metric is the identity plus a matrix of low rank in a basis made of the classes (JKDD12 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split

import nearwise as nw
from benchmarks.baselines.peers import fitted
from experiments import _data
from experiments._outcome import Curve, Outcome, Panel, Progress, Row, followed, timed
from nearwise._common.types import Array, Labels

TERMS, NEIGHBORS = 5_000, 10
SIZES = {"classic3": (3, 30, 100, 200), "newsgroups20": (20, 100, 200)}
TESTED = 2_500  # documents at most; all are searched
_BLOCK = 500  # documents whose distances to all others are held at a time


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Accuracy for every size of the basis."""
    rows: list[Row] = []
    panels: list[Panel] = []
    remarks: tuple[str, ...] = ()
    sizes = {"classic3": SIZES["classic3"][:1]} if quick else SIZES
    found: dict[tuple[str, str], list[float]] = {}
    work = [(name, k) for name in sizes for k in sizes[name]]
    for name, k in followed(work, "sets and sizes", progress):
        if (name, "Euclidean") not in found:
            X, y, X_test, y_test, said = _documents(name, quick, seed)
            remarks += said
            plain = _accuracy(partial(euclidean_distances, Y=X, squared=True), y, X_test, y_test)
            found[name, "Euclidean"] = [plain]
            rows.append(Row(f"accuracy, {name}, Euclidean", None, plain))
        for method, learn in (("LogDet", _learned), ("LSA", _lsa)):
            distances, seconds = timed(learn, X, y, k, seed)
            accuracy = _accuracy(distances, y, X_test, y_test)
            found.setdefault((name, method), []).append(accuracy)
            rows.append(Row(f"accuracy, {name}, {method}, {k} dimensions", None, accuracy, seconds=seconds))
    for name, shown in sizes.items():
        level = found[name, "Euclidean"] * len(shown)
        curves = [Curve(method, shown, found[name, method]) for method in ("LogDet", "LSA")]
        panels.append(Panel(name, "dimensions", "accuracy", [*curves, Curve("Euclidean", shown, level)]))
    return Outcome(
        "text",
        "JKDD12 6.2: text, 10 nearest neighbours against the size of the basis",
        rows,
        panels,
        (
            *remarks,
            "The paper's figures have no numbers: its method is about Euclidean in small bases and well "
            "above it in large ones.",
            f"The {TERMS:,} terms in most documents, tf-idf, without stop words, as in the paper, but not "
            "stemmed. Newsgroups are split by date; of the tests, 2,500 are drawn.",
        ),
    )


def _documents(name: str, quick: bool, seed: int) -> tuple[Any, Labels, Any, Labels, tuple[str, ...]]:
    data, said = _data.load(name, quick, "digits")
    y = np.concatenate([data.y, data.y_test]) if data.y_test is not None else np.asarray(data.y)
    kept = np.arange(len(y))
    if quick:
        kept, _ = train_test_split(kept, train_size=600, stratify=y, random_state=seed)
    y = y[kept]
    if said:  # pixels as terms
        counts = sparse.csr_array(np.asarray(data.X)[kept])
    else:
        texts = [*data.X, *(data.X_test or ())]
        terms = CountVectorizer(stop_words="english").fit_transform([texts[row] for row in kept])
        often = np.argsort(-np.asarray((terms > 0).sum(axis=0)).ravel(), kind="stable")[:TERMS]
        counts = sparse.csr_array(terms[:, np.sort(often)])
    rows = np.arange(len(y))
    if quick or data.y_test is None:
        train, test = train_test_split(rows, test_size=0.5, stratify=y, random_state=seed)
    else:
        train, test = rows[: -len(data.y_test)], rows[-len(data.y_test) :]
    test = np.sort(np.random.RandomState(seed).permutation(test)[:TESTED])
    weights = TfidfTransformer().fit(counts[train])
    X, X_test = (sparse.csr_array(weights.transform(counts[part])) for part in (train, test))
    return X, y[train], X_test, y[test], said


def _learned(X: Any, y: Labels, k: int, seed: int) -> Callable[[Any], Array]:
    learner = fitted(nw.MetricLearner(rank=k, random_state=seed), X, y)
    return lambda part: np.asarray(learner.metric_.squared_distances(part, X))


def _lsa(X: Any, y: Labels, k: int, seed: int) -> Callable[[Any], Array]:
    svd = TruncatedSVD(k, random_state=seed).fit(X)
    low = svd.transform(X)
    return lambda part: np.asarray(euclidean_distances(svd.transform(part), low, squared=True))


def _accuracy(distances: Callable[[Any], Array], y: Labels, X_test: Any, y_test: Labels) -> float:
    """Of the majority among the nearest; ties go to the class that comes first."""
    right = 0
    for low in range(0, X_test.shape[0], _BLOCK):
        D = distances(X_test[low : low + _BLOCK])
        near = y[np.argpartition(D, NEIGHBORS, axis=1)[:, :NEIGHBORS]]
        votes = np.stack([(near == label).sum(axis=1) for label in range(int(y.max()) + 1)])
        right += int(np.sum(votes.argmax(axis=0) == y_test[low : low + _BLOCK]))
    return right / X_test.shape[0]
