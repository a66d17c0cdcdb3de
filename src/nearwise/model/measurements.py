"""Constraints bound to features: the linear map M -> <A_i, M> and its adjoint.

The atoms of the constraints (see `atoms`) are the edges of a graph on the rows of the features F, so
<A_i, B B^T> needs H = F B once and then differences of rows of H, and sum_i w_i A_i is F^T W F with a sparse
W, or a sum of squares where that is less. Its cost is O(n r^2 + m r) for m constraints on n objects, and no
m x r array is built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.model.atoms import Atoms, SignedSquares, constraint_atoms
from nearwise.model.local import (
    SINGLE,
    LocalAtoms,
    drawn_rows,
    fill_differences,
    in_blocks,
    sum_by,
    sum_of_atoms,
    turned,
)
from nearwise.model.sizes import size_of_both_signs
from nearwise.side.blocks import Bindable

_BLOCK = 1 << 17  # numbers in a block of gathered rows: small enough to stay in the cache
_TRIED, _ROUGH = 1000, 1e-4  # differences tried in single precision, and the error that they may have
_FEW = 20_000  # numbers in the vectors of all atoms, up to which they are written out
_COMPILED = 1_000_000  # numbers touched in one pass, from which on a compiled loop is worth its start-up


class Measurements(Protocol):
    """The map M -> (<A_1, M>, ..., <A_m, M>) as certificates and solvers see it, wherever its rows are kept.

    What has a number per row is an array of m numbers; the rows themselves come in blocks, as `local` writes
    them out. Rows in pieces on disk or on other machines (`InBlocks`) have of it what Newton's method uses of
    soft rows; there values and multipliers are what the numbers are computed from, and only measurements and
    losses look inside.
    """

    @property
    def n_rows(self) -> int:
        """m."""

    @property
    def rank(self) -> int:
        """r, the order of M."""

    @property
    def is_definite(self) -> Mask:
        """Whether A_i is known to be positive semidefinite, and its value so never negative."""

    @property
    def offsets(self) -> Array | None:
        """What is added to the values, or None: parts of them that do not depend on M."""

    def values(self, M: Array) -> Array:
        """<A_i, M> for every row, M symmetric, plus `offsets`."""

    def values_of_factor(self, B: Array) -> Array:
        """<A_i, B B^T> for every row, plus `offsets`; more exact, because squares do not cancel."""

    def shifted(self, values: Array) -> Array:
        """Values of the linear part, plus `offsets`."""

    def adjoint(self, weights: Array) -> Array:
        """sum_i weights_i A_i, an r x r matrix."""

    def local(self, rows: Index, basis: Array, dtype: type) -> LocalAtoms:
        """The given rows as sums of atoms, whose vectors x become basis^T x."""

    def sizes(self, diagonal: Array) -> Array:
        """The size of every row's parts under M = diag(diagonal), which bounds |<A_i, M>|."""

    def parts_of_factor(self, B: Array) -> Array:
        """What the magnitudes of the parts of <A_i, B B^T> add up to: rounding errors are relative to it."""

    def curved(
        self, curvature: Array, most: int, rng: np.random.Generator, basis: Array, single: bool
    ) -> tuple[LocalAtoms, Array, bool]:
        """The rows with a curvature in a basis, with their curvatures, for Newton's system.

        Where there are more than `most`, a sample of that many, whose weights make up for the others, and
        True. Where there are many numbers and `single`, they come in single precision.
        """

    def weight(self, dual: Array, B: Array, values: Array | None = None) -> float:
        """sum_i |dual_i| times the magnitudes of the parts of <A_i, B B^T>: what rounding is relative to.

        `values` are those of B where they are known.
        """

    def spanning_rows(self) -> Array:
        """Vectors that span the range of every A_i; not many more than r where that is cheap."""

    def in_coordinates(self, T: Array, unit: float = 1.0, own_workspace: bool = False) -> Measurements:
        """Those of M' where M = T M' T^T, for a matrix T or the diagonal of one; offsets in another unit.

        `own_workspace` where memory may be set aside for them, because one thread uses them again and again.
        """


