"""KSD09 7.2, figure 5, and JKDD12 6.1, figure 1(a): nearest neighbours on UCI sets beside other learners."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable

import numpy as np

import nearwise as nw
from nearwise._common.types import Array, Labels
from nearwise.benchmarks.baselines import Unavailable
from nearwise.benchmarks.baselines.mcml import mcml
from nearwise.benchmarks.baselines.peers import itml, lmnn
from nearwise.reproduction import _halves as metrics
from nearwise.reproduction._outcome import Curve, Outcome, Panel, Progress, Sample, followed, timed

Learner = Callable[[Array, Labels, int], metrics.Map]

SETS = ("wine", "ionosphere", "balance_scale", "iris", "soybean_large")
REPEATS = 5
SLOW: dict[str, Learner] = {"LMNN": lmnn, "ITML": itml}  # metric-learn's: seconds to minutes a fit
NEIGHBORS = {"KSD09": 4, "JKDD12": 10}


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Two-fold error of 4 and of 10 nearest neighbours."""
    sets = SETS[-2:-1] if quick else SETS
    methods = _methods(quick)
    missing: dict[str, str] = {}
    found: dict[tuple[str, str, str], Sample] = defaultdict(Sample)
    work = [
        (s, name, repeat)
        for s in sets
        for name in methods
        for repeat in range(1 if quick or name in SLOW else REPEATS)
    ]
    for set_name, name, repeat in followed(work, "sets and methods", progress):
        if name in missing:
            continue
        X, y = metrics.load(set_name)
        for A, a, B, b in metrics.halves(X, y, seed + repeat):
            try:
                learned, seconds = timed(methods[name], A, a, seed + repeat)
            except Unavailable as error:
                missing[name] = str(error)
                break
            for paper, k in NEIGHBORS.items():
                found[paper, set_name, name].add(metrics.error(learned, A, a, B, b, k), seconds)
    rows = [
        found[paper, set_name, name].row(f"{paper}, {k}-NN error, {set_name}, {name}")
        for paper, k in NEIGHBORS.items()
        for set_name in sets
        for name in methods
        if name not in missing
    ]
    panels = [
        Panel(
            f"{paper}: error of {k} nearest neighbours",
            "data set: " + ", ".join(f"{i} {s}" for i, s in enumerate(sets)),
            "error",
            [
                Curve(name, range(len(sets)), [found[paper, s, name].mean for s in sets])
                for name in methods
                if name not in missing
            ],
        )
        for paper, k in NEIGHBORS.items()
    ]
    remarks = [
        "The quick form leaves LMNN and ITML out."
        if quick
        else f"Two folds are drawn {REPEATS} times, and once for metric-learn's LMNN and ITML.",
        "Both papers show these errors as bars without numbers. Columns are scaled to unit variance here; "
        "KSD09 and JKDD12 do not say whether theirs are.",
        "Penalties are chosen by two-fold cross-validation on the half that is learned from, among "
        + ", ".join(f"{penalty:g}" for penalty in metrics.PENALTIES)
        + ".",
        *(f"{name} is left out: {reason}." for name, reason in missing.items()),
    ]
    return Outcome("uci", "KSD09 7.2 and JKDD12 6.1: nearest neighbours on UCI sets", rows, panels, remarks)


def _methods(quick: bool) -> dict[str, Learner]:
    penalties = (1.0,) if quick else metrics.PENALTIES
    return {
        "Euclidean": lambda X, y, seed: lambda rows: rows,
        "inverse covariance": _inverse_covariance,
        "LogDet": metrics.bregman(nw.LogDet(), penalties),
        "von Neumann": metrics.bregman(nw.VonNeumann(), penalties),
        "LogDet online": _online,
        "LogDet, Gaussian kernel": _gaussian,
        "MetricLearner(), default": _default,
        "MCML": mcml,
        **({} if quick else SLOW),
    }


def _inverse_covariance(X: Array, y: Labels, seed: int) -> metrics.Map:
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False))
    kept = values > 1e-10 * values.max()
    whitening = vectors[:, kept] / np.sqrt(values[kept])
    return lambda rows: rows @ whitening


def _online(X: Array, y: Labels, seed: int) -> metrics.Map:
    return nw.OnlineLearner("logdet", random_state=seed).fit(X, y).transform


def _gaussian(X: Array, y: Labels, seed: int) -> metrics.Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        return nw.KernelLearner(kernel="rbf", random_state=seed).fit(X, y).transform


def _default(X: Array, y: Labels, seed: int) -> metrics.Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nw.PriorKeptWarning)
        return nw.MetricLearner(random_state=seed).fit(X, y).transform
