"""Products with a Cauchy-like matrix, out_j = sum_k weight_k B_k / ((pole_k - root_j) norm_j), in O(r^2).

These are the eigenvectors of a rank-one update applied to all rows of W^T at once, KSD09 algorithm 3, step 9,
by a fast multipole method on the line. Poles and roots each form a tree of intervals, halved down to a few
points. Far from an interval, 1 / (pole - root) is interpolated at Chebyshev points of it: on the side of the
poles, of the roots, or of both. What is not far is multiplied out. Every step is a matrix product with r
columns.

With q points the interpolant of 1 / (x - y) on [-1, 1] is (1 - T_q(x) / T_q(y)) / (x - y), exactly, so its
relative error is at most 1 / T_q(FAR) for |y| >= FAR, whatever the distribution of the points. A root is an
offset from a pole, and positions are only ever compared by differences of poles and offsets, so that clusters
are resolved to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from nearwise._common.threads import blas_threads, one_blas_thread
from nearwise._common.types import Array, Index

if TYPE_CHECKING:
    from nearwise.linalg.loops.secular import Workspace


_LEAF = 96  # points in an interval that is not halved any more
_NODES = 18  # Chebyshev points, q: 1 / T_q(FAR) = 3e-14
_FAR = 3.0  # distance from the middle of an interval, in halves of its length
_COLUMNS = 1024  # of B that are multiplied at a time, so that what belongs to them stays in the cache
_FEWEST_COLUMNS = 256  # that are worth a thread of their own
_SMALLEST = 1e-290  # half a length, so that one may divide by it


# An operation: rows of an array, and the products whose sum they become, of matrices with rows of arrays.
_POINTS, _MOMENTS, _FIELDS, _OUT = 0, 1, 2, 3  # the arrays: B, values at Chebyshev points twice, the result
_Place = tuple[int, slice]
_Operation = tuple[_Place, list[tuple[Array, _Place]]]


def cauchy_product(ws: Workspace, B: Array, out: Array) -> None:
    """The product, for the active poles and roots of a decomposition; B has one row per active pole.

    Columns are split among the threads that BLAS would use. BLAS itself is kept to one, because threads that
    meet after each of many small products wait for each other most of the time.
    """
    n, r = B.shape
    operations = plan(ws, n)
    threads = blas_threads()
    workers = max(1, min(threads, r // _FEWEST_COLUMNS))
    width = -(-r // max(workers, round(r / _COLUMNS)))
    blocks = [slice(first, first + width) for first in range(0, r, width)]

    def run(columns: slice) -> None:
        _run(operations, B[:, columns], out[:, columns])

    with one_blas_thread(threads > 1):
        if workers == 1:
            for columns in blocks:
                run(columns)
        else:
            with ThreadPoolExecutor(workers) as executor:
                list(executor.map(run, blocks))


def _run(operations: list[_Operation], B: Array, out: Array) -> None:
    """The operations on a few columns."""
    width = B.shape[1]
    heights = [
        max((rows.stop for (array, rows), _ in operations if array == k), default=0)
        for k in (_MOMENTS, _FIELDS)
    ]
    moments, fields, term = (np.empty((height, width)) for height in (*heights, max(_LEAF, _NODES)))
    arrays = (B, moments, fields, out)
    for (array, rows), parts in operations:
        here = arrays[array][rows]
        product = here
        for matrix, (other, other_rows) in parts:
            np.matmul(matrix, arrays[other][other_rows], out=product)
            if product is not here:
                here += product
            product = term[: len(here)]


def plan(ws: Workspace, n: int) -> list[_Operation]:
    """The operations of a product with n active poles, in order."""
    sources = _Tree(ws.pole[:n], np.arange(n), np.zeros(n))
    targets = _Tree(ws.pole[:n], ws.origin[:n], ws.offset[:n])
    _meet(sources, targets)
    matrices = targets.interpolations()
    return [
        *_gather(ws, sources),
        *_collect(ws, sources, targets, matrices),
        *_evaluate(ws, sources, targets, matrices),
    ]


@dataclass(eq=False)
class _Interval:
    """An interval of a tree: the points first <= i < last, and how sources act on it if it is a target.

    Children are numbered one after the other, so that their expansions are neighbours in memory.
    """

    first: int
    last: int
    half: float  # of its length
    parent: int
    children: int = -1  # the number of the left one; the right one follows
    expanded: bool = False  # whether its Chebyshev points are in use
    near: list[tuple[int, int]] = field(default_factory=list)  # points to points; ranges of sources
    far: list[int] = field(default_factory=list)  # from Chebyshev points of these sources to its own
    far_from_source: list[int] = field(default_factory=list)  # from Chebyshev points to points
    far_from_target: list[int] = field(default_factory=list)  # from points to Chebyshev points

    @property
    def size(self) -> int:
        return self.last - self.first

    @property
    def points(self) -> slice:
        return slice(self.first, self.last)


class _Tree:
    """Intervals of ascending points, each given as an offset from a pole; the first is the whole."""

    def __init__(self, pole: Array, origin: Index, offset: Array) -> None:
        self.base, self.offset = pole[origin], offset
        self._bases, self._offsets = self.base.tolist(), offset.tolist()  # numbers are read faster from lists
        self.intervals = [self._interval(0, len(origin), -1)]
        for number, interval in enumerate(self.intervals):  # which grows meanwhile
            if interval.size > _LEAF and interval.half > _SMALLEST:
                cut = self._cut(interval)
                interval.children = len(self.intervals)
                self.intervals.append(self._interval(interval.first, cut, number))
                self.intervals.append(self._interval(cut, interval.last, number))

    def minus(self, i: int, other: _Tree, j: int) -> float:
        """Point i of this tree minus point j of another."""
        difference: float = (self._bases[i] - other._bases[j]) + (self._offsets[i] - other._offsets[j])
        return difference

    def from_first(self, interval: _Interval) -> Array:
        """The interval's points, as distances from its left end."""
        i, points = interval.first, interval.points
        return (self.base[points] - self.base[i]) + (self.offset[points] - self.offset[i])

    def interpolations(self) -> dict[int, Array]:
        """For every interval in use: from values at its Chebyshev points to values at what it consists of.

        That is its points, or the Chebyshev points of its two children.
        """
        used = [number for number, interval in enumerate(self.intervals) if interval.expanded]
        parts = [self._parts(self.intervals[number]) for number in used]
        ends = np.cumsum([len(part) for part in parts])
        every = _interpolation(np.concatenate([np.empty(0), *parts]))
        return dict(zip(used, np.split(every, ends[:-1]), strict=True)) if used else {}

    def _parts(self, interval: _Interval) -> Array:
        """What the interval consists of, in coordinates in which it is [-1, 1]."""
        if interval.children < 0:
            return self.from_first(interval) / interval.half - 1.0
        parts = []
        for child in self.intervals[interval.children : interval.children + 2]:
            parts.append(self.minus(child.first, self, interval.first) + (1.0 + _nodes()) * child.half)
        return np.concatenate(parts) / interval.half - 1.0

    def _interval(self, first: int, last: int, parent: int) -> _Interval:
        return _Interval(first, last, max(self.minus(last - 1, self, first) / 2, _SMALLEST), parent)

    def _cut(self, interval: _Interval) -> int:
        """The first point in the right half."""
        cut = int(np.searchsorted(self.from_first(interval), interval.half, side="right"))
        return interval.first + min(max(cut, 1), interval.size - 1)


