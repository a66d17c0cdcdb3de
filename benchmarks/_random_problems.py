"""Random small problems, one per seed: every kind of row, prior, feature and penalty that a user may bring.

Moderate problems keep to ordinary scales. Wild ones have features, priors and bounds that are scaled by up to
1e100 and down to 1e-100; larger ones are of ordinary scales and several times as large. A singular prior is a
product of small whole numbers, so that its range is known exactly.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import nearwise as nw
from nearwise import constraints as c
from nearwise._common.types import Array
from nearwise.side import Constraints, Relation, relations

Rng = np.random.Generator

_FEATURES = ("normal", "integer", "one-hot", "collinear", "low-rank", "duplicates", "offset")
_PRIORS = ("none", "diagonal", "full", "deficient", "tiny", "graded")
_PENALTIES = ("one", "per row", "mixed", "extreme", "hard")
_KINDS = ("open", "distance", "comparison", "similarity", "linear")
_BOUNDS = ("near", "random", "far", "feasible")
_CONDITION = 11.9  # log10 of the largest condition of a prior, inside the rank tolerance of 1e-12
_CANCELS = 1e-6
_SMALLEST, _LARGEST = 1e-300, 1e300  # bounds outside are moved to these


@dataclass(frozen=True)
class Family:
    """Which problems are drawn: at most so large, from which stream, and what goes before their numbers."""

    name: str
    prefix: str
    stream: int
    order: int = 12
    objects: int = 20
    rows: int = 60
    is_wild: bool = False


MODERATE = Family("moderate", "", 0)
WILD = Family("wild", "w", 1, is_wild=True)
LARGER = Family("larger", "l", 2, order=40, objects=60, rows=400)
FAMILIES = (MODERATE, WILD, LARGER)


def named(label: str) -> tuple[Family, int]:
    """The family and number of a problem that is written as 17, w17 or l17; a ValueError for others."""
    for family in FAMILIES:
        number = label.removeprefix(family.prefix) if label.startswith(family.prefix) else ""
        if number.isdecimal():
            return family, int(number)
    raise ValueError(f"{label} is not the number of a problem, like 17, w17 or l17")


@dataclass(frozen=True, eq=False)
class Case:
    """A problem as a user states it.

    Attributes
    ----------
    name : what was drawn, for the reader
    features : (n, r), or None for the nearest kernel to `prior`
    prior : M0 (r x r), the kernel K0 (n x n), or None for the identity
    root : C with prior = C C^T exactly, where the prior is singular; else None
    widening : of the kernel's null space
    is_feasible : whether some definite matrix meets all hard rows with their bounds up to rounding
    """

    name: str
    features: Array | None
    constraints: Constraints
    divergence: Any
    prior: Array | None
    penalty: Array
    root: Array | None = None
    widening: float = 0.0
    is_feasible: bool = False

    def problem(self) -> nw.Problem:
        """The problem, or the ValueError that refuses it; rows that no matrix can meet count as refused."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", nw.LeftOutWarning)
            try:
                return self._stated()
            except nw.LeftOutWarning as warning:
                raise ValueError(str(warning)) from None

    def _stated(self) -> nw.Problem:
        if self.features is None:
            assert self.prior is not None
            return nw.Problem.from_kernel(
                self.prior, self.constraints, self.divergence, self.penalty, widening=self.widening
            )
        return nw.Problem(self.features, self.constraints, self.divergence, self.prior, self.penalty)


def draw(seed: int, number: int, family: Family = MODERATE) -> Case:
    """The problem of this number in the campaign of this seed."""
    rng = np.random.default_rng([seed, number, family.stream])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _drawn(rng, family)


def _drawn(rng: Rng, family: Family) -> Case:
    divergence = (nw.LogDet(), nw.VonNeumann(), nw.Frobenius())[int(rng.integers(3))]
    if rng.random() < 0.2:
        return _kernel_case(rng, divergence, family)
    r, n = int(rng.integers(1, family.order + 1)), int(rng.integers(2, family.objects + 1))
    kind = str(rng.choice(_FEATURES))
    G = _features(rng, kind, n, r) * _scale(rng, 100 if family.is_wild else 2)
    kinds = (*_PRIORS, "indefinite") if isinstance(divergence, nw.Frobenius) else _PRIORS
    prior_kind = str(rng.choice(kinds))
    prior, root = _prior(rng, prior_kind, r)
    if family.is_wild and prior is not None:
        power = float(4.0 ** rng.integers(-166, 167))  # about 1e100, exact
        prior, root = prior * power, None if root is None else root * np.sqrt(power)
    base = np.eye(r) if prior is None else prior
    return _case(rng, f"{kind} features, {prior_kind} prior", G, base, prior, root, divergence, family)


