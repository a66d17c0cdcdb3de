"""`ExponentiatedGradient`: the matrix exponentiated gradient update for squared loss, and its loss bound.

The bound is that of TRW05 lemmas 3.1 and 3.2, for a stream that is kept (`Examples`). With rates
a_t = 2 b_t / (2 + r^2 b_t) lemma 3.1 says: sum_t a_t (loss_t) - b_t (loss of U)_t <= D(U, W_1). The rates of
a stream never rise, so its total loss is at most (D(U, W_1) + sum_t b_t (loss of U)_t) / (last a_t), which
is (3.7) where all a_t are equal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common import checks, reading
from nearwise._common.errors import RowsError
from nearwise._common.types import Array
from nearwise.online import _arguments
from nearwise.online._states import EigenState, part_of, squares_of

_OVERFLOW = (
    ": the update would leave the range of floating-point numbers; lower learning_rate, or scale the "
    "instances and y"
)
_RANK_ONE = 1e-14  # relative error up to which a matrix counts as a multiple of a square
_AT_THE_LIMIT = 1e-12  # relative distance from the largest rate that the lemma covers
_ROUNDING = 64 * np.finfo(np.float64).eps  # relative error of tr(U A) that counts as none


class ExponentiatedGradient:
    """Learn W >= 0 from values tr(W A) = y. TRW05 section 3.

    An update is W <- exp(log W - 2 learning_rate (tr(W A) - y) sym(A)) / Z.

    Instances A are (d, d) arrays, of which the symmetric (Hermitian) part counts; vectors x of length d, for
    x x^*; or pairs (i, j) of whole numbers, for TRW05 5.1's (e_i - e_j) (e_i - e_j)^T / 2, whose value is
    half the squared distance of objects i and j under the kernel W. The exponent is kept as an
    eigendecomposition with largest eigenvalue zero (TRW05 3.2). Vectors and pairs, and matrices of rank one,
    update it in O(d^2) and a product of eigenvectors; other matrices take a new one, in O(d^3). Complex
    instances make W complex.

    Parameters
    ----------
    dimension : d
    learning_rate : the step; by default what makes the bound of lemma 3.2 least, 2c / (r^2 (2 + c)) with
        c = r sqrt(2 log(d) / comparator_loss), where r is the largest range of eigenvalues so far
    normalised : keep the trace of W at one, TRW05 (3.5); if not, (3.4)
    start : the positive definite W to start from, by default I / d; of trace one if `normalised`
    comparator_loss : the total loss that the best W is expected to have, for the default learning rate
    keep_examples : keep all instances, which `loss_bound` needs

    Attributes
    ----------
    total_loss : sum of (tr(W A) - y)^2, each before its update; inf where too large
    n_updates : examples seen
    """

    def __init__(
        self,
        dimension: int,
        learning_rate: float | None = None,
        *,
        normalised: bool = True,
        start: ArrayLike | None = None,
        comparator_loss: float = 0.0,
        keep_examples: bool = True,
    ) -> None:
        self.dimension = d = checks.whole_number(dimension, "dimension")
        self.learning_rate = (
            None if learning_rate is None else checks.positive(learning_rate, "learning_rate")
        )
        self.normalised = bool(normalised)
        self.comparator_loss = checks.not_negative(comparator_loss, "comparator_loss")
        self._start = np.eye(d) / d
        if start is not None:
            self._start = _arguments.semidefinite(start, d, "start", definite=True)
            if self.normalised and abs(np.trace(self._start).real - 1.0) > 1e-9:
                raise ValueError(f"start must have trace one, got {np.trace(self._start).real}")
        self._state = EigenState.of(self._start)
        self._state.values = np.log(self._state.values)
        self._range = 0.0
        self._examples = Examples(d) if keep_examples else None
        self.total_loss = 0.0
        self.n_updates = 0

    @property
    def matrix(self) -> NDArray[Any]:
        """W."""
        return self._state.matrix(self._weights())

    def predict(self, A: ArrayLike) -> float:
        """tr(W A)."""
        return self._value(*self._read(A))

    def update(self, A: ArrayLike, y: float) -> float:
        """Learn that tr(W A) is y; returns tr(W A) before that."""
        instance, is_square = self._read(A)
        target = float(_arguments.targets(y, 1)[0])
        if is_square and not np.iscomplexobj(instance) and not np.iscomplexobj(self._state.vectors):
            return float(self._follow(instance[None], np.array([target]))[0])
        value = self._value(instance, is_square)
        extent = _range(instance, is_square)
        largest = max(self._range, extent)
        rate = float(self._rates(np.array([largest]))[0])
        delta = 2.0 * rate * (value - target)
        if not _is_usable(rate) or self._overflows(delta * extent):
            raise ValueError(f"the instance{_OVERFLOW}")
        if is_square:
            self._state.add_square(instance, -delta)
        else:
            exponent = (self._state.vectors.conj().T * self._state.values) @ self._state.vectors
            changed = EigenState.of(exponent - delta * instance)
            self._state.values, self._state.vectors = changed.values, changed.vectors
            self._state.counts[0] = 0
        if self.normalised:
            self._state.values -= self._state.values[-1]
        self._range = largest
        self._note(
            instance[None], np.array([target]), np.array([value]), np.array([rate]), np.array([largest])
        )
        return value

    def update_many(self, instances: ArrayLike, y: ArrayLike) -> Array:
        """Learn from pairs, (m, 2) whole numbers, or real vectors, (m, d), in their order; one y each.

        The same as one `update` after the other, compiled. Returns the values before each update. Where a
        number would overflow, the row is named and nothing is learned.
        """
        table = reading.regular_array(instances, "instances")
        if table.ndim == 2 and table.shape[1] == 2 and table.dtype.kind in "iu":
            x = _pair_squares(_arguments.pairs(table, self.dimension), self.dimension)
        else:
            x, _ = _arguments.vectors(instances, self.dimension, "instances")
        if np.iscomplexobj(self._state.vectors):
            raise ValueError("W is complex after complex instances: use update, one instance at a time")
        return self._follow(x, _arguments.targets(y, len(x)), rows=True)

    def loss_bound(self, comparator: ArrayLike, comparator_loss: float | None = None) -> float:
        """What `total_loss` cannot exceed, by the loss of a fixed matrix U of trace one: TRW05 (3.7).

        With learning rate 2c / (r^2 (2 + c)) that is (1 + c/2) L_U + (1/2 + 1/c) r^2 D(U, W_1), where L_U is
        the total loss of U on the same examples, r the largest range of an instance, and D the von Neumann
        divergence. It is inf where the learning rate is above 2 / r^2, or equal to it while L_U is not zero
        (an error of U that rounding explains is zero). Where the default rate fell as r grew, the lemma is
        summed step by step.

        Parameters
        ----------
        comparator : U
        comparator_loss : L_U, for a learning rate that was given; by default that of the examples, which must
            have been kept
        """
        if not self.normalised:
            raise ValueError("lemma 3.2 is about normalised=True")
        U = _arguments.semidefinite(comparator, self.dimension, "comparator")
        if abs(np.trace(U).real - 1.0) > 1e-9:
            raise ValueError(f"comparator must have trace one, got {np.trace(U).real}")
        u = np.maximum(np.linalg.eigvalsh(U), np.finfo(np.float64).tiny)
        values, V = np.linalg.eigh(self._start)
        log_start = (V * np.log(values)) @ V.conj().T
        divergence = max(float(u @ np.log(u) - np.sum(U * log_start.conj()).real), 0.0)
        if comparator_loss is not None:
            if self.learning_rate is None:
                raise ValueError(
                    "comparator_loss goes with a learning_rate that was given; the default one needs "
                    "keep_examples=True, and no comparator_loss"
                )
            loss = checks.not_negative(comparator_loss, "comparator_loss")
            spare = 2.0 - self.learning_rate * self._range * self._range
            if spare < -_AT_THE_LIMIT or (spare <= _AT_THE_LIMIT and loss > 0.0):
                return math.inf
            return (2.0 / spare * loss if loss > 0.0 else 0.0) + divergence / self.learning_rate
        if self._examples is None:
            raise ValueError("keep_examples=False: pass comparator_loss, and give a learning_rate")
        fixed = None if self.learning_rate is None else self._range
        return self._examples.bound(U, divergence, fixed)

    def _follow(self, x: Array, y: Array, rows: bool = False) -> Array:
        """Compiled updates by squares of the rows of x; `rows` says whether the user gave them as such."""
        from nearwise.linalg.loops.online_spectral import Room, Spectrum, follow_exponentiated

        with np.errstate(over="ignore"):
            extents = np.maximum(np.maximum.accumulate(np.square(x).sum(axis=1)), self._range)
        rates = self._rates(extents)
        unusable = np.flatnonzero(~_is_usable(rates))
        if unusable.size:
            raise _overflow(int(unusable[0]), rows)
        feedback = squares_of(x, np.zeros(len(x), np.int8), y, rates)
        values = np.empty(len(x))

        def step(first: int, last: int, spectrum: Spectrum, room: Room) -> int:
            cut = slice(first, last)
            part = part_of(feedback, cut)
            return int(follow_exponentiated(part, spectrum, self.normalised, values[cut], room))

        done = self._state.follow(len(x), step)
        if done < len(x):
            raise _overflow(done, rows)
        self._range = float(extents[-1]) if len(x) else self._range
        self._note(x, y, values, rates, extents)
        return values

    def _note(self, instances: NDArray[Any], y: Array, values: Array, rates: Array, extents: Array) -> None:
        self.total_loss = _arguments.with_squares(self.total_loss, values - y)
        self.n_updates += len(y)
        if self._examples is not None:
            self._examples.add(instances, y, rates, extents)

    def _rates(self, extents: Array) -> Array:
        """The learning rate given, or those that lemma 3.2 asks for; not finite or 0 out of its range."""
        if self.learning_rate is not None:
            return np.full(len(extents), self.learning_rate)
        # 2c / (r^2 (2 + c)) = 2 / (r^2 + 2 r^2 / c), and r^2 / c stays finite where c is not
        per_range = math.sqrt(self.comparator_loss / (2.0 * math.log(max(self.dimension, 2))))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rates = 2.0 / (extents * extents + 2.0 * (extents * per_range))
        return np.where(extents == 0.0, 1.0, rates)  # multiples of the identity: no rate matters

    def _weights(self) -> Array:
        """The eigenvalues of W."""
        values = self._state.values
        if not self.normalised:
            return np.exp(values)
        weights = np.exp(values - values[-1])
        return weights / weights.sum()

    def _value(self, instance: NDArray[Any], is_square: bool) -> float:
        V, weights = self._state.vectors, self._weights()
        with np.errstate(over="ignore", invalid="ignore"):
            if is_square:
                value = float(weights @ np.square(np.abs(V @ instance)))
            else:
                value = float(weights @ np.sum((V @ instance) * V.conj(), axis=1).real)
        if not math.isfinite(value):
            raise ValueError(f"the value of the instance is {value}, not a finite number; scale the instance")
        return value

    def _read(self, A: Any) -> tuple[NDArray[Any], bool]:
        """A vector x and True for x x^*, or a Hermitian matrix and False."""
        d = self.dimension
        if _arguments.is_pair(A):
            return _pair_squares(_arguments.pairs(A, d), d)[0], True
        if np.ndim(A) == 1:
            if np.iscomplexobj(A):
                x = np.asarray(A, dtype=np.complex128)
                if x.shape != (d,) or not np.isfinite(x).all():
                    raise ValueError(f"a vector must have {d} finite entries, got {x}")
                return x, True
            return _arguments.vectors(A, d, "the vector")[0][0], True
        matrix = _arguments.square(A, d, "the instance")
        matrix = matrix / 2 + matrix.conj().T / 2
        root = _root_of_square(matrix)
        return (matrix, False) if root is None else (root, True)

    def _overflows(self, change: float) -> bool:
        """Whether the exponent may not change by so much."""
        from nearwise.linalg.loops.online_spectral import CEILING

        too_large = not self.normalised and self._state.values[-1] + abs(change) > CEILING
        return too_large or not math.isfinite(change)


def _is_usable(rate: Any) -> Any:
    """Whether steps of such a rate are numbers, and not all zero."""
    return np.isfinite(rate) & (rate > 0.0)


def _overflow(row: int, rows: bool) -> ValueError:
    """What to raise; `rows` says whether the user gave rows."""
    if rows:
        return RowsError([row], before="row ", after=_OVERFLOW)
    return ValueError(f"the instance{_OVERFLOW}")


def _pair_squares(pairs: NDArray[np.int64], d: int) -> Array:
    x = np.zeros((len(pairs), d))
    numbers = np.arange(len(pairs))
    x[numbers, pairs[:, 0]], x[numbers, pairs[:, 1]] = math.sqrt(0.5), -math.sqrt(0.5)
    return x


def _range(instance: NDArray[Any], is_square: bool) -> float:
    """Largest less smallest eigenvalue."""
    if is_square:
        return float(np.square(np.abs(instance)).sum())
    values = np.linalg.eigvalsh(instance)
    return float(values[-1]) - float(values[0])  # inf where that is too large


def _root_of_square(A: NDArray[Any]) -> NDArray[Any] | None:
    """x with A = x x^*, if there is one."""
    k = int(np.argmax(np.diagonal(A).real))
    height = float(A[k, k].real)
    if height <= 0.0:
        return None
    x = A[:, k] / math.sqrt(height)
    exact = np.abs(A - np.outer(x, x.conj())).max() <= _RANK_ONE * height
    return x if exact else None


class Examples:
    """A stream of examples: blocks of instances of one kind, squares (m, d) or matrices (m, d, d)."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._blocks: list[tuple[NDArray[Any], Array, Array, Array]] = []

    def add(self, instances: NDArray[Any], y: Array, rates: Array, extents: Array) -> None:
        """Rates, and the largest range of eigenvalues up to each example."""
        self._blocks.append((_compact(instances), y, rates, extents))

    def bound(self, U: NDArray[Any], divergence: float, extent: float | None) -> float:
        """The bound, with the range `extent` for all examples, or with the largest up to each."""
        total, least = divergence, math.inf
        for instances, y, rates, extents in self._blocks:
            values, sizes = self._values(U, instances)
            errors = values - y
            errors[np.abs(errors) <= _ROUNDING * self.dimension * (sizes + np.abs(y))] = 0.0
            with np.errstate(over="ignore"):
                spare = 2.0 - rates * np.square(extents if extent is None else extent)
            if np.any(spare < -_AT_THE_LIMIT):
                return math.inf
            wrong = errors != 0.0
            if np.any(spare[wrong] <= _AT_THE_LIMIT):
                return math.inf
            total += float(np.sum(2.0 * rates[wrong] / spare[wrong] * np.square(errors[wrong])))
            least = min(least, float(rates.min(initial=math.inf)))
        return total / least if self._blocks else 0.0

    def _values(self, U: NDArray[Any], instances: NDArray[Any]) -> tuple[Array, Array]:
        """tr(U A) of every instance, and a size that its rounding error is relative to."""
        if instances.dtype.kind == "i":  # pairs
            i, j = instances.T
            diagonal = np.diagonal(U).real
            return (diagonal[i] + diagonal[j]) / 2 - U[i, j].real, (diagonal[i] + diagonal[j]) / 2
        if instances.ndim == 2:
            values = np.einsum("ti,ij,tj->t", instances.conj(), U, instances, optimize=True).real
            return values, np.square(np.abs(instances)).sum(axis=1) * np.abs(U).max()
        values = np.einsum("tij,ji->t", instances, U, optimize=True).real
        return values, np.abs(instances).sum(axis=(1, 2)) * np.abs(U).max()


def _compact(instances: NDArray[Any]) -> NDArray[Any]:
    """Pairs as two numbers each, where all instances are pairs; else a copy."""
    if instances.ndim == 2 and not np.iscomplexobj(instances) and np.count_nonzero(instances[:1]) == 2:
        half = math.sqrt(0.5)
        is_pair = (np.count_nonzero(instances, axis=1) == 2).all()
        if is_pair and (instances.max(axis=1) == half).all() and (instances.min(axis=1) == -half).all():
            return np.stack([instances.argmax(axis=1), instances.argmin(axis=1)], axis=1)
    return np.array(instances)
