"""Named problems: some with an answer that a formula or a separate computation gives, all with a known prior.

`KNOWN` holds the former, `GRID` every kind of constraint under every kind of prior and penalty. A case knows
for which divergences it makes sense; conditions of optimality hold for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import expm, qr
from scipy.optimize import minimize

import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints

Array = NDArray[np.float64]

DIVERGENCES = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())
PENALTIES = (1e-2, 1.0, 100.0, math.inf)


class ThreeHalves(nw.SpectralDivergence):
    """A user's divergence, phi(x) = x^1.5: finite for every pair."""

    degree = 1.5

    def scalar(self, x, y):
        a, b = np.sqrt(x), np.sqrt(y)
        return (a - b) ** 2 * (a + b / 2)

    def gradient(self, x):
        return 1.5 * np.sqrt(x)

    def gradient_inverse(self, t):
        return (np.maximum(t, 0) / 1.5) ** 2

    def curvature(self, x):
        return 0.75 / np.sqrt(x)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem for any of the divergences.

    Attributes
    ----------
    answer : M for a divergence, where it is known
    kernel : K0 for `Problem.from_kernel`, which then takes the place of features and prior
    accuracy : how well `answer` is known, relative to its largest entry
    """

    name: str
    constraints: Constraints
    features: Array | None = None
    prior: Array | None = None
    penalty: float | Array = math.inf
    kernel: Array | None = None
    divergences: tuple[nw.Divergence, ...] = DIVERGENCES
    answer: Callable[[nw.Divergence], Array] | None = None
    accuracy: float = 1e-5

    def problem(self, divergence: nw.Divergence) -> nw.Problem:
        if self.kernel is not None:
            return nw.Problem.from_kernel(self.kernel, self.constraints, divergence, self.penalty)
        return nw.Problem(self.features, self.constraints, divergence, self.prior, self.penalty)

    def prior_of(self, problem: nw.Problem) -> Array | None:
        """The prior in the coordinates of the problem's features."""
        if self.kernel is None:
            return self.prior
        V = problem.features  # orthonormal columns
        return V.T @ self.kernel @ V


def positive_definite(rng: np.random.Generator, r: int, rank: int | None = None) -> Array:
    """A random positive semidefinite matrix with eigenvalues of about 1."""
    rank = r if rank is None else rank
    Q = qr(rng.normal(size=(r, r)))[0][:, :rank]
    return (Q * rng.uniform(0.4, 2.0, rank)) @ Q.T


# --- answers in closed form ------------------------------------------------------------------------------


def rank_one_answer(divergence: nw.Divergence, z: Array, b: float, penalty: float) -> Array:
    """The matrix nearest to I with z^T M z = b; soft: KSD09 (23) for one row, on the violated side."""
    p, gamma, name = float(z @ z), penalty, type(divergence).__name__
    if name == "LogDet":
        alpha = (1 / p - 1 / b) * (1.0 if math.isinf(gamma) else gamma / (gamma + 1))  # KSD09 6.2.1
        return np.linalg.inv(np.eye(len(z)) - alpha * np.outer(z, z))
    if name == "VonNeumann":
        # log tr(exp(alpha A) A) + alpha / gamma - log b = 0 with tr(exp(alpha z z^T) z z^T) = p exp(alpha p)
        alpha = math.log(b / p) / (p + (0.0 if math.isinf(gamma) else 1 / gamma))
        return expm(alpha * np.outer(z, z))
    # M = I + t z z^T: minimise t^2 p^2 + gamma (p + t p^2 - b)^2
    t = (b - p) / p**2 if math.isinf(gamma) else gamma * (b - p) / (1 + gamma * p**2)
    return np.eye(len(z)) + t * np.outer(z, z)


def _single_cases() -> Iterator[Case]:
    z = np.array([0.9, -0.4, 0.5])
    G = np.array([np.zeros(3), z])
    p = float(z @ z)
    rows = {
        "<=": c.at_most([(0, 1)], 0.3 * p),
        ">=": c.at_least([(0, 1)], 2.5 * p),
        "==": c.equal([(0, 1)], 0.6 * p),
    }
    for relation, side in rows.items():
        for gamma in PENALTIES:
            b = float(side.bounds[0])
            yield Case(
                f"single {relation} penalty {gamma:g}",
                side,
                G,
                penalty=gamma,
                answer=lambda D, b=b, gamma=gamma: rank_one_answer(D, z, b, gamma),
            )