def _kernel_case(rng: Rng, divergence: Any, family: Family) -> Case:
    """The nearest kernel, with and without widening."""
    widened = bool(rng.random() < 0.4) and not isinstance(divergence, nw.Frobenius)
    square = widened or isinstance(divergence, nw.Frobenius)
    n = int(rng.integers(2, (family.order if square else family.objects) + 1))
    k = int(rng.integers(1, min(n, family.order) + 1))
    whole = _whole_root(rng, n, k)
    power = float(4.0 ** rng.integers(-166, 167)) if family.is_wild else float(4.0 ** rng.integers(-7, 4))
    root: Array | None = whole * np.sqrt(power)
    K0 = power * (whole @ whole.T)
    if isinstance(divergence, nw.Frobenius) and rng.random() < 0.5:
        K0, root = power * _whole_symmetric(rng, n), None
    widening = float(np.trace(K0) * 10.0 ** rng.uniform(-13, 0)) if widened and k < n else 0.0
    base = K0 if widening == 0 else K0 + widening * np.eye(n)
    name = "kernel, widened" if widening else "kernel"
    return _case(rng, name, None, base, K0, root, divergence, family, widening)


def _case(
    rng: Rng,
    name: str,
    G: Array | None,
    base: Array,
    prior: Array | None,
    root: Array | None,
    divergence: Any,
    family: Family,
    widening: float = 0.0,
) -> Case:
    """Rows, bounds and penalties for features and a prior whose positive part is what bounds refer to."""
    features, wild = np.eye(len(base)) if G is None else G, family.is_wild
    penalties, bounds = str(rng.choice(_PENALTIES, p=(0.2, 0.15, 0.2, 0.15, 0.3))), str(rng.choice(_BOUNDS))
    if penalties in ("mixed", "hard") and rng.random() < 0.35:
        bounds = "feasible"
    confined = root if widening == 0 and not isinstance(divergence, nw.Frobenius) else None
    if bounds == "feasible":
        target = _target(rng, base, confined)
    else:
        target = _positive_root(base) if confined is None else confined
    if bounds == "feasible" and rng.random() < 0.3:
        target *= 10.0 ** rng.uniform(-6 if wild else -2, 6 if wild else 2)
    m = int(rng.integers(1, family.rows + 1)) if rng.random() < 0.7 else int(rng.integers(1, 9))
    shift = _scale(rng, 100) if wild and bounds != "feasible" and rng.random() < 0.25 else 1.0
    decades = {"near": 0.05, "random": 0.7, "far": 12.0 if wild else 4.0}.get(bounds, 0.0)
    rows = _Rows(rng, features, target, bounds, decades, shift)
    side = Constraints()
    gamma = _penalties(rng, penalties, m)
    for row in range(m):
        side = side + rows.draw(bool(np.isinf(gamma[row])))
    if bounds != "feasible" and np.isinf(gamma).any() and rng.random() < 0.15:
        i, j = rows.pair()
        b = rows.positive(rows.distance(i, j))
        side = side + c.at_most([(i, j)], b) + c.at_least([(i, j)], min(2 * b, _LARGEST))
        gamma = np.append(gamma, [np.inf, np.inf])
    return Case(
        f"{name}, {m} rows, bounds {bounds}, penalties {penalties}, {divergence!r}",
        G,
        side,
        divergence,
        prior,
        gamma[0] if np.all(gamma == gamma[0]) else gamma,
        root,
        widening,
        rows.fits,
    )


