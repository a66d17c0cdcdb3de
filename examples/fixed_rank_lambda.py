"""The influence of lambda on the polar geometry: MBS11 10.1.2, figure 4.

lambda (`subspace_weight`) weighs the learning of the subspace against that of the metric in it. Between 0 and
1 it changes the way, not the end: the tighter the tolerance, the less the test error depends on it. At 0 the
subspace stays, at 1 everything else. The descent is Armijo's, as in the paper.

    python examples/fixed_rank_lambda.py [--figure lambda.png]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
TOLERANCES = (1e-2, 1e-3, 1e-5)


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """1000 samples of (28) with a target of rank 5 in ten dimensions."""
    rng = np.random.default_rng(seed)
    X, G = rng.standard_normal((1000, 10)), rng.standard_normal((10, 5))
    return X, np.square(X @ G).sum(axis=1) * (1 + 0.1 * rng.standard_normal(1000))


def measured(weight: float, tol: float, problems: int) -> tuple[float, float]:
    """Mean test error and mean seconds over random problems, half of each for learning."""
    errors, seconds = [], []
    for seed in range(problems):
        X, y = data(seed)
        model = nw.FixedRankRegressor(5, subspace_weight=weight, solver="armijo", tol=tol, max_iter=500)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X[:500], y[:500])
        seconds.append(time.perf_counter() - began)
        errors.append(np.mean((model.predict(X[500:]) - y[500:]) ** 2) / 2)
    return float(np.mean(errors)), float(np.mean(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", type=int, default=10, help="random problems per point")
    parser.add_argument("--figure", metavar="FILE", help="draw errors and times; needs matplotlib")
    arguments = parser.parse_args()
    found = {tol: [measured(weight, tol, arguments.problems) for weight in WEIGHTS] for tol in TOLERANCES}
    for k, title in enumerate(("mean test error", "mean seconds")):
        print(f"\n{title:20}" + "".join(f"{f'lambda {weight:g}':>12}" for weight in WEIGHTS))
        for tol, row in found.items():
            print(f"{f'tol {tol:g}':20}" + "".join(f"{cells[k]:12.4g}" for cells in row))
    if arguments.figure:
        draw(found, arguments.figure)


def draw(found: dict[float, list[tuple[float, float]]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4))
    for tol, row in found.items():
        for axis, values in zip(axes, zip(*row, strict=True), strict=True):
            axis.semilogy(WEIGHTS, values, marker="o", label=f"tol {tol:g}")
    for axis, title in zip(axes, ("mean test error", "mean seconds"), strict=True):
        axis.set_xlabel("lambda")
        axis.set_title(title)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
