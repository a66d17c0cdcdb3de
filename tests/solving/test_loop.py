"""How every run ends: limits, callbacks, Ctrl-C, errors."""

from __future__ import annotations

import time

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c


def problem(penalty: float = np.inf) -> nw.Problem:
    G = np.random.default_rng(0).normal(size=(20, 4))
    pairs = np.arange(20).reshape(10, 2)
    d = np.sum((G[pairs[:, 0]] - G[pairs[:, 1]]) ** 2, axis=1)
    side = c.at_most(pairs[:5], 0.3 * d[:5]) + c.at_least(pairs[5:], 2 * d[5:])
    return nw.Problem(G, side, penalty=penalty)


def test_solve_says_which_limit_it_reached() -> None:
    few = nw.solve(problem(), nw.solvers.Newton(), max_iter=2)
    assert (few.status, few.limit) == (nw.Status.LIMIT, "iterations")
    assert "limit of 2 iterations" in few.message
    short = nw.solve(
        problem(), nw.solvers.Newton(), max_seconds=0.001, callback=lambda record: time.sleep(0.002)
    )
    assert (short.status, short.limit) == (nw.Status.LIMIT, "time")
    assert "limit of 0.001 seconds" in short.message
    assert nw.solve(problem()).limit is None


def test_a_callback_may_end_a_run_but_not_take_back_that_it_is_solved() -> None:
    seen: list[nw.Record] = []

    def second(record: nw.Record) -> bool:
        seen.append(record)
        return record.iteration == 2

    found = nw.solve(problem(), nw.solvers.Newton(), callback=second)
    assert found.status is nw.Status.INTERRUPTED
    assert found.message.startswith("Interrupted: relative gap")
    assert seen == list(found.history)
    assert [record.iteration for record in seen] == [1, 2]
    soft = problem(1.0)
    last = nw.solve(soft, nw.solvers.Newton()).n_iter
    solved = nw.solve(soft, nw.solvers.Newton(), callback=lambda record: record.iteration == last)
    assert solved.status is nw.Status.SOLVED


@pytest.mark.parametrize("solver", [nw.solvers.Newton(), nw.solvers.InteriorPoint()], ids=repr)
def test_ctrl_c_keeps_the_best_point_and_errors_are_raised(solver: object) -> None:
    def interrupting(record: nw.Record) -> None:
        if record.iteration == 2:
            raise KeyboardInterrupt

    def failing(record: nw.Record) -> None:
        raise ZeroDivisionError

    found = nw.solve(problem(), solver, tol=1e-13, callback=interrupting)
    assert found.status is nw.Status.INTERRUPTED
    assert found.n_iter == 2
    assert np.isfinite(found.certificate.primal)
    with pytest.raises(ZeroDivisionError):
        nw.solve(problem(), solver, callback=failing)
