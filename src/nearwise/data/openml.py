"""Data sets from OpenML by scikit-learn's `fetch_openml`, for those who ask for it and have a network.

OpenML's copies have the standard split, if there is one, as first and last rows, and other codes of classes.
What arrives is compared with the number of rows of every class that the set is known to have, part by part: a
copy in another order or of another version is refused, not taken for the set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_DIGITS = tuple("0123456789")
_DISEASES = (
    "diaporthe-stem-canker charcoal-rot rhizoctonia-root-rot phytophthora-rot brown-stem-rot powdery-mildew "
    "downy-mildew brown-spot bacterial-blight bacterial-pustule purple-seed-stain anthracnose "
    "phyllosticta-leaf-spot alternarialeaf-spot frog-eye-leaf-spot diaporthe-pod-&-stem-blight cyst-nematode "
    "2-4-d-injury herbicide-injury"
)


@dataclass(frozen=True)
class Source:
    """Where OpenML has a set, and how to know it.

    Attributes
    ----------
    name, version : OpenML's
    n_features : of a row
    labels : OpenML's labels in the order of our classes
    counts : the rows of every class in the first part, and in the last one where there is a split
    target_names : the classes; the labels unless given
    values : for columns of words, their order; OpenML's own where it is empty
    shape : of one row
    gaps : whether values are missing; then `complete` marks the rows without
    """

    name: str
    version: int
    n_features: int
    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    target_names: Sequence[str] = ()
    values: Sequence[str] = ()
    shape: tuple[int, ...] = ()
    dtype: DTypeLike = np.float64
    gaps: bool = False


SOURCES: Mapping[str, Source] = {
    "balance_scale": Source("balance-scale", 1, 4, ("L", "B", "R"), [(288, 49, 288)], dtype=np.uint8),
    "ionosphere": Source("ionosphere", 1, 34, ("b", "g"), [(126, 225)]),
    "isolet": Source(
        "isolet",
        1,
        617,
        tuple(str(k) for k in range(1, 27)),
        [[238 if k == 5 else 240 for k in range(26)], [59 if k == 12 else 60 for k in range(26)]],
        tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        dtype=np.float32,
    ),
    "mnist": Source(
        "mnist_784",
        1,
        784,
        _DIGITS,
        [
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        ],
        shape=(28, 28),
        dtype=np.uint8,
    ),
    "nursery": Source(
        "nursery",
        1,
        8,
        ("not_recom", "recommend", "very_recom", "priority", "spec_prior"),
        [(4320, 2, 328, 4266, 4044)],
        values=(
            "usual|pretentious|great_pret",
            "proper|less_proper|improper|critical|very_crit",
            "complete|completed|incomplete|foster",
            "1|2|3|more",
            "convenient|less_conv|critical",
            "convenient|inconv",
            "nonprob|slightly_prob|problematic",
            "recommended|priority|not_recom",
        ),
        dtype=np.uint8,
    ),
    "pendigits": Source(
        "pendigits",
        1,
        16,
        _DIGITS,
        [
            (780, 779, 780, 719, 780, 720, 720, 778, 719, 719),
            (363, 364, 364, 336, 364, 335, 336, 364, 336, 336),
        ],
        dtype=np.uint8,
    ),
    "soybean_large": Source(
        "soybean",
        1,
        35,
        tuple(_DISEASES.split()),
        [(20, 20, 20, 88, 44, 20, 20, 92, 20, 20, 20, 44, 20, 91, 91, 15, 14, 16, 8)],
        dtype=np.float32,
        gaps=True,
    ),
    "spambase": Source("spambase", 1, 57, ("0", "1"), [(2788, 1813)], ("nonspam", "spam")),
    "usps": Source(
        "USPS",
        2,
        256,
        tuple(str(k) for k in range(1, 11)),
        [
            (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
            (359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
        ],
        _DIGITS,
        dtype=np.float32,
    ),
}


class NotTheSet(LookupError):
    """What OpenML sent is not the data set that was asked for; the message says in what it differs."""


def fetched(name: str) -> dict[str, Any]:
    """The arrays of a data set, as its file holds them: X, y, target_names, and X_test, y_test for a split.

    `NotTheSet` where OpenML's copy is another one, and what scikit-learn raises where there is no network.
    """
    from sklearn.datasets import fetch_openml

    source = SOURCES[name]
    # this parser, unlike the other, needs no pandas and tells the words of coded columns
    found = fetch_openml(source.name, version=source.version, as_frame=False, parser="liac-arff")
    X = np.asarray(found.data, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != source.n_features:
        raise NotTheSet(f"OpenML's {source.name} has rows of shape {X.shape[1:]}, not {source.n_features}")
    X = _recoded(X, source, found.feature_names, getattr(found, "categories", None) or {})
    y = _classes(found.target, source)
    names = np.array(source.target_names or source.labels)
    arrays: dict[str, Any] = {"target_names": names}
    if source.gaps:
        arrays["complete"] = np.isfinite(X).all(axis=1)
    elif not np.isfinite(X).all():
        raise NotTheSet(f"OpenML's {source.name} has missing values")
    low = 0
    for suffix, counts in zip(("", "_test"), source.counts, strict=False):
        high = low + sum(counts)
        arrays[f"X{suffix}"] = X[low:high].astype(source.dtype).reshape(-1, *(source.shape or X.shape[1:]))
        arrays[f"y{suffix}"] = y[low:high]
        got = np.bincount(y[low:high], minlength=len(counts))
        if len(X) != sum(map(sum, source.counts)) or not np.array_equal(got, counts):
            raise NotTheSet(
                f"OpenML's {source.name} has {len(X)} rows, with {got.tolist()} of every class among rows "
                f"{low} to {high - 1}; expected are {list(counts)}"
            )
        low = high
    return arrays


def _classes(target: Any, source: Source) -> NDArray[np.int64]:
    order = {label: number for number, label in enumerate(source.labels)}
    labels = [str(label).strip("' ") for label in target]
    unknown = sorted(set(labels) - set(order))
    if unknown:
        raise NotTheSet(f"OpenML's {source.name} has the class {unknown[0]!r}, which is none of {order}")
    return np.array([order[label] for label in labels], dtype=np.int64)


def _recoded(
    X: NDArray[np.float64], source: Source, columns: Sequence[str], words: Mapping[str, Sequence[str]]
) -> NDArray[np.float64]:
    """Columns of words, coded by our order of them instead of OpenML's."""
    if source.values:
        X = X.copy()
    for place, ordered in enumerate(source.values):
        ours, theirs = ordered.split("|"), [str(word).strip("' ") for word in words.get(columns[place], ())]
        if sorted(ours) != sorted(theirs):
            raise NotTheSet(f"column {place} of OpenML's {source.name} has the words {theirs}, not {ours}")
        X[:, place] = np.array([ours.index(word) for word in theirs])[X[:, place].astype(np.int64)]
    return X