def _disjoint_case(gamma: float) -> Case:
    """Orthogonal differences: each pair is a problem of its own, KSD09 3.4 with commuting projections."""
    rng = np.random.default_rng(5)
    Z = qr(rng.normal(size=(6, 6)))[0][:4] * np.array([0.7, 1.3, 2.0, 0.5])[:, None]
    p = np.sum(Z**2, axis=1)
    bounds = p * np.array([0.4, 2.0, 0.7, 3.0])
    G = np.zeros((8, 6))
    G[1::2] = Z
    side = (
        c.at_most([(0, 1)], bounds[0])
        + c.at_least([(2, 3)], bounds[1])
        + c.equal([(4, 5)], bounds[2])
        + c.at_most([(6, 7)], bounds[3])  # inactive
    )

    def answer(divergence: nw.Divergence) -> Array:
        parts = [rank_one_answer(divergence, Z[k], bounds[k], gamma) for k in range(3)]
        return np.eye(6) + sum(part - np.eye(6) for part in parts)

    return Case(f"disjoint orthogonal pairs penalty {gamma:g}", side, G, penalty=gamma, answer=answer)


def _inactive_cases() -> Iterator[Case]:
    rng = np.random.default_rng(6)
    G = rng.normal(size=(6, 4))
    pairs = [(0, 1), (2, 3), (4, 5), (0, 5)]
    for name, prior in {"identity": None, "full": positive_definite(rng, 4)}.items():
        M0 = np.eye(4) if prior is None else prior
        d = np.array([(G[i] - G[j]) @ M0 @ (G[i] - G[j]) for i, j in pairs])
        inactive = c.at_most(pairs[:2], 1.5 * d[:2]) + c.at_least(pairs[2:], 0.5 * d[2:])
        for gamma in (1.0, math.inf):
            yield Case(
                f"no active row, {name} prior, penalty {gamma:g}",
                inactive,
                G,
                prior,
                gamma,
                answer=lambda _, M0=M0: M0,
                accuracy=1e-14,
            )
        yield Case(
            f"no rows, {name} prior", Constraints(), G, prior, answer=lambda _, M0=M0: M0, accuracy=1e-14
        )
    deficient = positive_definite(rng, 4, rank=2)
    yield Case(
        "no rows, rank-deficient prior",
        Constraints(),
        G,
        deficient,
        answer=lambda _: deficient,
        accuracy=1e-14,
    )


# --- the examples of the papers --------------------------------------------------------------------------

KSD09_24_ROWS = np.array([[0.0912, 0.9385, -0.4377], [0.6020, 0.6020, -0.4377], [1.0, 1.0, 1.0]])
KSD09_24_BOUNDS = np.array([0.0238, 0.2554, 1.0])
KSD09_24_START = np.array([0.1, 0.1, 0.8])


def ksd09_24_optimum() -> Array:
    """The constrained optimum of KSD09 (24) with the coefficients as printed, by a general solver."""
    x0, rows, bounds = KSD09_24_START, KSD09_24_ROWS, KSD09_24_BOUNDS
    found = minimize(
        lambda x: float(np.sum(x * np.log(x / x0) - x + x0)),
        np.full(3, 1 / 3),
        jac=lambda x: np.log(x / x0),
        bounds=[(1e-6, 1.0)] * 3,
        constraints=[
            {"type": "ineq", "fun": lambda x: rows[:2] @ x - bounds[:2], "jac": lambda x: rows[:2]},
            {"type": "eq", "fun": lambda x: rows[2:] @ x - bounds[2:], "jac": lambda x: rows[2:]},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.x


def _paper_cases() -> Iterator[Case]:
    yield Case(
        "KSD09 appendix B, first example",
        c.at_least([(0, 1)], 1.0),  # X11 + X22 - 2 X12 >= 1
        np.eye(2),
        answer=lambda _: np.eye(2),
        accuracy=0.0,
    )
    rows, bounds = [np.diag(row) for row in KSD09_24_ROWS], KSD09_24_BOUNDS
    yield Case(
        "KSD09 (24)",
        c.linear(rows[:2], bounds[:2], ">=") + c.linear(rows[2], bounds[2], "=="),
        np.eye(3),
        np.diag(KSD09_24_START),
        divergences=(nw.VonNeumann(),),
        answer=lambda _: np.diag(ksd09_24_optimum()),
        accuracy=1e-6,
    )
    # The slope in M_11 is 2 (0.25 - 1) = -1.5, so y = 1.5 and M_22 would have to be 1 - 4 y / 2 < 0.
    yield Case(
        "edge of the cone",
        c.linear(np.diag([1.0, 4.0]), 0.25, "<="),
        np.eye(2),
        divergences=(nw.Frobenius(),),
        answer=lambda _: np.diag([0.25, 0.0]),
        accuracy=1e-6,
    )
    # Higham, Computing the nearest correlation matrix (2002), section 4: a singular answer, indefinite prior
    a, b = 0.760689917, 0.157298188
    yield Case(
        "nearest correlation matrix",
        c.similarity([(0, 0), (1, 1), (2, 2)], 1.0, "=="),
        kernel=np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]),
        divergences=(nw.Frobenius(),),
        answer=lambda _: np.array([[1.0, a, b], [a, 1.0, a], [b, a, 1.0]]),
        accuracy=1e-5,
    )


