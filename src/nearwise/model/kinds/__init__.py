"""The kinds of constraints, by name.

A kind owns what its constraints say about the matrix (atoms), how they are written (words), and how a metric
is graded by them. To add one, write a class that derives from `Kind`, in a file of its own, and name it in
`KINDS`; learners, solvers, certificates, side files and figures look it up there.
"""

from __future__ import annotations

from typing import TypeAlias

from nearwise.model.kinds.comparison import Comparison
from nearwise.model.kinds.distance import Distance
from nearwise.model.kinds.kind import Grade, Kind, Measure, OfProducts, Part
from nearwise.model.kinds.linear import LinearFunction
from nearwise.model.kinds.similarity import Similarity

__all__ = ["COMPARISON", "DISTANCE", "KINDS", "Grade", "Kind", "KindName", "Measure", "OfProducts", "Part"]

KindName: TypeAlias = str  # a key of KINDS

KINDS: dict[KindName, Kind] = {
    kind.name: kind for kind in (Distance(), Comparison(), Similarity(), LinearFunction())
}
DISTANCE, COMPARISON = Distance.name, Comparison.name
