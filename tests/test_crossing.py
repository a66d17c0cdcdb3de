"""Thinned products still let every two values meet."""

from __future__ import annotations

from itertools import combinations, product

from crossing import covering, crossed


def test_every_two_values_meet_in_few_cases() -> None:
    whole = list(product(range(13), "ab", "cd", "efg"))
    kept = list(covering(whole))
    assert len(kept) == 39  # as many as pairs of the two longest
    assert set(kept) <= set(whole)
    for first, second in combinations(range(4), 2):
        met = {(case[first], case[second]) for case in kept}
        assert met == {(case[first], case[second]) for case in whole}


def test_the_rest_is_slow_and_not_lost() -> None:
    mark = crossed(size=[1, 2, 3], kind={"one": "a", "other": "b"}, sign=[-1, 1])
    names, cases = mark.args
    assert names == ["size", "kind", "sign"]
    assert {case.values for case in cases} == set(product([1, 2, 3], "ab", [-1, 1]))
    quick = [case.id for case in cases if not case.marks]
    assert "1-one--1" in quick
    assert len(quick) == 6
