"""A stressed correlation matrix, repaired: what it does to the risk of a portfolio.

    python examples/portfolio_correlation.py

A risk officer asks what happens if two blocks of assets that used to be independent become highly correlated,
and types the new numbers into the matrix. It is then no correlation matrix any more: some portfolios have a
negative variance. The nearest one that is, with the officer's numbers kept, answers the question.
"""

import numpy as np

import nearwise as nw


def main() -> None:
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(20, 3)) * [1.0, 0.6, 0.4]
    history = factors @ rng.normal(size=(3, 500)) + 0.3 * rng.normal(size=(20, 500))
    stressed = np.corrcoef(history)
    kept = np.zeros((20, 20), bool)
    for i in range(3):
        for j in range(17, 20):
            stressed[i, j] = stressed[j, i] = 0.8
            kept[i, j] = kept[j, i] = True

    values, vectors = np.linalg.eigh(stressed)
    worst = vectors[:, 0]
    print(f"stressed: smallest eigenvalue {values[0]:.3f}, so one portfolio has the variance {values[0]:.3f}")
    for name, fixed in {"nearest": None, "nearest, stress kept": kept}.items():
        found = nw.nearest_correlation(stressed, fixed=fixed)
        change = np.abs(found.matrix - stressed).max()
        print(
            f"{name}: {found.status.name}, largest change {change:.3f}, "
            f"that portfolio's variance {worst @ found.matrix @ worst:.3f}, stress {found.matrix[0, 19]:.3f}"
        )
    definite = nw.nearest_correlation(stressed, fixed=kept, min_eigenvalue=1e-6)
    scenarios = np.linalg.cholesky(definite.matrix) @ rng.normal(size=(20, 100_000))
    drawn = np.corrcoef(scenarios)[0, 19]
    print(f"100,000 scenarios: correlation {drawn:.2f} where {definite.matrix[0, 19]:.2f} was asked for")
    model = nw.nearest_correlation(stressed, rank=3)
    print(
        f"three factors: {model.status.name}, loadings {model.factor.shape}, gap {model.certificate.gap:.1%}"
    )


if __name__ == "__main__":
    main()