@dataclass(frozen=True, eq=False)
class InMemory:
    """`Measurements` whose features and atoms are arrays, and to whose values constants may be added.

    Attributes
    ----------
    features : F, the rows that atoms refer to
    atoms : differences first, then products
    offsets : None, or what is added to the values: parts of them that do not depend on M
    workspace : None, or an array of the shape of `features` that `values_of_factor` may overwrite; then
        the object must not be used by two threads at once
    """

    features: Array
    atoms: Atoms
    workspace: Array | None = None
    offsets: Array | None = None

    @property
    def n_rows(self) -> int:
        """m."""
        return self.atoms.n_rows

    @property
    def rank(self) -> int:
        """r, the order of M."""
        return int(self.features.shape[1])

    @property
    def is_definite(self) -> Mask:
        """Whether A_i is known to be positive semidefinite, and its value so never negative."""
        definite = self.atoms.is_definite
        return definite if self.offsets is None else definite & (self.offsets >= 0)

    def values(self, M: Array) -> Array:
        """<A_i, M> for every row, M symmetric, plus `offsets`."""
        return self._values(self.features @ M, self.features)

    def values_of_factor(self, B: Array) -> Array:
        """<A_i, B B^T> for every row, plus `offsets`; more exact than `values`."""
        if (vectors := self.vectors) is not None:
            x = vectors[0] @ B
            return self._per_row(np.einsum("ij,ij->i", x, x if vectors[1] is vectors[0] else vectors[1] @ B))
        F: NDArray[Any] = self.features
        H = self.workspace if self.workspace is not None and B.shape == 2 * (self.rank,) else None
        if H is None:
            H = np.empty((len(F), B.shape[1]), F.dtype)
        cast = B.astype(F.dtype, copy=False)
        in_blocks(len(H), lambda block: np.matmul(F[block], cast, out=H[block]), self._large)
        return self._values(H, H)

    def shifted(self, values: Array) -> Array:
        """Values of the linear part, plus `offsets`."""
        return values if self.offsets is None else values + self.offsets

    def adjoint(self, weights: Array) -> Array:
        """sum_i weights_i A_i, an r x r matrix."""
        per_atom = self.atoms.coefficient * weights[self.atoms.row]
        if self.vectors is None:
            return sum_of_atoms(self.features, self.atoms, per_atom, self._large)
        x, y = self.vectors
        total: Array = (x.T * per_atom) @ y
        return (total + total.T) / 2

    @cached_property
    def vectors(self) -> tuple[Array, Array] | None:
        """Those of all atoms, x and y, where they are few; the same object where every atom is a square."""
        return self._written_out() if len(self.atoms.first) * self.rank <= _FEW else None

    def _written_out(self) -> tuple[Array, Array]:
        atoms, d = self.atoms, self.atoms.n_differences
        x, y = self.features.take(atoms.first, axis=0), self.features.take(atoms.second, axis=0)
        x[:d] -= y[:d]
        if d == len(x) or not np.count_nonzero(atoms.first[d:] != atoms.second[d:]):
            return x, x
        y[:d] = x[:d]
        return x, y

    def local(self, rows: Index, basis: Array, dtype: type) -> LocalAtoms:
        """The atoms of the given rows, as vectors basis^T x, basis^T y."""
        atoms = self.atoms
        if atoms.of_row is not None:
            chosen, local_row = atoms.of_row[rows], None
        else:
            place = np.full(self.n_rows, -1)
            place[rows] = np.arange(len(rows))
            chosen = np.flatnonzero(place[atoms.row] >= 0)
            local_row = place[atoms.row[chosen]]
        cast: NDArray[Any] = basis.astype(dtype)
        coefficient: NDArray[Any] = atoms.coefficient[chosen].astype(dtype)
        if (vectors := self.vectors) is not None:
            x = vectors[0][chosen].astype(dtype, copy=False) @ cast
            squares = vectors[1] is vectors[0]
            y = x if squares else vectors[1][chosen].astype(dtype, copy=False) @ cast
            return LocalAtoms(x, y, coefficient, local_row, len(rows))
        first, second = atoms.first[chosen], atoms.second[chosen]
        difference = atoms.is_difference[chosen]
        if difference.all():
            x = self._differences(first, second, dtype) @ cast
            return LocalAtoms(x, x, coefficient, local_row, len(rows))
        left, right = self.features[first], self.features[second]
        left[difference] -= right[difference]
        right[difference] = left[difference]
        x = left.astype(dtype, copy=False) @ cast
        y = x if (left == right).all() else right.astype(dtype, copy=False) @ cast
        return LocalAtoms(x, y, coefficient, local_row, len(rows))

    def in_order(self) -> LocalAtoms:
        """The atoms of all rows, those of one row beside each other."""
        atoms, order = self.atoms, self.atoms.in_order
        vectors = self.vectors or self._written_out()
        x = vectors[0][order]
        y = x if vectors[1] is vectors[0] else vectors[1][order]
        row = None if atoms.of_row is not None else atoms.row[order]
        return LocalAtoms(x, y, atoms.coefficient[order], row, self.n_rows)

    def curved(
        self, curvature: Array, most: int, rng: np.random.Generator, basis: Array, single: bool
    ) -> tuple[LocalAtoms, Array, bool]:
        """The rows with a curvature in a basis, and their curvatures; of many a sample."""
        rows = np.flatnonzero(curvature)
        weights = curvature[rows]
        sampled = len(rows) > most
        if sampled:
            share, chosen = len(rows) / most, drawn_rows(len(rows), most, rng)
            rows, weights = rows[chosen], weights[chosen] * share
        few = not single or len(rows) * basis.shape[1] <= SINGLE
        return self.local(rows, basis, np.float64 if few else np.float32), weights, sampled

    def weight(self, dual: Array, B: Array, values: Array | None = None) -> float:
        """sum_i |dual_i| times `parts_of_factor`."""
        known = values is not None and self.offsets is None and self.is_definite.all()
        return float(np.abs(dual) @ (values if known else self.parts_of_factor(B)))

    def in_coordinates(self, T: Array, unit: float = 1.0, own_workspace: bool = False) -> InMemory:
        """Those of M' where M = T M' T^T, for a matrix T or the diagonal of one; offsets in another unit."""
        offsets = None if self.offsets is None else self.offsets / unit
        if (vectors := self.vectors) is None:
            features = turned(self.features, T)
            workspace = np.empty_like(features) if own_workspace else None
            return InMemory(features, self.atoms, workspace, offsets)
        moved = InMemory(turned(self.features, T), self.atoms, None, offsets)
        x = turned(vectors[0], T)
        # as they would be written out, but for digits that differences lose
        moved.__dict__["vectors"] = x, x if vectors[1] is vectors[0] else turned(vectors[1], T)
        return moved

    def in_single_precision(self) -> InMemory | None:
        """The same for rough values and sums, at half the cost; None where that gains little or loses much.

        Values and sums come in double precision, and are as exact as single precision allows.
        """
        if not self._large or self.atoms.n_differences < len(self.atoms.first):
            return None
        features: Any = self.features.astype(np.float32)
        rough = replace(self, features=features, workspace=np.empty_like(features))
        some = slice(None, None, max(1, len(self.atoms.first) // _TRIED))
        first, second = self.atoms.first[some], self.atoms.second[some]
        exact, single = (rows._differences(first, second, np.float64) for rows in (self, rough))
        error, size = (np.einsum("ij,ij->i", x, x) for x in (single - exact, exact))
        return rough if bool(np.all(error <= _ROUGH**2 * size)) else None

    @cached_property
    def squares(self) -> SignedSquares:
        """Every A_i as signed squares of sums and differences of rows of F."""
        return self.atoms.squares()

    def squares_of(self, row: int) -> tuple[Array, Array]:
        """One row as A = X^T diag(c) X: X and c."""
        s, F = self.squares, self.features
        part = slice(int(s.start[row]), int(s.start[row + 1]))
        return F[s.first[part]] + s.sign[part, None] * F[s.second[part]], s.coefficient[part]

    def spanning_rows(self) -> Array:
        """Vectors that span the range of every A_i; as few as the atoms or the rows of F allow."""
        atoms, d = self.atoms, self.atoms.n_differences
        if d + 2 * (len(atoms.first) - d) >= len(self.features):
            return self.features
        x, y = self.vectors or self._written_out()
        return x if x is y else np.concatenate([x, y[d:]])

    @np.errstate(over="ignore", invalid="ignore")
    def sizes(self, diagonal: Array) -> Array:
        """The size of every row's parts under M = diag(diagonal), which bounds |<A_i, M>|; inf if too large.

        d(i, j) for a distance, d(i, j) + d(k, l) for a comparison, sqrt(K_ii K_jj) for an inner product, with
        the sum of these over the blocks of M where it has blocks, and for a general A the sum of the
        magnitudes of the eigenvalues of M^1/2 A M^1/2.
        """
        root = np.sqrt(diagonal)
        sizes = self._parts(root)
        if len(self.atoms.general):
            size_of_both_signs(sizes, self.features, self.atoms, root)
        return sizes

    def parts_of_factor(self, B: Array) -> Array:
        """What the magnitudes of the parts of <A_i, B B^T> add up to: rounding errors are relative to it."""
        return self._parts(B)

    @cached_property
    def sizes_before_differences(self) -> Array:
        """|A_i| with |f_i| + |f_j| for the length of a difference f_i - f_j."""
        atoms, norm = self.atoms, np.sqrt(np.einsum("ij,ij->i", self.features, self.features))
        of_atoms = np.abs(atoms.coefficient) * (norm[atoms.first] + norm[atoms.second]) ** 2
        return sum_by(atoms.row, of_atoms, self.n_rows)

    @cached_property
    def _large(self) -> bool:
        return len(self.atoms.first) * self.features.shape[1] >= _COMPILED

    def _parts(self, T: Array) -> Array:
        """`parts_of_factor` for a matrix T or the diagonal of one."""
        atoms, d = self.atoms, self.atoms.n_differences
        if (vectors := self.vectors) is None:
            H = turned(self.features, T)
            norm = np.sqrt(np.einsum("ij,ij->i", H, H))
            parts = np.concatenate([self._distances(H), norm[atoms.first[d:]] * norm[atoms.second[d:]]])
        else:
            x = turned(vectors[0], T)
            parts = np.einsum("ij,ij->i", x, x)
            if vectors[1] is not vectors[0]:
                y = turned(vectors[1], T)
                parts = np.sqrt(parts) * np.sqrt(np.einsum("ij,ij->i", y, y))
        return sum_by(atoms.row, np.abs(atoms.coefficient) * parts, self.n_rows)

    def _values(self, left: Array, right: Array) -> Array:
        """`values`, where `left` holds F M (or F B) and `right` F (or F B)."""
        atoms, d = self.atoms, self.atoms.n_differences
        of_atom = np.empty(len(atoms.first))  # x^T M y
        of_atom[:d] = self._distances(left) if left is right else self._bilinear(left, right, 0, d, True)
        if d < len(of_atom):
            of_atom[d:] = self._bilinear(left, right, d, len(of_atom), False)
        return self._per_row(of_atom)

    def _per_row(self, of_atom: Array) -> Array:
        """Values from those of the atoms, x^T M y."""
        place = self.atoms.of_row
        of_atom *= self.atoms.coefficient
        return self.shifted(sum_by(self.atoms.row, of_atom, self.n_rows) if place is None else of_atom[place])

    def _distances(self, H: Array) -> Array:
        first, second, d = self.atoms.first, self.atoms.second, self.atoms.n_differences
        if not self._large:
            return self._bilinear(H, H, 0, d, True)
        from nearwise.linalg.loops.graph import squared_distances

        out = np.empty(d)
        in_blocks(d, lambda block: squared_distances(H, first[block], second[block], out[block]), True)
        return out

    def _bilinear(self, left: Array, right: Array, low: int, high: int, difference: bool) -> Array:
        atoms = self.atoms
        out = np.empty(high - low)
        step = max(1, _BLOCK // max(left.shape[1], 1))
        for begin in range(low, high, step):
            block = slice(begin, min(begin + step, high))
            i, j = atoms.first[block], atoms.second[block]
            if difference:
                a = left.take(i, axis=0) - left.take(j, axis=0)
                b = a if left is right else right.take(i, axis=0) - right.take(j, axis=0)
            else:
                a, b = left.take(i, axis=0), right.take(j, axis=0)
            np.einsum("ij,ij->i", a, b, out=out[block.start - low : block.stop - low])
        return out

    def _differences(self, first: Index, second: Index, dtype: type) -> NDArray[Any]:
        out: NDArray[Any] = np.empty((len(first), self.rank), dtype)
        F, large = self.features, self._large and out.size >= _COMPILED // 2
        in_blocks(len(first), lambda b: fill_differences(F, first[b], second[b], out[b], large), large)
        return out


def in_memory(measurements: Measurements, solver: str) -> InMemory:
    """The same, for a solver that goes over the rows one by one; TypeError where they are elsewhere."""
    if not isinstance(measurements, InMemory):
        raise TypeError(
            f"{solver} goes over the constraints one by one and needs them in memory, "
            f"got {type(measurements).__name__}; nearwise.solvers.Newton() takes them in blocks"
        )
    return measurements


def bind(
    blocks: Bindable, features: Array, basis: Array | None = None, scale: Array | None = None
) -> InMemory:
    """The measurements of resolved constraint blocks. Objects without a constraint are left out.

    With `basis`, those of M' where M = basis M' basis^T; `scale` as in `constraint_atoms`.
    """
    return InMemory(*constraint_atoms(blocks, features, basis, scale))
