"""Metrics in blocks: the columns of the features are in groups, and M is zero between different groups.

What a constraint says of such an M is the sum of what it says of each block, <A, M> = sum_g <A_gg, M_gg>: its
atoms become one atom per group, whose vectors are zero outside the group. The gradient of a divergence from a
prior in blocks is then in blocks itself, so that the optimum over all matrices is, and every solver,
certificate and proof of infeasibility holds as it stands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.memory import foresee
from nearwise._common.reading import column_groups, finite, symmetric
from nearwise._common.types import Array, Index
from nearwise.model import binding
from nearwise.model.atoms import Atoms
from nearwise.model.divergences import Divergence
from nearwise.model.measurements import InMemory
from nearwise.side.blocks import Constraints


def bind_in_groups(
    features: ArrayLike,
    constraints: Constraints,
    divergence: Divergence,
    prior: ArrayLike | None,
    sample_ids: ArrayLike | None,
    groups: ArrayLike,
) -> binding.BoundProblem:
    """As `binding.bind_problem`, for a matrix in blocks."""
    G = finite(features, "features", ndim=2)
    labels = column_groups(groups, G.shape[1])
    if prior is None:
        values, basis, of_values = np.ones(G.shape[1]), None, labels
    else:
        values, basis, of_values = _prior_in_groups(prior, labels, divergence)
    bound = binding.bound(G, constraints, divergence, values, basis, sample_ids)
    measurements = by_groups(bound.measurements, of_values)
    # a row costs what it costs a whole matrix, unless all of it lies between groups
    measured = measurements.sizes(binding.reference_of(values, divergence)) > 0
    sizes = np.where(measured, bound.sizes, 0.0)
    lost = binding.lost_rows(bound.relations, bound.bounds, sizes)
    return replace(bound, measurements=measurements, sizes=sizes, lost=lost, groups=labels)


def by_groups(measurements: InMemory, groups: Index) -> InMemory:
    """The same of the blocks of M alone; `groups` has the group of every column, as numbers from 0."""
    F, atoms, n_groups = measurements.features, measurements.atoms, int(groups.max(initial=0)) + 1
    foresee(8.0 * F.size * n_groups, f"{len(F):,} rows in {n_groups:,} groups of columns")
    rows = np.zeros((n_groups, *F.shape))
    for group in range(n_groups):
        rows[group][:, groups == group] = F[:, groups == group]
    # differences come first, whatever their group
    order = np.argsort(~np.tile(atoms.is_difference, n_groups), kind="stable")
    shift = np.repeat(len(F) * np.arange(n_groups), len(atoms.first))

    def repeated(values: Array | Index) -> Array:
        return np.asarray(np.tile(values, n_groups)[order])

    split = Atoms(
        (np.tile(atoms.first, n_groups) + shift)[order],
        (np.tile(atoms.second, n_groups) + shift)[order],
        repeated(atoms.coefficient),
        repeated(atoms.row),  # type: ignore[arg-type]
        n_groups * atoms.n_differences,
        atoms.n_rows,
        atoms.definite,
        atoms.general,
    )
    return replace(measurements, features=rows.reshape(-1, F.shape[1]), atoms=split)


def within_groups(factor: Array, groups: Index) -> Array:
    """A factor of the blocks of M = factor factor^T alone, with as many columns as rows, in the same groups.

    `groups` has the group of every row, as numbers from 0.
    """
    out = np.zeros(2 * (len(factor),))
    for group in range(int(groups.max(initial=-1)) + 1):
        own = np.flatnonzero(groups == group)
        R = np.asarray(np.linalg.qr(factor[own].T, mode="r"), dtype=np.float64)
        out[np.ix_(own, own[: len(R)])] = R.T
    return out


def _prior_in_groups(prior: ArrayLike, groups: Index, divergence: Divergence) -> tuple[Array, Array, Index]:
    """Eigenvalues and eigenvectors of a prior in blocks, each of one block, and the group of each."""
    M0 = symmetric(prior, "prior")
    d = len(groups)
    if M0.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)} like the features' columns, got {M0.shape}")
    between = np.argwhere((groups[:, None] != groups) & (M0 != 0))
    if len(between):
        i, j = (int(k) for k in between[0])
        raise ValueError(
            f"prior must be zero between groups of columns, got {M0[i, j]:.6g} in row {i}, column {j}"
        )
    values, vectors, of_values = [], [], []
    for group in range(int(groups.max(initial=0)) + 1):
        columns = np.flatnonzero(groups == group)
        block = M0[np.ix_(columns, columns)]
        if not block.any() and M0.any() and binding.confines(divergence):
            continue  # M is zero there too
        found, inside = binding.checked_prior(block, len(columns), divergence)
        assert inside is not None
        whole = np.zeros((d, len(found)))
        whole[columns] = inside
        values.append(found)
        vectors.append(whole)
        of_values.append(np.full(len(found), group))
    return np.concatenate(values), np.hstack(vectors), np.concatenate(of_values)
