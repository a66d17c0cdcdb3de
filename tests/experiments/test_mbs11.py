"""The experiments of MBS11 10 in their quick forms, on bundled and random data: what they claim holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import numpy as np
import pytest
from scipy import sparse

from benchmarks.baselines.spectral_regression import (
    kernel_spectral_regression,
    leading_eigenvectors,
    similarity_graph,
)
from experiments._outcome import Outcome

Found = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def found() -> Found:
    """What an experiment finds, each run once."""

    @cache
    def run(name: str) -> Outcome:
        module = import_module(f"experiments.{name}")
        outcome: Outcome = module.run(True, 0, lambda what, done, total: None)
        assert outcome.name == name.replace("_", "-")
        return outcome

    return run


def value(outcome: Outcome, setting: str) -> float:
    """Our figure of the one row with that setting."""
    (row,) = (row for row in outcome.rows if row.setting == setting)
    assert row.ours is not None
    return row.ours


def test_a_learned_subspace_is_the_target_s_and_fits_far_better(found: Found) -> None:
    outcome = found("toy_subspace")
    fixed, learned = (value(outcome, f"train error, {name}") for name in ("principal components", "learned"))
    assert learned < fixed / 5
    assert value(outcome, "degrees from the target's subspace, learned") < 5
    assert value(outcome, "degrees from the target's subspace, principal components") > 20


@pytest.mark.long
def test_lambda_changes_the_way_and_not_the_end(found: Found) -> None:
    outcome = found("toy_lambda")
    loose, tight = (
        value(outcome, f"largest / least test error over lambda 0.3 to 0.7, tolerance {tol}")
        for tol in ("0.01", "1e-06")
    )
    assert tight < 1.1 < loose
    inner = value(outcome, "test error, tolerance 1e-06, lambda 0.3")
    for weight in (0, 1):  # where the subspace, or the metric in it, is not learned
        assert value(outcome, f"test error, tolerance 1e-06, lambda {weight}") > 3 * inner


@pytest.mark.long
@pytest.mark.parametrize("geometry", ["flat", "polar"])
def test_a_pass_online_is_worth_many_iterations(found: Found, geometry: str) -> None:
    outcome = found("toy_online")
    online = value(outcome, f"test error, {geometry}, online, p = 32, 1 passes")
    assert online < value(outcome, f"test error, {geometry}, batch, Armijo, 1 iterations") / 3
    setting = f"iterations to the error of one pass online, p = 32, {geometry}, batch, Armijo"
    (row,) = (row for row in outcome.rows if row.setting == setting)
    assert row.ours is None or row.ours >= 4


@pytest.mark.long
def test_with_many_constraints_a_kernel_of_fixed_rank_beats_those_of_fixed_range(found: Found) -> None:
    outcome = found("kernel_usps")
    for title, rank, count in (
        ("3, 8 and 9 of the small digits", 16, "2,000"),
        ("small digits", 10, "6,000"),
        ("small digits", 4, "6,000"),
    ):
        of = {
            name: value(outcome, f"NMI, {title}, {name}, rank {rank}, {count} constraints")
            for name in ("kernel PCA", "KSR", "LogDet", "flat", "polar")
        }
        for name in ("flat", "polar"):
            assert of[name] > max(of["kernel PCA"], of["LogDet"]) + 0.05
            assert of[name] > of["KSR"] - 0.05


@pytest.mark.long
def test_with_few_constraints_the_subspace_is_better_fixed(found: Found) -> None:
    outcome = found("kernel_usps")
    setting = "NMI, 3, 8 and 9 of the small digits, {}, rank 16, 100 constraints"
    assert value(outcome, setting.format("LogDet")) > value(outcome, setting.format("polar"))


@pytest.mark.long
def test_full_rank_metrics_compete(found: Found) -> None:
    outcome = found("uci_fixed_rank")
    names = ("Euclidean", "flat", "polar", "ITML", "LEGO", "POLA")
    of = {name: [value(outcome, f"error, {data}, {name}") for data in ("iris", "wine")] for name in names}
    best = min(np.mean(of[other]) for other in ("ITML", "LEGO", "POLA"))
    for name in ("flat", "polar"):
        assert np.mean(of[name]) < np.mean(of["Euclidean"]) - 0.005
        assert np.mean(of[name]) < best + 0.015


@pytest.mark.long
def test_at_low_rank_a_learned_subspace_beats_principal_components(found: Found) -> None:
    outcome = found("isolet")
    for name in ("flat", "polar"):
        for other in ("PCA", "PCA and ITML", "PCA and LEGO"):
            learned, fixed = (value(outcome, f"error, small digits, rank 2, {n}") for n in (name, other))
            assert learned < 0.8 * fixed


def test_a_graph_keeps_what_is_similar_and_cuts_what_is_not() -> None:
    x = np.arange(12.0)[:, None]
    N = similarity_graph(-np.square(x - x.T) / 2, np.array([[0, 11]]), np.array([[0, 1]])).toarray()
    assert np.array_equal(N, N.T)
    assert N[0, 11] == 1
    assert N[0, 1] == 0
    assert N[5, 6] == 1
    assert not N.diagonal().any()


def test_spectral_targets_solve_the_generalised_eigenproblem() -> None:
    rng = np.random.default_rng(0)
    dense = (rng.random((15, 15)) < 0.4).astype(float)
    dense = np.maximum(dense, dense.T)
    dense[0, 0] = 1.0  # no bipartite graph
    degrees = np.diag(dense.sum(axis=1))
    from scipy.linalg import eigh

    expected = eigh(dense, degrees)[1][:, ::-1][:, 1:4]  # the first is constant
    got = leading_eigenvectors(sparse.csr_array(dense), 3, 0)
    along = np.linalg.lstsq(expected, got, rcond=None)[0]
    assert np.allclose(expected @ along, got, atol=1e-8)


def test_spectral_regression_separates_classes_that_are_known() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 5))
    X[:, 0] += 2 * y
    i, j = np.triu_indices(40, 1)
    pairs, same = np.stack([i, j], axis=1), y[i] == y[j]
    coordinates = kernel_spectral_regression(X @ X.T, pairs[same], pairs[~same], 1, 0)[:, 0]
    assert abs(np.corrcoef(coordinates, y)[0, 1]) > 0.7