def _meet(sources: _Tree, targets: _Tree) -> None:
    """Decide for every two intervals how one acts on the other, from the whole downwards."""
    q = _NODES
    pending = [(0, 0)]
    while pending:
        i, j = pending.pop()
        source, target = sources.intervals[i], targets.intervals[j]
        far_from_source, far_from_target = _is_far(sources, source, targets, target)
        if far_from_source and far_from_target and source.size * target.size > q * q:
            target.far.append(i)
            source.expanded = target.expanded = True
        elif far_from_source and target.children < 0 and source.size > q:
            target.far_from_source.append(i)
            source.expanded = True
        elif far_from_target and source.children < 0 and target.size > q:
            target.far_from_target.append(i)
            target.expanded = True
        elif source.children < 0 and target.children < 0:
            target.near.append((source.first, source.last))
        elif target.children < 0 or (source.children >= 0 and source.half >= target.half):
            pending += [(source.children + 1, j), (source.children, j)]
        else:
            pending += [(i, target.children + 1), (i, target.children)]
    for source in sources.intervals:  # what a parent's expansion is made of, and what it is handed down to
        if source.expanded and source.children >= 0:
            for child in sources.intervals[source.children : source.children + 2]:
                child.expanded = True
    for target in targets.intervals[1:]:
        target.expanded = target.expanded or targets.intervals[target.parent].expanded


