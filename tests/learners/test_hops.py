"""How far a reader has to follow a fit: the files and functions of the package that one call runs through."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from sklearn.datasets import load_iris

import nearwise as nw

SOURCE = str(Path(nw.__file__).parent)
MOST_FILES, MOST_FUNCTIONS = 43, 321


def test_the_way_of_a_fit_is_not_longer_than_it_was() -> None:
    """Raise a limit for something that every fit needs; what is switched off should not be on the way."""
    X, y = load_iris(return_X_y=True)
    nw.MetricLearner(random_state=0).fit(X, y)  # what is imported and compiled once is not on the way
    seen = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        nw.MetricLearner(random_state=0).fit(X, y).transform(X)
    finally:
        sys.setprofile(before)
    files = {name for name, _ in seen}
    assert len(files) > 20, "nothing was seen"
    assert (len(files) <= MOST_FILES, len(seen) <= MOST_FUNCTIONS) == (True, True), (len(files), len(seen))
