"""MBS11 10.1.2, figure 4: the influence of lambda on test error and time in the polar geometry.

lambda (`subspace_weight`) weighs the learning of the subspace against that of the metric in it. At 0 the
subspace stays, at 1 everything else; between them it changes the way, not the end. The descent is Armijo's,
as in the paper.
"""

from __future__ import annotations

import warnings
from collections import defaultdict

from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from experiments import _data as toy
from experiments._outcome import Curve, Outcome, Panel, Progress, Row, Sample, followed, timed

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-6)
_LONGEST = 3_000  # steps


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Recover random targets of rank 5 in ten dimensions for every lambda and tolerance."""
    n, d, rank = (200, 5, 2) if quick else (1000, 10, 5)
    tolerances = (TOLERANCES[0], TOLERANCES[-1]) if quick else TOLERANCES
    weights = WEIGHTS[::2] if quick else WEIGHTS
    inner = weights[1:-1]  # where both the subspace and the metric in it are learned
    found: dict[tuple[float, float], Sample] = defaultdict(Sample)
    problems = range(seed, seed + (2 if quick else 10))
    work = [(problem, tol, weight) for problem in problems for tol in tolerances for weight in weights]
    for problem, tol, weight in followed(work, "problems, tolerances and lambdas", progress):
        X, y = toy.random_problem(n, d, rank, problem)
        half = n // 2
        model = nw.FixedRankRegressor(
            rank, subspace_weight=weight, solver="armijo", tol=tol, max_iter=_LONGEST
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the rows show what comes of the limit
            _, seconds = timed(model.fit, X[:half], y[:half])
        found[tol, weight].add(toy.error(model, X[half:], y[half:]), seconds)
    rows = [
        found[tol, weight].row(f"test error, tolerance {tol:g}, lambda {weight:g}")
        for tol in tolerances
        for weight in weights
    ]
    for tol in tolerances:
        errors = [found[tol, weight].mean for weight in inner]
        setting = f"largest / least test error over lambda {inner[0]:g} to {inner[-1]:g}, tolerance {tol:g}"
        rows.append(Row(setting, None, max(errors) / min(errors)))
    panels = []
    for measure, figure in (("mean test error", "mean"), ("mean seconds", "mean_seconds")):
        figures = {tol: [getattr(found[tol, weight], figure) for weight in weights] for tol in tolerances}
        curves = [Curve(f"tolerance {tol:g}", weights, values) for tol, values in figures.items()]
        panels.append(Panel(measure, "lambda", measure, curves, log_y=True))
    return Outcome(
        "toy-lambda",
        f"MBS11 10.1.2: random targets of rank {rank} in {d} dimensions, {n // 2} samples to learn from",
        rows,
        panels,
        (
            "At lambda 0 the subspace of the start is kept and at 1 the metric in it: neither can reach the "
            "target, as 7.1 of the paper says, at any tolerance.",
        ),
    )