def _is_far(sources: _Tree, source: _Interval, targets: _Tree, target: _Interval) -> tuple[bool, bool]:
    """Whether the target is far from the source, and whether the source is far from the target."""
    left = targets.minus(target.first, sources, source.last - 1)
    right = sources.minus(source.first, targets, target.last - 1)
    gap = max(left, right)  # negative where they overlap
    return gap >= (_FAR - 1.0) * source.half, gap >= (_FAR - 1.0) * target.half


def _gather(ws: Workspace, sources: _Tree) -> Iterator[_Operation]:
    """Moments: weights at the Chebyshev points of sources that act like the sources inside, from far away."""
    for number, matrix in reversed(sources.interpolations().items()):
        source = sources.intervals[number]
        if source.children < 0:
            weighted = matrix * ws.weight[source.points, None]
            yield _expansion(_MOMENTS, number), [(weighted.T, (_POINTS, source.points))]
        else:
            yield _expansion(_MOMENTS, number), [(matrix.T, _expansion(_MOMENTS, source.children, 2))]


def _collect(
    ws: Workspace, sources: _Tree, targets: _Tree, matrices: dict[int, Array]
) -> Iterator[_Operation]:
    """Fields: values at the Chebyshev points of targets, of all that is far from them."""
    for number in matrices:
        target = targets.intervals[number]
        parts: list[tuple[Array, _Place]] = []
        if target.parent in matrices:
            half = number - targets.intervals[target.parent].children
            handed = matrices[target.parent][half * _NODES : (half + 1) * _NODES]
            parts.append((handed, _expansion(_FIELDS, target.parent)))
        y = ((1.0 + _nodes()) * target.half)[:, None]
        for first, last in _joined([(i, i + 1) for i in target.far]):
            x = np.concatenate([_source_nodes(sources, i, targets, target) for i in range(first, last)])
            parts.append((1.0 / (x - y), _expansion(_MOMENTS, first, last - first)))
        for i in target.far_from_target:
            source = sources.intervals[i]
            x = sources.minus(source.first, targets, target.first) + sources.from_first(source)
            parts.append((ws.weight[source.points] / (x - y), (_POINTS, source.points)))
        yield _expansion(_FIELDS, number), parts


def _evaluate(
    ws: Workspace, sources: _Tree, targets: _Tree, matrices: dict[int, Array]
) -> Iterator[_Operation]:
    """The product itself: near sources, fields and moments at the points of the targets."""
    from nearwise.linalg.loops.secular import fill_block

    for number, target in enumerate(targets.intervals):
        if target.children >= 0:
            continue
        norm = ws.norm[target.points, None]
        parts: list[tuple[Array, _Place]] = []
        for first, last in _joined(target.near):
            block = np.empty((target.size, last - first))
            fill_block(ws, target.first, first, block)
            parts.append((block, (_POINTS, slice(first, last))))
        if target.expanded:
            parts.append((matrices[number] / norm, _expansion(_FIELDS, number)))
        y = targets.from_first(target)[:, None]
        for i in target.far_from_source:
            x = _source_nodes(sources, i, targets, target)
            parts.append((1.0 / ((x - y) * norm), _expansion(_MOMENTS, i)))
        yield (_OUT, target.points), parts


def _expansion(array: int, number: int, count: int = 1) -> _Place:
    """The rows that belong to the Chebyshev points of an interval, or of a few with consecutive numbers."""
    return array, slice(number * _NODES, (number + count) * _NODES)


def _source_nodes(sources: _Tree, i: int, targets: _Tree, target: _Interval) -> Array:
    """The Chebyshev points of a source, as distances from the left end of a target."""
    source = sources.intervals[i]
    return sources.minus(source.first, targets, target.first) + (1.0 + _nodes()) * source.half


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, those that touch made one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined


@cache
def _nodes() -> Array:
    """Chebyshev points in (-1, 1)."""
    return np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)


@cache
def _coefficients() -> Array:
    """From values at the Chebyshev points to coefficients of Chebyshev polynomials, transposed."""
    weights = np.full(_NODES, 2.0 / _NODES)
    weights[0] = 1.0 / _NODES
    return weights[:, None] * np.polynomial.chebyshev.chebvander(_nodes(), _NODES - 1).T


def _interpolation(x: Array) -> Array:
    """Row by row, what the values at the Chebyshev points contribute to the value at each x in [-1, 1]."""
    return np.polynomial.chebyshev.chebvander(x, _NODES - 1) @ _coefficients()
