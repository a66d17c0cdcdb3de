"""Learners with default settings beside those of scikit-learn and metric-learn: errors, maps, text, time.

`errors` is the error of 5 nearest neighbours on ten data sets, stratified two-fold, features standardised in
each training fold; methods with their defaults, which choose by what they hold out of the training fold. Sets
of more than 2,000 rows are stratified samples (seed 0), sets of more than 1,000 have one seed; isolet is
reduced to 100 principal components of the standardised training fold. `maps` is the accuracy of 5 nearest
neighbours in 2 and 3 dimensions, beside scikit-learn's NCA from each of its starts. `banking` is search in
text embeddings: precision among the 10 nearest test questions about another product. `text` is the accuracy
of 10 nearest neighbours in 20 Newsgroups, under metrics that are the identity plus a low rank. `time` is the
time of a fit and of choosing the penalty. Besides the options below: --sets and --methods (names separated by
commas), --seeds (a number), --patience (processor seconds for one method on one set, after which its
remaining folds are left out and the table says so), --keep (a file that keeps what `errors` has measured,
from which the same command goes on).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from benchmarks import _tables
from benchmarks._neighbor_errors import BASELINE, LINEAR, OURS, data_sets, tables
from benchmarks._tables import Row, Table, Target, in_turns, size, timed
from benchmarks.baselines import Unavailable
from benchmarks.baselines.peers import METHODS, fitted
from nearwise._common.types import Array, Labels

TARGETS = {
    "above NCA, in standard errors": Target(-1.0, at_least=True),
    "precision": Target(0.80, at_least=True),
    "seconds": Target(5.0),
    "ITML / ours": Target(20.0, at_least=True),
    "auto / one penalty": Target(4.0),
}


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how often."""

    sets: tuple[str, ...] = size(
        (
            "iris",
            "wine",
            "ionosphere",
            "balance_scale",
            "soybean_large",
            "pendigits",
            "spambase",
            "usps",
            "isolet",
            "digits",
        ),
        ("iris", "wine"),
    )
    methods: tuple[str, ...] = size(tuple(METHODS), (OURS, BASELINE, "LDA"))
    seeds: int = size(5, 1)
    patience: float = 120.0
    keep: str | None = None
    pairs: int = size(3000, 300)
    ranks: tuple[int, ...] = size((20, 100, 200), (20,))
    documents: int | None = size(None, 1000)  # of the training set, and as many of the test set; None for all
    time_rows: int = size(2000, 120)
    repeats: int = size(3, 1)


QUICK = _tables.quick_sizes(Sizes)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks learners", add_help=False)
    parser.add_argument("--sets", type=_names)
    parser.add_argument("--methods", type=_names)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--patience", type=float)
    parser.add_argument("--keep")
    own, rest = parser.parse_known_args(argv)
    for method in own.methods or ():
        if method not in METHODS:
            parser.error(f"--methods: {method!r} is not one of {', '.join(METHODS)}")
    chosen = {name: value for name, value in vars(own).items() if value is not None}
    full, quick = replace(Sizes(), **chosen), replace(QUICK, **chosen)
    texts = {k: ",".join(value) if isinstance(value, tuple) else value for k, value in chosen.items()}
    options = "".join(f" --{name} {text}" for name, text in texts.items())
    return _tables.run(rest, "learners", __doc__ or "", SECTIONS, full, quick, options)


def errors(sizes: Sizes) -> Iterator[Table]:
    """The error of 5-NN under every method, and the processor seconds of a fit."""
    kept = None if sizes.keep is None else Path(sizes.keep)
    yield from tables(sizes.sets, sizes.methods, sizes.seeds, sizes.patience, kept)


