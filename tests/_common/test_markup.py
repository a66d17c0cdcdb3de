"""What a notebook shows of results and problems: small tables in HTML, with everything escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise._common.markup import fact_table, listing

EVIL = '<script>alert("1")</script>&'


def texts(found: object) -> list[str]:
    """The texts of a table, which is well-formed."""
    return [text for text in ET.fromstring(found._repr_html_()).itertext() if text.strip()]


@pytest.fixture(scope="module")
def problem() -> nw.Problem:
    X = np.random.default_rng(0).normal(size=(10, 3))
    return nw.Problem(X, c.similar([(0, 1), (2, 3)]) + c.at_least([(0, k) for k in range(2, 9)], 4.0))


def test_a_problem_says_what_it_is(problem: nw.Problem) -> None:
    found = texts(problem)
    assert found[0] == "Problem"
    assert found[1:] == [
        "objects", "10", "features", "3", "divergence", "LogDet()",
        "constraints", "2 distances <=, 7 distances >=", "penalty", "1",
    ]  # fmt: skip
    assert "1 to 9" in texts(problem.with_penalty(np.arange(1.0, 10.0)))


def test_constraints_show_their_first_rows() -> None:
    found = texts(c.at_most([(EVIL, f"b{k}") for k in range(8)], 2.0))
    assert found[:3] == ["Constraints", "in all", "8 distances <="]
    assert f"d({EVIL!r}, 'b0') <= 2" in found
    assert "3 more" in found
    assert texts(c.at_most([(0, 1)], 2.0))[-1] == "d(0, 1) <= 2"
    assert texts(c.Constraints())[2] == "none"


def test_a_result_and_its_certificate_show_the_same_numbers(problem: nw.Problem) -> None:
    result = nw.solve(problem)
    found, certificate = texts(result), texts(result.certificate)
    assert found[:3] == ["Result", "status", "SOLVED"]
    for name in ("objective", "lower bound", "relative gap", "constraints satisfied"):
        assert found[found.index(name) + 1] == certificate[certificate.index(name) + 1]
    assert result.certificate.worst[0].name in certificate
    assert result.message in found


def test_a_metric_tells_its_dimensions_and_eigenvalues() -> None:
    found = texts(nw.Metric(np.diag([3.0, 1.0]), np.eye(5)[:, :2]))
    assert found == [
        "Metric", "features", "5", "learned dimensions", "2", "in the others", "Euclidean, as before",
        "eigenvalues of the learned part", "9 to 1",
    ]  # fmt: skip
    assert "in the others" not in texts(nw.Metric(np.eye(3)))
    assert texts(nw.Metric(np.empty((0, 0)), np.empty((4, 0))))[-1] == "Euclidean, as before"


def test_text_is_escaped() -> None:
    found = fact_table(EVIL, {EVIL: EVIL}, listing([EVIL], [[EVIL]]))
    assert "<script" not in found
    assert list(ET.fromstring(found).itertext()) == [EVIL] * 5
