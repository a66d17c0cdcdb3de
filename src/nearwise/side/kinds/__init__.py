"""The kinds of constraints, by name.

A kind owns what its constraints say about the matrix (atoms), how they are written (words), and how a metric
is graded by them. To add one, write a class that derives from `Kind`, in a file of its own, and name it in
`KINDS`; learners, solvers, certificates, side files and figures look it up there.
"""

from __future__ import annotations

from typing import TypeAlias

from nearwise.side.kinds.comparison import Comparison
from nearwise.side.kinds.distance import Distance
from nearwise.side.kinds.kind import Grade, Kind, Measure, Part
from nearwise.side.kinds.linear import LinearFunction
from nearwise.side.kinds.similarity import Similarity

__all__ = ["COMPARISON", "DISTANCE", "KINDS", "Grade", "Kind", "KindName", "Measure", "Part"]

KindName: TypeAlias = str  # a key of KINDS

KINDS: dict[KindName, Kind] = {
    kind.name: kind for kind in (Distance(), Comparison(), Similarity(), LinearFunction())
}
DISTANCE, COMPARISON = Distance.name, Comparison.name