class _Rows:
    """Draws constraints one at a time, with bounds that refer to the values under a matrix of this root."""

    def __init__(self, rng: Rng, G: Array, root: Array, mode: str, decades: float, shift: float) -> None:
        self.rng, self.G, self.mode, self.decades, self.shift = rng, G, mode, decades, shift
        self.H = G @ root
        z = G[:, None] - G
        self.distances = np.square(z @ root).sum(axis=2)
        positive = self.distances[self.distances > 0]
        self.typical = float(np.median(positive)) if positive.size else 1.0
        self.weights = rng.dirichlet(np.ones(len(_KINDS))) * (1, 1, 1, 1, 0.3)
        self.weights /= self.weights.sum()
        self.fits = mode == "feasible"  # whether the root meets the rows drawn so far
        self.equalities = float(rng.choice((0.0, 0.2, 1.0), p=(0.4, 0.5, 0.1)))

    def draw(self, hard: bool) -> Constraints:
        kind = str(self.rng.choice(_KINDS, p=self.weights))
        if kind == "open" and hard and self.mode == "feasible":
            kind = "distance"
        if kind == "comparison" and len(self.G) < 3:
            kind = "distance"
        row: Constraints = getattr(self, "_" + kind)()
        return row

    def pair(self) -> tuple[int, int]:
        i, j = self.rng.choice(len(self.G), 2, replace=False)
        return int(i), int(j)

    def distance(self, i: int, j: int) -> float:
        return float(self.distances[i, j])

    def positive(self, b: float) -> float:
        self.fits &= _SMALLEST <= b <= _LARGEST  # a bound that is moved need not fit any matrix
        return float(np.clip(b if np.isfinite(b) else _LARGEST, _SMALLEST, _LARGEST))

    def _open(self) -> Constraints:
        return (c.similar if self.rng.random() < 0.5 else c.dissimilar)([self.pair()])

    def _distance(self) -> Constraints:
        i, j = self.pair()
        value, relation = self.distance(i, j), self._relation()
        if value <= 1e-20 * self.typical:  # lower bounds on nothing are refused: a few of them are enough
            often = self.mode == "feasible" or self.rng.random() < 0.98
            value, relation = self.typical, "<=" if often else relation
        b = self.positive(self._bound(value, relation))
        made = {"<=": c.at_most, ">=": c.at_least, "==": c.equal}[relation]
        return made([(i, j)], b)

    def _comparison(self) -> Constraints:
        if self.rng.random() < 0.6 or len(self.G) < 4:
            a, p, q = (int(x) for x in self.rng.choice(len(self.G), 3, replace=False))
            near, far = (a, p), (a, q)
        else:
            i, j, k, q = (int(x) for x in self.rng.choice(len(self.G), 4, replace=False))
            near, far = (i, j), (k, q)
        if self.mode == "feasible" and self.distance(*near) > self.distance(*far):
            near, far = far, near
        room = self.distance(*far) - self.distance(*near)
        margin = 0.0
        if self.rng.random() < 0.5:
            margin = self._bound(self.typical, "<=") if self.mode != "feasible" else room * self.rng.random()
        margin = min(max(margin, 0.0), _LARGEST)
        if near[0] == far[0] and self.rng.random() < 0.5:
            return c.closer([(near[0], near[1], far[1])], margin)
        return c.closer([(*near, *far)], margin)

    def _similarity(self) -> Constraints:
        i, j = (int(x) for x in self.rng.integers(0, len(self.G), 2))
        value, relation = float(self.H[i] @ self.H[j]), self._relation()
        size = float(np.linalg.norm(self.H[i]) * np.linalg.norm(self.H[j]))
        if i == j:
            if value <= 1e-20 * self.typical:
                value, relation = self.typical, "<="
            return c.similarity([(i, j)], self.positive(self._bound(value, relation)), relation)
        return c.similarity([(i, j)], self._signed(value, size, relation), relation)

    def _linear(self) -> Constraints:
        n, kind = len(self.G), self.rng.integers(4)
        k = int(self.rng.integers(1, min(n, 4) + 1))
        U = self.rng.integers(-2, 3, size=(n, k)).astype(float)
        U[self.rng.integers(n), 0] = 1.0
        weights = np.ones(k) if self.rng.random() < 0.5 else self.rng.choice([-1.0, 1.0], k)
        matrix = (U * weights) @ U.T
        if kind == 3:
            matrix = np.round(self.rng.normal(size=(n, n)), 2)
            matrix += matrix.T
        value = float(np.sum(matrix * (self.H @ self.H.T)))
        size = float(np.sum(np.abs(matrix) * np.abs(self.H @ self.H.T)))
        # of a value that is what large terms leave when they cancel, a bound made from it says nothing
        self.fits &= bool(np.abs(self.H.T @ matrix @ self.H).max() >= _CANCELS * size or size == 0)
        relation = self._relation()
        A: Any = {0: matrix, 1: sparse.csr_array(matrix), 2: (U, weights), 3: matrix}[int(kind)]
        return c.linear(A, self._signed(value, size, relation), relation)

    def _relation(self) -> Relation:
        if self.rng.random() < self.equalities:
            return "=="
        return "<=" if self.rng.integers(2) == 0 else ">="

    def _bound(self, value: float, relation: Relation) -> float:
        """A bound for a row with a positive value."""
        if self.mode == "feasible":
            room = 1.0 if relation == "==" else 1.0 + self.rng.exponential(0.5) * (self.rng.random() < 0.8)
            return value / room if relation == ">=" else value * room
        return value * self.shift * 10.0 ** self.rng.uniform(-self.decades, self.decades)

    def _signed(self, value: float, size: float, relation: Relation) -> float:
        """A bound for a row whose value may be negative; one that is zero up to rounding is zero."""
        value = 0.0 if abs(value) <= 1e-14 * size else value
        if self.mode == "feasible":
            sign = -relations.SIGNS[relation]
            b = value + sign * size * self.rng.exponential(0.3) * (self.rng.random() < 0.8)
        else:
            b = self._bound(value, relation) + self.shift * size * self.rng.normal(scale=0.1)
            if self.rng.random() < 0.1:
                b = 0.0
        return float(np.clip(np.nan_to_num(b, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST))


def _features(rng: Rng, kind: str, n: int, r: int) -> Array:
    G = rng.normal(size=(n, r))
    if kind == "integer":
        G = rng.integers(-4, 5, size=(n, r)).astype(float)
    elif kind == "one-hot":
        G = np.eye(r)[rng.integers(0, r, n)]
    elif kind == "collinear" and r > 1:
        G[:, 1:] = G[:, :1] * rng.normal(size=r - 1) + 10.0 ** rng.uniform(-8, -1) * G[:, 1:]
    elif kind == "low-rank":
        k = int(rng.integers(1, r + 1))
        G = rng.integers(-3, 4, size=(n, k)).astype(float) @ rng.integers(-3, 4, size=(k, r))
    elif kind == "duplicates":
        G = G[rng.integers(0, max(2, n // 2), n)]
    elif kind == "offset":
        G += 10.0 ** rng.uniform(0, 8) * rng.normal(size=r)
    return G


def _prior(rng: Rng, kind: str, r: int) -> tuple[Array | None, Array | None]:
    """The prior, and its exact root where it is singular."""
    if kind == "none":
        return None, None
    if kind == "diagonal":
        return np.diag(10.0 ** rng.uniform(-2, 2, r)), None
    if kind == "deficient":
        root = _whole_root(rng, r, int(rng.integers(1, r + 1)))
        return root @ root.T, root
    if kind == "indefinite":
        return _whole_symmetric(rng, r), None
    Q = np.linalg.qr(rng.normal(size=(r, r)))[0]
    if kind == "tiny":
        values = 10.0 ** np.concatenate([rng.uniform(-rng.uniform(0, _CONDITION), 0, r - 1), [0.0]])
        prior = np.diag(rng.permutation(values)) if rng.random() < 0.5 else (Q * values) @ Q.T
    elif kind == "graded":  # columns in different units
        prior = (Q * rng.uniform(0.2, 1.0, r)) @ Q.T
        units = 10.0 ** rng.uniform(-2.5, 2.5, r)
        prior = units[:, None] * prior * units
    else:
        prior = (Q * 10.0 ** rng.uniform(-1.5, 1.5, r)) @ Q.T
    return (prior + prior.T) / 2, None


def _whole_root(rng: Rng, n: int, k: int) -> Array:
    """An n x k matrix of small whole numbers of full column rank: its product with its transpose is exact."""
    while True:
        C = rng.integers(-3, 4, size=(n, k)).astype(float)
        if np.linalg.svd(C, compute_uv=False)[-1] > 0.05:
            return C


def _whole_symmetric(rng: Rng, n: int) -> Array:
    A = rng.integers(-5, 6, size=(n, n)).astype(float)
    return A + A.T


def _target(rng: Rng, base: Array, root: Array | None) -> Array:
    """A root of a random definite matrix in the range of the prior, to which bounds are made to fit."""
    if root is not None:
        return root @ rng.normal(size=(root.shape[1], root.shape[1] + 1))
    k = len(base)
    if rng.random() < 0.5:
        return _positive_root(base) @ rng.normal(size=(k, k + 1))
    return rng.normal(size=(k, k + 1)) * np.sqrt((float(np.abs(base).max()) or 1.0) / k)


def _positive_root(base: Array) -> Array:
    """A root of |base|."""
    size = float(np.abs(base).max()) or 1.0
    values, vectors = np.linalg.eigh(base / size)
    return np.asarray(np.sqrt(size) * vectors * np.sqrt(np.abs(values)), dtype=np.float64)


def _penalties(rng: Rng, kind: str, m: int) -> Array:
    if kind == "one":
        return np.full(m, 10.0 ** rng.uniform(-2, 3))
    if kind == "hard":
        return np.full(m, np.inf)
    gamma = 10.0 ** (rng.uniform(-12, 12, m) if kind == "extreme" else rng.uniform(-2, 3, m))
    if kind == "mixed":
        gamma[rng.random(m) < 0.5] = np.inf
    return gamma


def _scale(rng: Rng, decades: float) -> float:
    """A power of two, which rounds nothing: features of low rank keep it."""
    return float(2.0 ** np.round(rng.uniform(-decades, decades) * np.log2(10.0)))
