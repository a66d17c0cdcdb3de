"""Kernel spectral regression (KSR): Cai, He and Han 2007, as MBS11 10.2.2 uses it.

A graph of similar objects gives targets, the leading eigenvectors of its normalised adjacency matrix; each is
fitted by a regularised regression in the kernel, and the fitted values are the coordinates.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

from nearwise._common.types import Array, Index

REGULARISATION = 0.01  # delta of the authors' own program
NEIGHBOURS = 5  # of the graph, MBS11 10.2.2


def kernel_spectral_regression(K: Array, similar: Index, dissimilar: Index, rank: int, seed: int) -> Array:
    """(n, rank) coordinates of the objects of a kernel matrix K, given pairs of similar and dissimilar ones.

    The graph joins every object to its nearest five under K and to those that it is similar to, and to none
    that it is dissimilar to.
    """
    targets = leading_eigenvectors(similarity_graph(K, similar, dissimilar), rank, seed)
    system = K + REGULARISATION * np.mean(np.diag(K)) * np.eye(len(K))
    return np.asarray(K @ linalg.solve(system, targets, assume_a="pos"))


def similarity_graph(K: Array, similar: Index, dissimilar: Index) -> sparse.csr_array:
    """N of MBS11 10.2.2: 0 or 1, symmetric."""
    n = len(K)
    squares = np.diag(K)[:, None] + np.diag(K) - 2 * K
    np.fill_diagonal(squares, np.inf)
    near = np.argpartition(squares, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    rows = np.concatenate([np.repeat(np.arange(n), NEIGHBOURS), similar[:, 0]])
    columns = np.concatenate([near.ravel(), similar[:, 1]])
    joined = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    joined = joined + joined.T
    apart = sparse.csr_array((np.ones(len(dissimilar)), (dissimilar[:, 0], dissimilar[:, 1])), shape=(n, n))
    apart = apart + apart.T
    return sparse.csr_array((joined > 0) > (apart > 0), dtype=np.float64)


def leading_eigenvectors(N: sparse.csr_array, rank: int, seed: int) -> Array:
    """Of N y = lambda D y with the degrees D, without the constant one, which says nothing."""
    degrees = np.asarray(N.sum(axis=1)).ravel()
    root = np.sqrt(np.maximum(degrees, 1e-12))  # an object may have lost all its edges
    scaled = sparse.diags_array(1 / root) @ N @ sparse.diags_array(1 / root)
    start = np.random.RandomState(seed).standard_normal(len(root))
    values, vectors = eigsh(scaled, k=rank + 1, which="LA", v0=start)
    vectors = vectors[:, np.argsort(values)[::-1]]
    # where the graph falls into pieces the constant one is only in the span of the first eigenvectors
    constant = root / np.linalg.norm(root)
    vectors = np.linalg.svd(vectors - np.outer(constant, constant @ vectors), full_matrices=False)[0]
    return np.asarray(vectors[:, :rank] / root[:, None])
