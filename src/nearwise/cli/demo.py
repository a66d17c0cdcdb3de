"""`nearwise demo`: learn a distance for scikit-learn's digits, show before and after, write a report."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nearwise as nw
from nearwise._writing import write_whole
from nearwise.cli._common import DONE, NOT_CONVERGED, add_options, check_output, program, refusing_bad_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearwise.report import Report


@dataclass(frozen=True, eq=False)
class Trial:
    """What the demo learned and how much nearer it brought what belongs together."""

    result: nw.Result
    seconds: float
    n_constraints: int
    penalty: float
    n_test: int
    error: tuple[float, float]
    order: tuple[float, float]
    distances: tuple[tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="the report (default %(default)s)"
    )
    add_options(parser, "seed", "force", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Learn, write the report, and print the figures."""
    from rich.console import Console

    from nearwise import report

    output: Path = arguments.output
    check_output(output, arguments.force, report.is_report)
    talk = not (arguments.quiet or arguments.json)
    progress = Console(stderr=True, quiet=not talk, markup=False)
    with progress.status("learning a distance for handwritten digits") as line:
        trial = _learn_digits(
            arguments.seed,
            lambda r: line.update(f"iteration {r.iteration}   gap {r.gap:.1e}   {r.seconds:.1f} s"),
        )
    with refusing_bad_input():
        write_whole(output, report.render(_demo_report(trial, arguments.seed)).encode())
    if arguments.json:
        print(json.dumps(_demo_figures(trial, output), indent=2, allow_nan=False))
    elif talk:
        _print_demo(trial, output)
    return DONE if trial.result.status in (nw.Status.SOLVED, nw.Status.STATIONARY) else NOT_CONVERGED


def _learn_digits(seed: int, callback: Callable[[nw.Record], object]) -> Trial:
    """Learn from pairs of labels on one half of scikit-learn's digits, measure on the other half."""
    import numpy as np
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

    data = nw.datasets.load("digits")
    X, X_test, y, y_test = train_test_split(data.X, data.y, test_size=0.5, stratify=data.y, random_state=seed)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)

    side = nw.constraints.from_labels(y, X=X, draw="local", random_state=seed)
    # The total penalty in units of the free entries of the matrix: how far the pairs may move it. A half was
    # best, and local pairs better than random ones, where half of the training half was held out.
    free_entries = X.shape[1] * (X.shape[1] + 1) / 2
    problem = nw.Problem(X, side, divergence=nw.LogDet(), penalty=0.5 * free_entries / len(side))
    start = time.perf_counter()
    result = nw.solve(problem, callback=callback)
    seconds = time.perf_counter() - start

    pairs = np.random.default_rng(seed).integers(len(y_test), size=(2, 40_000))
    pairs = pairs[:, pairs[0] != pairs[1]]
    similar = y_test[pairs[0]] == y_test[pairs[1]]
    errors, orders, distances = [], [], []
    for factor in (np.eye(X.shape[1]), result.factor):
        classifier = KNeighborsClassifier(5).fit(X @ factor, y)
        errors.append(1 - float(classifier.score(X_test @ factor, y_test)))
        moved = X_test @ factor
        squared = ((moved[pairs[0]] - moved[pairs[1]]) ** 2).sum(axis=1)
        orders.append(float(roc_auc_score(similar, -squared)))
        distances.append((squared[similar], squared[~similar]))
    return Trial(
        result=result,
        seconds=seconds,
        n_constraints=len(side),
        penalty=float(problem.penalties[0]),
        n_test=len(y_test),
        error=(errors[0], errors[1]),
        order=(orders[0], orders[1]),
        distances=(distances[0], distances[1]),
    )


def _scores(trial: Trial) -> list[tuple[str, str, str]]:
    rows = {"5-NN error on the test half": trial.error, "similar pair nearer than dissimilar": trial.order}
    return [(name, f"{before:.1%}", f"{after:.1%}") for name, (before, after) in rows.items()]


def _solution(result: nw.Result, seconds: float) -> str:
    gap = result.certificate.gap
    return f"{result.status.name}: relative gap {gap:.1e} after {result.n_iter} iterations in {seconds:.2f} s"


def _demo_report(trial: Trial, seed: int) -> Report:
    from nearwise.report import Report

    before, after = trial.error
    return Report(
        title="A distance for handwritten digits",
        summary=f"From {trial.n_constraints} pairs of equal or unequal labels, nearwise learned a distance "
        f"under which 5 nearest neighbours err on {after:.1%} of {trial.n_test} test images; with the "
        f"standardised pixels as they are, on {before:.1%}. {_solution(trial.result, trial.seconds)}.",
        scores=_scores(trial),
        history=trial.result.history,
        distances=dict(zip(("before", "after"), trial.distances, strict=True)),
        worst=trial.result.certificate.worst,
        settings={
            "command": f"nearwise demo --seed {seed}",
            "data": "digits of scikit-learn, standardised, half for training",
            "divergence": "LogDet",
            "constraints": f"{trial.n_constraints} pairs by row number of the training half",
            "penalty": f"{trial.penalty:.4g}",
            "solver": trial.result.solver,
        },
    )


def _demo_figures(trial: Trial, output: Path) -> dict[str, object]:
    result = trial.result
    gap = result.certificate.gap
    return {
        "error_before": trial.error[0],
        "error_after": trial.error[1],
        "order_before": trial.order[0],
        "order_after": trial.order[1],
        "status": result.status.name,
        "gap": gap if math.isfinite(gap) else None,
        "iterations": result.n_iter,
        "seconds": trial.seconds,
        "constraints": trial.n_constraints,
        "penalty": trial.penalty,
        "worst": [{"name": v.name, "value": v.value, "bound": v.bound} for v in result.certificate.worst],
        "report": str(output),
    }


def _print_demo(trial: Trial, output: Path) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"digits: learned from {trial.n_constraints} pairs, measured on {trial.n_test} other images"
    )
    scores = Table("", "before", "after", box=SIMPLE)
    for row in _scores(trial):
        scores.add_row(*row)
    console.print(scores)
    console.print(_solution(trial.result, trial.seconds))
    if trial.result.certificate.worst:
        worst = Table("soft constraints violated most", "value", "off by", box=SIMPLE)
        for violation in trial.result.certificate.worst[:3]:
            worst.add_row(violation.name, f"{violation.value:.3g}", f"{violation.relative:.0%}")
        console.print(worst)
    console.print(f"report: {output}")
    console.print(f"next:   {program()} bench")