# --- every kind of constraint, prior and penalty -----------------------------------------------------------


def _pairs(rng: np.random.Generator, n: int, m: int) -> list[tuple[int, int]]:
    every = [(i, j) for i in range(n) for j in range(i)]
    return [every[k] for k in rng.permutation(len(every))[:m]]


def _distance(K: Array, i: int, j: int) -> float:
    return float(K[i, i] + K[j, j] - 2 * K[i, j])


def _distances(relation: str, m: int = 6) -> Callable[[np.random.Generator, Array], Constraints]:
    def build(rng: np.random.Generator, K: Array) -> Constraints:
        pairs = _pairs(rng, len(K), m)
        d = np.array([_distance(K, i, j) for i, j in pairs])
        if relation == "==":
            return c.equal(pairs, d)
        return c.at_most(pairs, 1.05 * d) if relation == "<=" else c.at_least(pairs, 0.95 * d)

    return build


def _similarities(relation: str) -> Callable[[np.random.Generator, Array], Constraints]:
    def build(rng: np.random.Generator, K: Array) -> Constraints:
        pairs = [*_pairs(rng, len(K), 4), (1, 1)]
        slack = {"<=": 0.02, ">=": -0.02, "==": 0.0}[relation]
        return c.similarity(pairs, [float(K[i, j]) + slack for i, j in pairs], relation)

    return build


def _comparisons(margin: float) -> Callable[[np.random.Generator, Array], Constraints]:
    def build(rng: np.random.Generator, K: Array) -> Constraints:
        rows = []
        for _ in range(8):
            i, j, k, m = rng.permutation(len(K))[:4].tolist()
            near, far = sorted([(i, j), (k, m)], key=lambda pair: _distance(K, *pair))
            if _distance(K, *near) + margin < _distance(K, *far):
                rows.append((*near, *far))
        triplets = [(0, i, j) for i, j in _pairs(rng, len(K), 6) if 0 not in (i, j)]
        ordered = [
            (a, p, n) if _distance(K, a, p) < _distance(K, a, n) else (a, n, p) for a, p, n in triplets
        ]
        kept = [(a, p, n) for a, p, n in ordered if _distance(K, a, p) + margin < _distance(K, a, n)]
        assert rows
        assert kept
        return c.closer(rows, margin) + c.closer(kept, margin)

    return build


def _linear(storage: str) -> Callable[[np.random.Generator, Array], Constraints]:
    def build(rng: np.random.Generator, K: Array) -> Constraints:
        n, side = len(K), Constraints()
        for relation, slack in (("<=", 0.05), (">=", -0.05), ("==", 0.0)):
            items, bounds = [], []
            for definite in (True, False):
                U = rng.normal(size=(n, 2)) / 2
                weights = np.array([1.0, 0.6 if definite else -0.8])
                if storage == "sparse":
                    U[rng.permutation(n)[3:]] = 0.0
                A = U @ np.diag(weights) @ U.T
                stored = {"dense": A, "sparse": sparse.csr_array(A), "low-rank": (U, weights)}[storage]
                items.append(stored)
                bounds.append(float(np.sum(A * K)) + slack)
            side = side + c.linear(items, bounds, relation)
        return side

    return build


def _mixed(rng: np.random.Generator, K: Array) -> Constraints:
    parts = [
        _distances("<=", 3),
        _distances(">=", 2),
        _distances("==", 1),
        _similarities("<="),
        _comparisons(0.05),
        _linear("low-rank"),
    ]
    side = Constraints()
    for part in parts:
        side = side + part(rng, K)
    return side


KINDS: dict[str, Callable[[np.random.Generator, Array], Constraints]] = {
    "distances <=": _distances("<="),
    "distances >=": _distances(">="),
    "distances ==": _distances("==", 4),
    "similarities <=": _similarities("<="),
    "similarities >=": _similarities(">="),
    "similarities ==": _similarities("=="),
    "comparisons margin 0": _comparisons(0.0),
    "comparisons margin 0.1": _comparisons(0.1),
    "linear dense": _linear("dense"),
    "linear sparse": _linear("sparse"),
    "linear low-rank": _linear("low-rank"),
    "all kinds": _mixed,
}


def _priors(rng: np.random.Generator, r: int) -> dict[str, Array | None]:
    return {
        "identity": None,
        "full": positive_definite(rng, r),
        "rank-deficient": positive_definite(rng, r, rank=r - 1),
    }


