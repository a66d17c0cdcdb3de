"""`isometric_embedding`: unfold a manifold, by a matrix divergence in place of the trace. KSD09 6.3.

Maximum variance unfolding seeks the centred kernel that keeps the distances of neighbours and has the largest
trace. Here it is the one nearest to a given kernel: to that of the lengths of shortest paths through the
graph of neighbours (the kernel of Isomap, whose distances of neighbours this corrects), or to a large
multiple of the centring matrix, where LogDet pushes all eigenvalues up and neighbours hold the rest together.
Centring is built into the features, a basis of the complement of the constant vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components, shortest_path

from nearwise._common import checks, reading
from nearwise._common.types import Array, Index
from nearwise.core import Divergence, LogDet, Problem, VonNeumann
from nearwise.linalg.directions import with_fixed_signs
from nearwise.linalg.scaling import inner_products
from nearwise.methods import Result, solve
from nearwise.side import constraints, drawing

_DIVERGENCES: dict[str, Divergence] = {"logdet": LogDet(), "vonneumann": VonNeumann()}


@dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """Coordinates, and what is lost by keeping only those.

    Attributes
    ----------
    coordinates : (n, n_components), centred, with falling variance
    variances : of all dimensions of the learned kernel, falling; sharply so where the manifold is flat
    pairs : (m, 2) the neighbours whose distances were to be kept
    distortion : the largest relative change of their squared distances in the learned kernel
    coordinate_distortion : the mean relative change of their distances (not squared) in `coordinates`, which
        lack what the other dimensions contribute and so are too close together
    result : of `solve`, with status and certificate
    """

    coordinates: Array
    variances: Array
    pairs: Index
    distortion: float
    coordinate_distortion: float
    result: Result

    def __repr__(self) -> str:
        kept = self.coordinates.shape[1]
        share = self.variances[:kept].sum() / self.variances.sum()
        return (
            f"<Embedding: {len(self.coordinates)} objects in {kept} dimensions, {share:.0%} of the variance, "
            f"{self.result.status.name}, distances of neighbours kept to {self.distortion:.1%} in the "
            f"kernel, off by {self.coordinate_distortion:.1%} on average in the coordinates>"
        )


def isometric_embedding(
    X: ArrayLike,
    n_components: int = 2,
    n_neighbors: int = 5,
    divergence: str = "logdet",
    penalty: float = 100.0,
    tol: float = 1e-4,
    start: str = "paths",
) -> Embedding:
    """Unfold data that lie near a curved surface, keeping the distances between neighbours in a kernel.

    Parameters
    ----------
    X : (n, d) data
    n_components : the number of coordinates
    n_neighbors : of each object, whose distances are kept; the graph that they form must be connected
    divergence : "logdet" or "vonneumann"
    penalty : the cost of changing a distance; larger ones keep distances better and take longer
    tol : the relative accuracy, see `solve`
    start : what is assumed of objects that are not neighbours. "paths": they are about as far apart as the
        shortest way from neighbour to neighbour, and the result is the map nearest to that in which
        neighbours keep their distances. It suits data that fill a surface. "centring" (KSD09 6.3): they are
        as far apart as neighbours allow. It needs no paths, which go astray around holes, but long surfaces
        come out bent, in more dimensions than they have.

    Only the given objects are placed. Time grows like n^3: for some hundred objects.
    """
    rows = reading.finite(X, "X", ndim=2)
    n = len(rows)
    checks.whole_number(n_components, "n_components", most=n - 1)
    checks.whole_number(n_neighbors, "n_neighbors", most=n - 1)
    checks.one_of(divergence, "divergence", tuple(_DIVERGENCES))
    checks.one_of(start, "start", ("paths", "centring"))
    checks.positive(penalty, "penalty")
    pairs, squared = _neighbours(rows, n_neighbors)
    basis = np.linalg.svd(np.ones((1, n)))[2][1:].T
    paths = _paths(pairs, squared, n)
    if start == "paths":
        values, V = np.linalg.eigh(basis.T @ inner_products(paths**2) @ basis)
        # directions that no path shows are given the size of a step, so that distances can be met there
        basis, prior = basis @ V, np.diag(np.maximum(values, float(np.median(squared))))
    else:
        prior = np.eye(n - 1) * float(paths.max()) ** 2
    side = constraints.equal(pairs, squared)
    found = solve(Problem(basis, side, _DIVERGENCES[divergence], prior, penalty), tol=tol)
    F = found.kernel_factor
    U, s, _ = np.linalg.svd(F, full_matrices=False)
    learned = np.sum((F[pairs[:, 0]] - F[pairs[:, 1]]) ** 2, axis=1)
    coordinates = with_fixed_signs(U[:, :n_components] * s[:n_components])
    distortion = float(np.abs(learned / squared - 1).max())
    shown = np.linalg.norm(coordinates[pairs[:, 0]] - coordinates[pairs[:, 1]], axis=1)
    shrunk = float(np.abs(shown / np.sqrt(squared) - 1).mean())
    return Embedding(coordinates, s**2 / n, pairs, distortion, shrunk, found)


def _neighbours(X: Array, n_neighbors: int) -> tuple[Index, Array]:
    """Every pair of an object and one of its nearest, once, and their squared distances."""
    every = np.arange(len(X))
    nearest = drawing.nearest_others(drawing.nearest_rows(X), every, every, n_neighbors)
    first = np.repeat(np.arange(len(X)), n_neighbors)
    pairs = np.unique(np.sort(np.stack([first, nearest.ravel()], axis=1), axis=1), axis=0)
    squared = np.sum((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2, axis=1)
    equal = np.flatnonzero(squared == 0)
    if equal.size:
        i, j = pairs[equal[0]]
        raise ValueError(f"rows {i} and {j} of X are equal; leave one of them out")
    return pairs, squared


def _paths(pairs: Index, squared: Array, n: int) -> Array:
    """The lengths of the shortest paths between all objects through the graph of the pairs."""
    graph = sparse.csr_array((np.sqrt(squared), tuple(pairs.T)), shape=(n, n))
    parts = connected_components(graph, directed=False)[0]
    if parts > 1:
        raise ValueError(f"the neighbours form {parts} parts that nothing holds together; raise n_neighbors")
    return np.asarray(shortest_path(graph, directed=False))
