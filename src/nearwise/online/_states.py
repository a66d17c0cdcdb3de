"""What online updates keep between examples, and how they run through a stream.

`FactorState` is a matrix M = B B^T, `EigenState` an eigendecomposition that rank-one changes update. A stream
is either followed to its end or, where a number would leave the range of floats, not at all: the state is
changed only after every row went well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg import eigenupdate

if TYPE_CHECKING:
    from nearwise.linalg.loops.online import Feedback
    from nearwise.linalg.loops.online_spectral import Room, Spectrum

# follows the rows of a stream from a first to before a last one, and says how many it has done
Stepper = Callable[[int, int, "Spectrum", "Room"], int]


@dataclass(eq=False)
class FactorState:
    """M = B B^T, held as the transpose of an upper triangular B."""

    transposed: Array
    _scratch: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._scratch = np.empty((6, len(self.transposed)))

    @classmethod
    def of(cls, matrix: Array) -> FactorState:
        """From a positive semidefinite M."""
        values, V = np.linalg.eigh(matrix)
        # B Q is upper triangular for some orthogonal Q: the R of a QR decomposition of B^T, in reverse order
        R: Array = np.linalg.qr((V * np.sqrt(np.maximum(values, 0.0))).T[:, ::-1]).R
        return cls(np.ascontiguousarray(R[::-1, ::-1]))

    @property
    def factor(self) -> Array:
        """B."""
        return self.transposed.T.copy()

    @property
    def matrix(self) -> Array:
        """M, exactly symmetric."""
        product = self.transposed.T @ self.transposed
        return (product + product.T) / 2

    def follow(self, feedback: Feedback, values: Array) -> int:
        """LogDet updates by all rows, or by none if fewer rows than that, which is returned, can be done."""
        from nearwise.linalg.loops.online import follow_logdet

        # a single row that cannot be done changes nothing, so it needs no copy
        state = self.transposed if len(values) == 1 else self.transposed.copy()
        done = int(follow_logdet(feedback, state, values, self._scratch))
        if done == len(values):
            self.transposed = state
        return done


@dataclass(eq=False)
class EigenState:
    """V^T diag(values) V: eigenvalues, ascending, and eigenvectors, one per row; real or complex.

    Attributes
    ----------
    counts : changes of V since its orthogonality was last measured, and how often it had to be repaired
    """

    values: Array
    vectors: NDArray[Any]
    counts: Index = field(default_factory=lambda: np.zeros(2, np.int64))
    _room: Any = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, matrix: NDArray[Any]) -> EigenState:
        """From a Hermitian matrix."""
        values, V = np.linalg.eigh(matrix)
        return cls(values, np.ascontiguousarray(V.conj().T))

    def copy(self) -> EigenState:
        copied = EigenState(self.values.copy(), self.vectors.copy(), self.counts.copy())
        copied._room = self._room
        return copied

    def matrix(self, values: Array) -> NDArray[Any]:
        """The matrix with other eigenvalues >= 0 in place of these, exactly Hermitian."""
        factor = self.vectors.conj().T * np.sqrt(values)
        product = factor @ factor.conj().T
        return (product + product.conj().T) / 2

    def follow(self, n_rows: int, step: Stepper) -> int:
        """Updates by all rows, or by none if fewer rows than that, which is returned, can be done."""
        work = self if n_rows == 1 else self.copy()
        if self._room is None:
            self._room = work._room = _room(len(self.values))
        if len(self.values) < eigenupdate.FAST_FROM:
            done = step(0, n_rows, work._spectrum(), work._room)
        else:
            done = next((row for row in range(n_rows) if not work._one_row(row, step)), n_rows)
        if done == n_rows:
            self.values, self.vectors, self.counts = work.values, work.vectors, work.counts
        return done

    def add_square(self, x: NDArray[Any], rho: float) -> None:
        """Add rho x x^*, x real or complex."""
        from nearwise.linalg.loops import secular
        from nearwise.linalg.loops.von_neumann import rotate_vectors

        v = self.vectors @ x
        if np.iscomplexobj(v):
            # diag(values) + rho v v^* is D (diag(values) + rho |v| |v|^T) D^* with the phases D of v
            phases = np.where(v == 0.0, 1.0, v / np.where(v == 0.0, 1.0, np.abs(v)))
            self.vectors = np.ascontiguousarray(phases.conj()[:, None] * self.vectors, dtype=np.complex128)
            v = np.abs(v)
        r = len(v)
        workspace = secular.workspace(r)
        secular.decompose(self.values, np.ascontiguousarray(v), float(rho), workspace)
        secular.complete(workspace)
        self.values = workspace.value[workspace.order]
        rows = self.vectors.view(np.float64)
        rotate_vectors(workspace, rows, np.empty(r * r), np.empty_like(rows), np.empty_like(rows))
        self.counts[0] += 1
        if self.counts[0] >= r:
            self._repair()

    def _repair(self) -> None:
        from nearwise.linalg.loops.online_spectral import DRIFT

        drift = self.vectors @ self.vectors.conj().T - np.eye(len(self.values))
        self.counts[0] = 0
        if np.abs(drift).max() > DRIFT:
            self.counts[1] += 1
            self.vectors = self.vectors - 0.5 * (drift @ self.vectors)

    def _spectrum(self) -> Spectrum:
        from nearwise.linalg.loops.online_spectral import Spectrum

        return Spectrum(self.values, self.vectors, self.counts)

    def _one_row(self, row: int, step: Stepper) -> bool:
        """One row, with the fast product of eigenvectors."""
        before = int(self.counts[0])
        if not step(row, row + 1, self._spectrum(), self._room):
            return False
        changes = int(self.counts[0]) - before
        for workspace in (self._room.first, self._room.second)[:changes]:
            self.vectors = eigenupdate.RankOneUpdate(workspace).applied(self.vectors)
        if self.counts[0] >= len(self.values):
            self._repair()
        return True


def squares_of(x: Array, relation: NDArray[np.int8], target: Array, rate: Array) -> Feedback:
    """Feedback on the squares x x^T of given rows."""
    from nearwise.linalg.loops.online import Feedback

    m, d = x.shape
    features, rows = np.zeros((m + 1, d)), np.full((m, 4), -1, np.int64)
    features[:m] = x
    rows[:, 0], rows[:, 1] = np.arange(m), m
    return Feedback(features, rows, relation, target, rate, False)


def part_of(feedback: Feedback, cut: slice) -> Feedback:
    """Some of its rows."""
    if cut.stop - cut.start == len(feedback.rows):
        return feedback
    columns = {name: getattr(feedback, name)[cut] for name in ("rows", "relation", "target", "rate")}
    return feedback._replace(**columns)


def _room(r: int) -> Room:
    from nearwise.linalg.loops.online_spectral import Room
    from nearwise.linalg.loops.secular import workspace

    k = r if r < eigenupdate.FAST_FROM else 0  # compiled loops change eigenvectors in it
    flat, one, other = np.empty(k * k), np.empty((k, k)), np.empty((k, k))
    return Room(workspace(r), workspace(r), np.zeros((5, r)), flat, one, other)
