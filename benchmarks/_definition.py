"""Certificates and proofs recomputed from the definition in extended precision, from what the user gave.

Nothing here uses the library's own binding of a problem: rows are measured on the features themselves, the
prior is factored anew, and the objective and its dual are those of docs/problem.md:

    primal   D(M, M0) + sum_i loss_i(<A_i, M>)
    dual     min_M D(M, M0) + <S, M>  -  sum_i conjugate_i(y_i),   S = sum_i y_i A_i

Matrices are numpy arrays of mpmath numbers, whose exponents have no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import nearwise as nw
from benchmarks._exact import Arithmetic, Exact, ExactLosses, Row
from benchmarks._random_problems import Case
from nearwise._common.types import Array

DIGITS = 80
_VANISHES = 1e-26  # a row whose size in the range is this part of its size outside it measures nothing
_ROUNDING = 8 * 2.0**-52  # of a number of the features, times their columns, as docs/certificates.md has it
_PROOF = 1e-7  # what a proof may lack, as `InfeasibilityCheck.valid` says, and `_ROUNDING` at most
_HALVINGS = 40


@dataclass(frozen=True)
class Truth:
    """What a matrix and multipliers are worth: gap and violation are relative, as in `Certificate`."""

    primal: Any
    dual: Any
    gap: float
    hard_violation: float


@dataclass(frozen=True)
class Proof:
    """What multipliers prove: whether they do, and y^T b relative to sum_i |y_i b_i|."""

    valid: bool
    bound: float


class Definition:
    """A problem in extended precision.

    Coordinates: M = T M' T^T, where T spans the range of the prior; T is a root of it under LogDet (so that
    the prior becomes the identity), an orthonormal eigenbasis under von Neumann, the identity under
    Frobenius.
    """

    def __init__(self, case: Case, digits: int = DIGITS) -> None:
        self.case, self.exact = case, Arithmetic(digits)
        self.mp, array = self.exact.mp, self.exact.array
        self.is_logdet = isinstance(case.divergence, nw.LogDet)
        self.is_frobenius = isinstance(case.divergence, nw.Frobenius)
        order = (case.prior if case.features is None else case.features).shape[1]  # type: ignore[union-attr]
        self.features = array(np.eye(order) if case.features is None else case.features)
        self.prior = array(np.eye(order) if case.prior is None else case.prior)
        if case.widening:
            assert case.root is not None
            C = array(case.root)
            null = array(np.eye(order)) - C.dot(self.exact.left_inverse(C))
            self.prior = self.prior + null * self.mp.mpf(case.widening)
        self.losses = ExactLosses(self.mp, case.divergence)
        self._choose_coordinates()
        self.H = self.features.dot(self.T)
        self.rows = self._read_rows()

    def factor(self, result: nw.Result) -> Exact:
        """B with M = B B^T, from a result: of the kernel for the nearest kernel."""
        B = self.exact.array(result.factor)
        return B if self.case.features is not None else self.exact.array(result.features).dot(B)

    def leakage(self, factor: Exact) -> float:
        """The part of a factor that lies outside the prior's range, relative to the factor."""
        outside = factor - self.T.dot(self.inverse.dot(factor))
        size = self.exact.largest(factor)
        return _double(self.exact.largest(outside) / size) if size else 0.0

    def certificate(self, factor: Exact, dual: Array) -> Truth:
        """The truth about M = factor factor^T and the multipliers."""
        B = self.inverse.dot(factor)
        Z = self.H.dot(B)
        y, bound = self._signed(dual), -self.mp.inf
        values = []
        for row, w in zip(self.rows, y, strict=True):
            p = self._value(row, Z)
            values.append((row, self.losses.is_positive(row, p, w), p))
        rows = [(row, positive) for row, positive, _ in values]
        primal = self._divergence(B) + self.exact.total(self.losses.loss(*part) for part in values)
        for _ in range(_HALVINGS):
            bound = self._least(self._pullback(y)) - self.exact.total(
                self.losses.conjugate(row, positive, y[i]) for i, (row, positive) in enumerate(rows)
            )
            if self.mp.isfinite(bound):
                break
            y = y / 2
        hard = [self.losses.violation(*part) for part in values if np.isinf(part[0].penalty)]
        return Truth(primal, bound, self._relative(primal, bound), _double(max(hard, default=self.mp.mpf(0))))

    def proof(self, dual: Array) -> Proof:
        """Whether multipliers prove the hard rows contradictory on the user's own data.

        Under LogDet M is definite, so S >= 0 other than zero is a proof with y^T b = 0 as well.
        """
        y = np.where([np.isinf(row.penalty) for row in self.rows], self._signed(dual), self.mp.mpf(0))
        hard = [(row, y[i]) for i, row in enumerate(self.rows) if y[i] != 0]
        bound = self.exact.total(w * row.bound for row, w in hard)
        magnitude = self.exact.total(abs(w * row.bound) for row, w in hard)
        S, parts = self._pullback(y), np.diagonal(self._pullback(y, magnitudes=True))
        size = self.exact.array(np.zeros(2 * (len(self.prior),)))
        for row, w in hard:
            size += self._magnitude(row) * abs(w)
        size = self.T.T.dot(size).dot(self.T)
        if magnitude == 0:
            strict = self.is_logdet and self.exact.largest(S) > 0 and self.exact.is_semidefinite(S, parts)
            return Proof(bool(strict), 0.0)
        if not bound < -self.mp.mpf("1e-9") * magnitude:
            return Proof(False, _double(bound / magnitude))
        allowed = min(-self.mp.mpf(_PROOF) * bound / magnitude, self.mp.mpf(_ROUNDING) * len(self.prior))
        return Proof(self.exact.is_semidefinite(S + size * allowed, parts), _double(bound / magnitude))

    def _choose_coordinates(self) -> None:
        """T, its left inverse, the prior's eigenvalues there, and the mean of their magnitudes."""
        identity = self.exact.array(np.eye(len(self.prior)))
        self.T = self.inverse = identity
        self.eigenvalues: Exact | None = None
        scale, unit_prior = self.exact.scaled(self.prior)
        self.mean = scale * self.mp.mpf(float(np.abs(np.linalg.eigvalsh(unit_prior)).mean()))
        root = None if self.case.widening else self.case.root
        if root is not None and not self.is_frobenius:
            self.mean *= self.mp.mpf(len(self.prior)) / root.shape[1]
        if self.is_logdet and root is not None:
            self.T = self.exact.array(root)
            self.inverse = self.exact.left_inverse(self.T)
        elif self.is_logdet:
            L = self.exact.cholesky(self.prior)
            assert L is not None, "the prior is not positive definite"
            self.T, self.inverse = L, self.exact.lower_inverse(L)
        elif not self.is_frobenius:
            values, V = self.exact.eigen(self.prior)
            rank = len(values) if root is None else root.shape[1]
            self.eigenvalues = values[-rank:]
            self.T, self.inverse = V[:, -rank:], V[:, -rank:].T

    def _read_rows(self) -> list[Row]:
        rows: list[Row] = []
        penalties = np.broadcast_to(self.case.penalty, (len(self.case.constraints),))
        scaled = self.H
        if self.eigenvalues is not None:
            scaled = self.H * np.array([self.mp.sqrt(x) for x in self.eigenvalues], dtype=object)
        elif self.is_frobenius:
            scaled = self.H * self.mp.sqrt(self.mean or self.mp.mpf(1))
        outside = self.features * self.mp.sqrt(self.exact.largest(self.prior))
        fills = self._percentiles(scaled)
        for block in self.case.constraints.blocks:
            for k in range(len(block)):
                is_linear = block.kind == "linear"
                matrix = self._linear_matrix(block.matrices[k], block.ids) if is_linear else None
                ids = () if is_linear else tuple(int(i) for i in np.asarray(block.ids)[k])
                b = float(block.bounds[k])
                bound = fills[block.relation] if np.isnan(b) else self.mp.mpf(b)
                size = self._size(block.kind, ids, matrix, scaled)
                raw = self._size(block.kind, ids, matrix, outside)
                vanishes = size <= self.mp.mpf(_VANISHES) * raw
                definite: bool | None = block.kind == "distance" or (len(ids) == 2 and ids[0] == ids[1])
                if matrix is not None:
                    definite, is_rounding = self._sign(matrix)
                    vanishes = vanishes or is_rounding
                rows.append(
                    Row(
                        block.kind,
                        block.relation,
                        ids,
                        matrix,
                        bound,
                        float(penalties[len(rows)]),
                        self.mp.mpf(1) if vanishes else size,
                        definite,
                        bool(vanishes),
                    )
                )
        return rows

    def _percentiles(self, scaled: Exact) -> dict[int, Any]:
        """The bounds for open rows, by relation: percentiles of positive squared distances, KSD09 7.2."""
        if not any(np.isnan(block.bounds).any() for block in self.case.constraints.blocks):
            return {}
        n = len(scaled)
        every = [scaled[i] - scaled[j] for i in range(n) for j in range(i + 1, n)]
        found = sorted(z.dot(z) for z in every)
        found = [x for x in found if x > self.mp.mpf(_VANISHES) * found[-1]]
        out = {}
        for relation, share in ((-1, "0.05"), (1, "0.95")):
            place = self.mp.mpf(share) * (len(found) - 1)
            low = int(place)
            high = min(low + 1, len(found) - 1)
            out[relation] = found[low] + (place - low) * (found[high] - found[low])
        return out

    def _linear_matrix(self, linear: Any, ids: Any) -> Exact:
        n = len(self.features)
        if linear.factor is not None:
            U = self.exact.array(linear.factor)
            A = (U * self.exact.array(linear.weights)).dot(U.T)
        else:
            dense = linear.matrix.toarray() if hasattr(linear.matrix, "toarray") else linear.matrix
            A = self.exact.array(dense)
            A = (A + A.T) / 2
        full = self.exact.array(np.zeros((n, n)))
        place = np.arange(n) if ids is None else np.asarray(ids, dtype=int)
        full[np.ix_(place, place)] = A
        return full

    def _size(self, kind: str, ids: tuple[int, ...], matrix: Exact | None, F: Exact) -> Any:
        """The size of a row's parts under a matrix with root F."""
        if matrix is not None:
            scale, unit = self.exact.scaled(F.T.dot(matrix).dot(F))
            return scale * self.mp.mpf(float(np.abs(np.linalg.eigvalsh(unit)).sum()))
        if kind == "similarity":
            x, y = F[ids[0]], F[ids[1]]
            return self.mp.sqrt(x.dot(x) * y.dot(y))
        return self.exact.total(z.dot(z) for z in _differences(ids, F))

    def _sign(self, matrix: Exact) -> tuple[bool | None, bool]:
        """Whether G^T A G >= 0 on the prior's range, and whether it is zero to rounding of the features.

        That is, of r columns, an eigenvalue of 8 r 2^-52 |G|^T |A G| at most. None where only that, or twice
        that, is below zero: such an A may count as semidefinite or not.
        """
        inside = matrix.dot(self.features.dot(self._orthonormal))
        lengths = [[self.mp.sqrt(g.dot(g)) for g in F] for F in (self.features, inside)]
        allowed = self.exact.total(x * y for x, y in zip(*lengths, strict=True)) * _ROUNDING * inside.shape[1]
        A = self.features.dot(self._orthonormal).T.dot(inside)
        scale, unit = self.exact.scaled(A)
        values = [scale * self.mp.mpf(float(x)) for x in np.linalg.eigvalsh(unit)]
        is_rounding = bool(max(-values[0], values[-1]) <= allowed)
        if self.exact.is_semidefinite(A):
            return True, is_rounding
        return (False if values[0] < -2 * allowed else None), is_rounding

    @cached_property
    def _orthonormal(self) -> Exact:
        """A basis of the prior's range."""
        if self.T.shape[0] == self.T.shape[1]:
            return self.exact.array(np.eye(len(self.T)))
        L = self.exact.cholesky(self.T.T.dot(self.T))
        assert L is not None
        return self.T.dot(self.exact.lower_inverse(L).T)

    def _value(self, row: Row, Z: Exact) -> Any:
        if row.vanishes:
            return self.mp.mpf(0)
        if row.matrix is not None:
            return (Z.T.dot(row.matrix) * Z.T).sum()
        if row.kind == "similarity":
            return Z[row.ids[0]].dot(Z[row.ids[1]])
        z = _differences(row.ids, Z)
        return z[0].dot(z[0]) - (z[1].dot(z[1]) if len(z) == 2 else 0)

    def _pullback(self, y: Exact, magnitudes: bool = False) -> Exact:
        """sum_i y_i A_i in the coordinates of M'; or what the magnitudes of all terms of that add up to.

        Differences do not know what all objects have in common, which is taken out before: of large numbers
        that cancel, 80 digits leave few beside what is to be judged.
        """
        measured: Any = abs if magnitudes else lambda x: x
        W = self.exact.array(np.zeros(2 * (len(self.features),)))
        of_differences = W.copy()
        for row, w in zip(self.rows, y, strict=True):
            if row.vanishes or w == 0:
                continue
            if row.matrix is not None:
                W += measured(row.matrix * w)
            elif row.kind == "similarity":
                W[row.ids[0], row.ids[1]] += measured(w / 2)
                W[row.ids[1], row.ids[0]] += measured(w / 2)
            else:
                for sign, i, j in zip((1, -1), row.ids[::2], row.ids[1::2], strict=False):
                    for a, b, s in ((i, i, 1), (j, j, 1), (i, j, -1), (j, i, -1)):
                        of_differences[a, b] += measured(sign * s * w)
        T, moved = measured(self.T), measured(self.features - self.features[0])
        H, moved = measured(self.features).dot(T), moved.dot(T)
        return H.T.dot(W).dot(H) + moved.T.dot(of_differences).dot(moved)

    def dense(self, row: Row) -> Exact:
        """The matrix A of a row in the coordinates of M'."""
        if row.matrix is not None:
            return self.H.T.dot(row.matrix).dot(self.H)
        if row.kind == "similarity":
            product = np.outer(self.H[row.ids[0]], self.H[row.ids[1]])
            return (product + product.T) / 2
        z = _differences(row.ids, self.H)
        first = np.outer(z[0], z[0])
        return first if len(z) == 1 else first - np.outer(z[1], z[1])

    def _magnitude(self, row: Row) -> Exact:
        """|A| in the coordinates of M: the parts of the row with positive sign."""
        if row.vanishes:
            return self.exact.array(np.zeros(2 * (len(self.prior),)))
        if row.matrix is not None:
            values, V = self.exact.eigen(self.features.T.dot(row.matrix).dot(self.features))
            return (V * np.array([abs(x) for x in values], dtype=object)).dot(V.T)
        if row.kind == "similarity":
            x, y = self.features[row.ids[0]], self.features[row.ids[1]]
            return (np.outer(x, x) + np.outer(y, y)) / 2
        z = np.array(_differences(row.ids, self.features), dtype=object)
        return z.T.dot(z)

    def _divergence(self, B: Exact) -> Any:
        """D(B B^T, M0) in the coordinates of M'."""
        M = B.dot(B.T)
        if self.is_logdet:
            log_determinant = self.exact.log_determinant(M)
            return self.mp.inf if log_determinant is None else np.trace(M) - log_determinant - len(M)
        if self.eigenvalues is None:
            return np.square(M - self.prior).sum()
        entropy = self.exact.total(x * self.mp.log(x) for x in self.exact.eigenvalues(M) if x > 0)
        logs = [self.mp.log(x) for x in self.eigenvalues]
        cross = self.exact.total(M[i, i] * log for i, log in enumerate(logs))
        return entropy - cross - np.trace(M) + self.exact.total(self.eigenvalues)

    def _least(self, S: Exact) -> Any:
        """min_M D(M, M0) + <S, M>; -inf where there is none."""
        if self.is_logdet:
            value = self.exact.log_determinant(S + self.exact.array(np.eye(len(S))))
            return -self.mp.inf if value is None else value
        if self.eigenvalues is None:
            found = self.exact.eigenvalues(self.prior - S / 2)
            return np.square(self.prior).sum() - self.exact.total(x**2 for x in found if x > 0)
        theta = np.diag([self.mp.log(x) for x in self.eigenvalues]) - S
        found = self.exact.eigenvalues(theta)
        return self.exact.total(self.eigenvalues) - self.exact.total(self.mp.exp(x) for x in found)

    def _signed(self, dual: Array) -> Exact:
        y = self.exact.array(dual)
        for i, row in enumerate(self.rows):
            if row.relation and y[i] * row.relation > 0:
                y[i] = self.mp.mpf(0)
        return y

    def _relative(self, primal: Any, dual: Any) -> float:
        if not (self.mp.isfinite(primal) and self.mp.isfinite(dual)):
            return np.inf
        degree = 0 if self.is_logdet else 2 if self.is_frobenius else 1
        rounding = self.mp.mpf(1e-15) * len(self.prior) * (self.mean**degree if self.mean else 1)
        return _double(abs(primal - dual) / max(abs(primal), abs(dual), rounding))


def _differences(ids: tuple[int, ...], F: Exact) -> list[Exact]:
    return [F[i] - F[j] for i, j in zip(ids[::2], ids[1::2], strict=True)]


def _double(x: Any) -> float:
    try:
        return float(x)
    except OverflowError:
        return np.inf
