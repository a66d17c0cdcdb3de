"""Products of parameters: the suite runs enough for every two values to meet, and `-m slow` the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def crossed(**axes: Mapping[str, Any] | Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by all combinations of values, named by the keys of a mapping or by their repr.

    Whichever two values of different parameters one takes, some case that is not slow has both. The rest of
    the product, where at least three values together are new, is marked slow.
    """
    values = [
        list(axis.items() if isinstance(axis, Mapping) else ((repr(value), value) for value in axis))
        for axis in axes.values()
    ]
    whole = list(product(*(range(len(axis)) for axis in values)))
    kept = set(covering(whole))
    cases = []
    for places in whole:
        chosen = [axis[place] for axis, place in zip(values, places, strict=True)]
        marks = () if places in kept else pytest.mark.slow
        name = "-".join(name for name, _ in chosen)
        cases.append(pytest.param(*(value for _, value in chosen), id=name, marks=marks))
    return pytest.mark.parametrize(list(axes), cases)


def covering(whole: Sequence[tuple[Hashable, ...]]) -> Iterator[tuple[Hashable, ...]]:
    """Some of the combinations, two or more values each, with all pairs of values that are in any."""
    pairs = {combination: set(combinations(enumerate(combination), 2)) for combination in whole}
    missing = set().union(*pairs.values())
    while missing:
        best = max(pairs, key=lambda combination: len(pairs[combination] & missing))
        yield best
        missing -= pairs.pop(best)
