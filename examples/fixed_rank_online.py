"""Online beside batch: MBS11 10.1.3, figure 5.

80,000 samples of (28) with a target of rank 10 in 50 dimensions, 20,000 for the test. Online descent with
mini-batches of 32 lowers the test error sooner than gradient descent on all samples in the flat geometry,
whose steps are cheapest; conjugate gradients, our default for batches, are shown beside them, and win.

    python examples/fixed_rank_online.py [--samples 80000] [--figure online.png]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw

RUNS: dict[str, dict[str, Any]] = {
    "batch, Armijo": {"solver": "armijo", "max_iter": 60},
    "batch, conjugate gradients": {"solver": "auto"},
    "online, p = 1": {"solver": "online", "batch_size": 1, "epochs": 1},
    "online, p = 32": {"solver": "online", "batch_size": 32, "epochs": 5},
}
Trace = list[tuple[float, float]]


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, G = rng.standard_normal((n, 50)), rng.standard_normal((50, 10))
    return X, np.square(X @ G).sum(axis=1) * (1 + 0.1 * rng.standard_normal(n))


def trace(
    geometry: str, options: dict[str, Any], fit: Callable[[Any], Any], error: Callable[[Any], float]
) -> Trace:
    """Seconds of learning and the test error after it, for more and more iterations or epochs.

    Each point is a run of its own from the same start and seed, so that no test slows the learning down.
    """
    found: Trace = []
    name = "epochs" if options["solver"] == "online" else "max_iter"
    longest = options.get(name, 30)
    for count in sorted({1, 2, 3, 5, 10, 20, 40, longest}):
        if count > longest:
            break
        model = fit(nw.FixedRankRegressor(10, geometry, random_state=0, **(options | {name: count})))
        found.append((model.result_.history[-1].seconds, error(model)))
        if model.n_iter_ < count:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=80_000, help="for learning; a quarter as many test")
    parser.add_argument("--figure", metavar="FILE", help="draw the test error over time; needs matplotlib")
    arguments = parser.parse_args()
    n = arguments.samples
    X, y = data(n + n // 4)

    def fit(model: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X[:n], y[:n])

    def error(model: Any) -> float:
        return float(np.mean((model.predict(X[n:]) - y[n:]) ** 2) / 2)

    found: dict[str, Trace] = {}
    for geometry in ("flat", "polar"):
        for name, options in RUNS.items():
            label = f"{geometry}, {name}"
            found[label] = trace(geometry, options, fit, error)
            points = "  ".join(f"{seconds:.2f} s: {value:.4g}" for seconds, value in found[label])
            print(f"{label:34} {points}", flush=True)
    if arguments.figure:
        draw(found, arguments.figure)


def draw(found: dict[str, Trace], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for label, points in found.items():
        geometry, _, name = label.partition(", ")
        axes[int(geometry == "polar")].loglog(*zip(*points, strict=True), marker=".", label=name)
    for axis, geometry in zip(axes, ("flat", "polar"), strict=True):
        axis.set_title(geometry)
        axis.set_xlabel("seconds")
        axis.legend()
    axes[0].set_ylabel("test error")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
