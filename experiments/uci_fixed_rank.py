"""MBS11 10.3, figure 8: full-rank metrics of five UCI sets beside ITML, LMNN, LEGO and POLA.

Five nearest neighbours, two folds, 40 c (c - 1) constraints for c classes; settings are chosen by two folds
of the training rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from benchmarks.baselines import Unavailable
from experiments import _metrics as metrics
from experiments._outcome import Curve, Outcome, Panel, Progress, Row, Sample, followed, timed
from nearwise._common.types import Array, Labels

SETS = ("wine", "ionosphere", "balance_scale", "iris", "soybean_large")
QUICK = ("wine", "iris")  # which come with scikit-learn
METHODS = {
    "Euclidean": metrics.Method(metrics.euclidean),
    "flat": metrics.fixed_rank("flat"),
    "polar": metrics.fixed_rank("polar"),
    "ITML": metrics.Method(metrics.logdet, metrics.GRID),
    "LEGO": metrics.Method(metrics.lego, metrics.GRID),
    "POLA": metrics.Method(metrics.pola, (0.01, 0.1, 1.0)),
    "LMNN": metrics.Method(metrics.lmnn),
}
OURS = ("flat", "polar")
PARTITIONS, QUICK_PARTITIONS = 10, 3  # one partition of a quick run is a matter of luck: one object is 0.6 %
FEWER = {"soybean_large": 5}  # 8,400 constraints
PARTITIONS_LMNN = 2  # metric-learn's takes seconds to minutes a fit


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Compare the learners on the same folds and constraints."""
    found: dict[tuple[str, str], Sample] = defaultdict(Sample)
    missing: dict[str, str] = {}
    sets = QUICK if quick else SETS
    methods = _few_settings() if quick else METHODS
    names = list(methods)
    work = [
        (data, seed + k, name)
        for data in sets
        for k in range(QUICK_PARTITIONS if quick else FEWER.get(data, PARTITIONS))
        for name in names
    ]
    for data, partition, name in followed(work, "sets, partitions and methods", progress):
        if name in missing or (name == "LMNN" and partition >= seed + PARTITIONS_LMNN):
            continue
        X, y = _standardised(data)
        classes = len(np.unique(y))
        wrong = taken = 0.0
        try:
            for train, test in metrics.two_folds(y, partition):
                learn = partial(methods[name], X[train], y[train], 40 * classes * (classes - 1), partition)
                learned, seconds = timed(learn)
                wrong += len(test) * metrics.error(learned, X[train], y[train], X[test], y[test])
                taken += seconds / 2
        except Unavailable as error:
            missing[name] = str(error)
            continue
        found[data, name].add(wrong / len(y), taken)
    rows = [sample.row(f"error, {data}, {name}") for (data, name), sample in found.items()]
    rows.append(_ahead(found, sets))
    remarks = [
        "The paper shows errors in a figure; printed is that its two algorithms have the least mean error on "
        "4 of 5 sets.",
        f"There are {PARTITIONS} partitions, as in the paper, and {FEWER['soybean_large']} of Soybean, which "
        "takes longest.",
        "Learned without a check on rows held out, as in the paper: FixedRankLearner's own default makes "
        f"one. The tolerance is {metrics.TOLERANCE:g}.",
        "ITML is nearwise's MetricLearner, which solves its problem exactly; seconds of ITML, LEGO and POLA "
        "include the choice of their setting.",
        f"POLA goes once over {metrics.STREAM:,} pairs drawn from the classes. LMNN, metric-learn's, is run "
        f"on the first {PARTITIONS_LMNN} partitions only.",
        "Where the fixed-rank metrics are behind, the likely reason is that nothing draws them to Euclidean "
        "distances, as a tuned penalty does ITML: few constraints are fitted closely.",
        "The paper's Soybean has 532 rows of 17 classes; these are the 562 rows without missing values, of "
        "15.",
    ]
    if quick:
        remarks.append("The quick form leaves LMNN out, and chooses among fewer settings.")
    remarks += [f"{name} is left out: {reason}." for name, reason in missing.items()]
    return Outcome(
        "uci-fixed-rank",
        "MBS11 10.3: 5-NN error of full-rank metrics",
        rows,
        [_panel(found, sets, names)],
        remarks,
    )


def _few_settings() -> dict[str, metrics.Method]:
    """The methods that are quick, with every other of their settings."""
    few = {name: method.settings[1::2] or method.settings for name, method in METHODS.items()}
    return {name: replace(method, settings=few[name]) for name, method in METHODS.items() if name != "LMNN"}


def _standardised(name: str) -> tuple[Array, Labels]:
    data = nw.datasets.load(name)
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    if name == "soybean_large":
        complete = data.extra["complete"]
        X, y = X[complete], y[complete]
    return StandardScaler().fit_transform(X), y


def _ahead(found: dict[tuple[str, str], Sample], sets: tuple[str, ...]) -> Row:
    """On how many sets one of the two fixed-rank algorithms errs least."""
    count = 0
    for data in sets:
        errors = {name: sample.mean for (other, name), sample in found.items() if other == data}
        count += min(errors[name] for name in OURS) <= min(errors.values())
    published = 4.0 if len(sets) == len(SETS) else None
    return Row("sets on which flat or polar has the least mean error", published, count)


def _panel(found: dict[tuple[str, str], Sample], sets: tuple[str, ...], names: list[str]) -> Panel:
    shown = [name for name in names if (sets[0], name) in found]
    curves = [Curve(name, list(sets), [found[data, name].mean for data in sets]) for name in shown]
    return Panel("full-rank metrics", "", "5-NN error", curves)