def maps(sizes: Sizes) -> Iterator[Table]:
    """Accuracy of 5-NN after a linear map to few dimensions, and how it differs from NCA's best start."""
    from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

    note = "both folds of every seed as in `errors`; differences are means over folds, with standard errors"
    table = Table("accuracy of 5 nearest neighbours in few dimensions, in percent", [note])
    for name, folds in data_sets(sizes.sets, sizes.seeds, table):
        for rank in (2, 3):
            learners: dict[str, Any] = {
                "MetricLearner": nw.MetricLearner(rank=rank, random_state=0),
                "NeighborLearner": nw.NeighborLearner(rank, random_state=0),
            }
            for start in ("pca", "lda", "identity", "random"):
                learners[f"NCA, {start}"] = NeighborhoodComponentsAnalysis(
                    rank, init=start, max_iter=300, random_state=0
                )
            found: dict[str, Array] = {}
            for kind, learner in learners.items():
                if kind == "NCA, lda" and rank >= len(np.unique(folds[0].y)):
                    continue  # which has fewer directions
                shares = []
                for X, y, X_test, y_test, _ in folds:
                    fitted(learner, X, y)
                    near = KNeighborsClassifier(5).fit(learner.transform(X), y)
                    shares.append(100.0 * near.score(learner.transform(X_test), y_test))
                found[kind] = np.array(shares)
            best = max(
                (kind for kind in found if kind.startswith("NCA")), key=lambda kind: found[kind].mean()
            )
            row: Row = {"set": name, "rank": rank, "best start": best}
            row |= {kind: float(shares.mean()) for kind, shares in found.items()}
            gain = np.round(found["MetricLearner"] - found[best], 9)
            error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
            many = float(gain.mean()) / error if error > 0 else float(np.sign(gain.mean()))
            row |= {"above NCA": float(gain.mean()), "standard errors": many}
            table.rows.append(row | TARGETS["above NCA, in standard errors"].judged(many))
    yield table


def banking(sizes: Sizes) -> Iterator[Table]:
    """Near means the same problem, in any product: learned from random labelled pairs of questions.

    The training questions that have a problem are the objects; `constraints.from_labels` draws the pairs from
    their problems, half of them similar. Of the test questions that have a problem, each is compared with
    those of the other products; precision is the share of its own problem among the 10 nearest.
    """
    data = nw.datasets.load("banking77_minilm")
    known, asked = data.extra["problem"] != "", data.extra["problem_test"] != ""
    X, test = data.X[known].astype(np.float64), data.X_test[asked].astype(np.float64)
    problem, product = data.extra["problem_test"][asked], data.extra["product_test"][asked]
    table = Table(
        "precision among the 10 nearest test questions about another product",
        [
            f"{sizes.pairs:,} random pairs of {len(X):,} training questions; {len(test):,} test questions; "
            "MetricLearner() on the embeddings as they are; seconds are those of fit"
        ],
    )
    table.rows.append({"metric": "cosine", "precision": _precision(test, problem, product)})
    labels = data.extra["problem"][known]
    for seed in range(sizes.seeds):
        side = nw.constraints.from_labels(labels, n_pairs=sizes.pairs, random_state=seed)
        took, learner = timed(partial(nw.MetricLearner(random_state=seed).fit, X, constraints=side))
        found = _precision(learner.transform(test), problem, product)
        row: Row = {"metric": f"learned, seed {seed}", "precision": found}
        row |= TARGETS["precision"].judged(found) | {"seconds": took}
        table.rows.append(row | TARGETS["seconds"].judged(took))
    yield table


