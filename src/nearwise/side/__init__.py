"""What the user knows: constraints and their kinds, open bounds, labels and what is drawn from them.

Other rooms import what stands here, and nothing else of this room. Five modules are here as wholes, `bounds`,
`constraints`, `drawing`, `labelling` and `relations`, whose names others write with the module before them.
"""

from nearwise.side import bounds, constraints, drawing, labelling, relations
from nearwise.side.blocks import Block, Constraints, Stated
from nearwise.side.constraints import (
    at_least,
    at_most,
    closer,
    dissimilar,
    equal,
    from_labels,
    from_tuples,
    linear,
    similar,
    similarity,
)
from nearwise.side.drawn import (
    from_chunks,
    quadruplets_from_labels,
    triplets_from_labels,
    triplets_from_targets,
)
from nearwise.side.kinds import Grade, KindName as Kind, Measure
from nearwise.side.left_out import LeftOutWarning, UnknownIdsWarning
from nearwise.side.matrices import Linear
from nearwise.side.relations import Relation

__all__ = [
    "Block",
    "Constraints",
    "Grade",
    "Kind",
    "LeftOutWarning",
    "Linear",
    "Measure",
    "Relation",
    "Stated",
    "UnknownIdsWarning",
    "at_least",
    "at_most",
    "bounds",
    "closer",
    "constraints",
    "dissimilar",
    "drawing",
    "equal",
    "from_chunks",
    "from_labels",
    "from_tuples",
    "labelling",
    "linear",
    "quadruplets_from_labels",
    "relations",
    "similar",
    "similarity",
    "triplets_from_labels",
    "triplets_from_targets",
]