def _grid_cases() -> Iterator[Case]:
    """Bounds come from a matrix in the range of the prior, so every hard problem has a solution."""
    for number, (kind, build) in enumerate(KINDS.items()):
        # fewer and more features than the constraints can span
        for r, n, penalties in ((4, 7, PENALTIES), (11, 7, (1.0, math.inf))):
            rng = np.random.default_rng([number, r])
            G = rng.normal(size=(n, r)) / np.sqrt(r)
            for name, prior in _priors(rng, r).items():
                M0 = np.eye(r) if prior is None else prior
                witness = M0 @ positive_definite(rng, r) @ M0
                side = build(rng, G @ witness @ G.T)
                for gamma in penalties:
                    yield Case(f"{kind}, r = {r}, {name} prior, penalty {gamma:g}", side, G, prior, gamma)


def _far_prior_cases() -> Iterator[Case]:
    """The prior is a hundred times too large or too small for the bounds."""
    for kind in ("distances <=", "distances ==", "similarities ==", "linear dense", "all kinds"):
        for scale in (0.01, 100.0):
            rng = np.random.default_rng(0)
            G = rng.normal(size=(7, 4))
            side = KINDS[kind](rng, G @ positive_definite(rng, 4) @ G.T)
            prior = scale * np.diag([1.5, 0.5, 1.0, 2.0])
            for gamma in (1.0, math.inf):
                yield Case(f"far prior {scale:g}, {kind}, penalty {gamma:g}", side, G, prior, gamma)


def _partly_hard_cases() -> Iterator[Case]:
    """Hard rows that have a solution, beside soft rows that contradict them and each other."""
    for name in ("identity", "full", "rank-deficient"):
        rng = np.random.default_rng(17)
        G = rng.normal(size=(8, 5)) / 2
        prior = _priors(rng, 5)[name]
        M0 = np.eye(5) if prior is None else prior
        K = G @ M0 @ positive_definite(rng, 5) @ M0 @ G.T
        hard = _distances("<=", 3)(rng, K) + _similarities("==")(rng, K) + _comparisons(0.05)(rng, K)
        pairs = _pairs(rng, 8, 4)
        soft = c.at_most(pairs, 0.1) + c.at_least(pairs, 4.0) + c.closer([(0, 1, 2), (0, 2, 1)], margin=0.3)
        penalty = np.concatenate([np.full(len(hard), math.inf), rng.uniform(0.05, 20.0, len(soft))])
        yield Case(f"partly hard, {name} prior", hard + soft, G, prior, penalty)


def _kernel_cases() -> Iterator[Case]:
    for name, rank in (("full-rank", 6), ("rank-deficient", 3)):
        rng = np.random.default_rng(23)
        K0 = positive_definite(rng, 6, rank)
        side = _mixed(rng, K0 @ positive_definite(rng, 6) @ K0) if rank == 6 else None
        if side is None:
            K = K0 @ positive_definite(rng, 6) @ K0
            side = _distances("<=", 3)(rng, K) + _comparisons(0.0)(rng, K) + _similarities("<=")(rng, K)
        for gamma in PENALTIES:
            yield Case(f"{name} kernel, penalty {gamma:g}", side, kernel=K0, penalty=gamma)


def _trace_cases() -> Iterator[Case]:
    """Hard rows on matrices of fixed trace, whose features are orthonormal."""
    rng = np.random.default_rng(11)
    for r in (3, 5):
        root = rng.normal(size=(r, r))
        prior = root @ root.T + np.eye(r)
        prior /= np.trace(prior)
        pairs = np.array([(0, 1), (1, 2), (0, 2)])
        d = np.array([prior[i, i] + prior[j, j] - 2 * prior[i, j] for i, j in pairs])
        trace = c.linear(np.eye(r), 1.0, "==")
        sides = {
            "<=": c.at_most(pairs[:2], 0.7 * d[:2]),
            ">=": c.at_least(pairs[:1], 1.2 * d[:1]),
            "both": c.at_most(pairs[:1], 0.8 * d[:1]) + c.at_least(pairs[2:], 1.1 * d[2:]),
            "==": c.equal(pairs[1:2], 0.9 * d[1:2]),
            "idle": c.at_most(pairs, 2 * d),
        }
        for name, side in sides.items():
            yield Case(f"fixed trace, r = {r}, distances {name}", side + trace, np.eye(r), prior)


KNOWN = [
    *_paper_cases(),
    *_single_cases(),
    *(_disjoint_case(gamma) for gamma in PENALTIES),
    *_inactive_cases(),
]
TRACE = [*_trace_cases()]
GRID = [*_grid_cases(), *_far_prior_cases(), *_partly_hard_cases(), *_kernel_cases()]