def text(sizes: Sizes) -> Iterator[Table]:
    """20 Newsgroups by date, JKDD12 6.2: MetricLearner's defaults but for the rank, learned from labels.

    Weights are tf-idf of the 5,000 most frequent words that are no stop words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import euclidean_distances

    data = nw.datasets.load("newsgroups20")
    rng = np.random.default_rng(0)
    kept, asked = (rng.permutation(len(part))[: sizes.documents] for part in (data.X, data.X_test))
    words = TfidfVectorizer(stop_words="english", max_features=5000)
    X = words.fit_transform([data.X[k] for k in kept])
    test = words.transform([data.X_test[k] for k in asked])
    y, y_test = np.asarray(data.y)[kept], np.asarray(data.y_test)[asked]
    table = Table(
        "accuracy of 10-NN in 20 Newsgroups",
        [f"{len(y):,} training and {len(y_test):,} test documents; distances are whole; seconds are of fit"],
    )
    euclidean = _accuracy(euclidean_distances(test, X, squared=True), y, y_test)
    table.rows.append({"metric": "Euclidean", "accuracy": euclidean})
    target = Target(round(euclidean, 4), at_least=True)
    for rank in sizes.ranks:
        took, learner = timed(partial(fitted, nw.MetricLearner(rank=rank, random_state=0), X, y))
        found = _accuracy(learner.distances(test, X, squared=True), y, y_test)
        row: Row = {"metric": f"rank {rank}", "accuracy": found}
        table.rows.append(row | target.judged(found) | {"seconds": took})
    yield table


def duration(sizes: Sizes) -> Iterator[Table]:
    """A default fit on scikit-learn's digits beside ITML's."""
    digits = nw.datasets.load("digits")
    X, y = digits.X[: sizes.time_rows], np.asarray(digits.y)[: sizes.time_rows]
    [(ours, _)] = in_turns([partial(METHODS[LINEAR], X, y, 0)], sizes.repeats)
    table = Table(
        "seconds of a fit on scikit-learn's digits, default settings",
        [f"{len(X):,} x {X.shape[1]}; the least of {sizes.repeats}, ITML once"],
    )
    table.rows.append({"fit": "MetricLearner()", "seconds": ours})
    try:
        peer, _ = timed(partial(METHODS["ITML"], X, y, 0))
        row: Row = {"fit": "ITML_Supervised()", "seconds": peer, "ratio": peer / ours}
        table.rows.append(row | TARGETS["ITML / ours"].judged(peer / ours))
    except Unavailable as error:
        table.notes.append(f"ITML: left out: {error}")
    yield table


def choice(sizes: Sizes) -> Iterator[Table]:
    """What `penalty="auto"` costs: a fit with it beside one with the penalty that it chose."""
    note = f"both folds of {sizes.seeds} seeds, each the least of {sizes.repeats}"
    table = Table('seconds of a fit with penalty="auto" and with the penalty it chose', [note])
    for name, folds in data_sets(sizes.sets, sizes.seeds, table):
        seconds = []
        for X, y, *_ in folds:
            work = partial(fitted, nw.MetricLearner(random_state=0), X, y)
            [(auto, learner)] = in_turns([work], sizes.repeats)
            # where the prior was kept, there is no such penalty: the smallest that was tried, the cheapest
            penalty = learner.penalty_ or learner.penalty_scores_[1][0]
            work = partial(fitted, nw.MetricLearner(penalty=penalty, random_state=0), X, y)
            [(one, _)] = in_turns([work], sizes.repeats)
            seconds.append((auto, one))
        autos, ones = np.array(seconds).T
        ratio = float(np.mean(autos / ones))
        row: Row = {"set": name, "auto": autos.mean(), "one penalty": ones.mean(), "mean ratio": ratio}
        row |= TARGETS["auto / one penalty"].judged(ratio)
        table.rows.append(row | {"largest": float(np.max(autos / ones))})
    yield table


def _precision(rows: Array, problem: NDArray[Any], product: NDArray[Any]) -> float:
    squares = np.einsum("ij,ij->i", rows, rows)
    distances = squares[:, None] + squares - 2.0 * rows @ rows.T
    distances[product[:, None] == product] = np.inf
    near = np.argsort(distances, axis=1)[:, :10]
    return float(np.mean(problem[near] == problem[:, None]))


def _accuracy(distances: Array, y: Labels, y_test: Labels) -> float:
    near = np.argpartition(distances, 9, axis=1)[:, :10]
    votes = np.zeros((len(near), int(y.max()) + 1))
    np.add.at(votes, (np.arange(len(near))[:, None], y[near]), 1.0)
    return float(np.mean(votes.argmax(axis=1) == y_test))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


SECTIONS = _tables.alone(errors, maps, banking, text) | {"time": (duration, choice)}
