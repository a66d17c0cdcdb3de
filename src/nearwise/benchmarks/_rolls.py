"""Swiss rolls sampled at random, unrolled by nearwise and by scikit-learn's methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import nearwise as nw
from nearwise._common.types import Array
from nearwise.benchmarks._tables import Row, Table

WIDTH = 10.0
NEIGHBOURS = 7


def unrolled(n: int, count: int) -> Table:
    """How well coordinates along and across the sheet are recovered, by method and roll."""
    from sklearn.manifold import Isomap, LocallyLinearEmbedding

    unfold = partial(nw.isometric_embedding, n_components=2, n_neighbors=NEIGHBOURS, tol=1e-3)
    methods: dict[str, Callable[[Array], Array]] = {
        "nearwise": lambda X: unfold(X).coordinates,
        "nearwise, from centring": lambda X: unfold(X, start="centring").coordinates,
        "Isomap": Isomap(n_neighbors=NEIGHBOURS).fit_transform,
        "LLE": LocallyLinearEmbedding(n_neighbors=NEIGHBOURS, random_state=0).fit_transform,
    }
    table = Table(
        f"swiss rolls of {n} random points, {NEIGHBOURS} neighbours",
        [
            f"the sheet is 90 long and {WIDTH:g} wide, its layers 6 apart; correlation of the place along "
            "and across it with the best linear function of the two coordinates, over the rolls",
        ],
    )
    rolls = [roll(n, seed) for seed in range(count)]
    for name, method in methods.items():
        begin = time.perf_counter()
        scores = np.array([recovered(method(X), places) for X, places in rolls])
        seconds = (time.perf_counter() - begin) / count
        row: Row = {"method": name, "seconds": seconds}
        for axis, found in zip(("along", "across"), scores.T, strict=True):
            row |= {f"{axis}, median": float(np.median(found)), f"{axis}, worst": float(found.min())}
        table.rows.append(row)
    return table


def roll(n: int, seed: int) -> tuple[Array, Array]:
    """Points, and their places along and across the sheet."""
    rng = np.random.default_rng(seed)
    turn = 1.5 * np.pi * (1 + 2 * rng.random(n))
    across = WIDTH * rng.random(n)
    along = (turn * np.sqrt(1 + turn**2) + np.arcsinh(turn)) / 2
    points = np.column_stack([turn * np.cos(turn), across, turn * np.sin(turn)])
    return points, np.column_stack([along, across])


def recovered(coordinates: Array, places: Array) -> Array:
    """The correlation of each place with its least-squares fit."""
    centred = coordinates - coordinates.mean(axis=0)
    wanted = places - places.mean(axis=0)
    fit = centred @ np.linalg.lstsq(centred, wanted, rcond=None)[0]
    return np.asarray(np.sqrt(np.sum(fit**2, axis=0) / np.sum(wanted**2, axis=0)))
