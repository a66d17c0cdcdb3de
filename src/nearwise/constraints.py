"""Side information: what is known about some objects, by their ids."""

from nearwise.model.blocks import Block, Constraints
from nearwise.model.constraints import (
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
from nearwise.model.drawn import (
    from_chunks,
    quadruplets_from_labels,
    triplets_from_labels,
    triplets_from_targets,
)
from nearwise.model.kinds import KindName as Kind
from nearwise.model.matrices import Linear
from nearwise.model.relations import Relation

__all__ = [
    "Block",
    "Constraints",
    "Kind",
    "Linear",
    "Relation",
    "at_least",
    "at_most",
    "closer",
    "dissimilar",
    "equal",
    "from_chunks",
    "from_labels",
    "from_tuples",
    "linear",
    "quadruplets_from_labels",
    "similar",
    "similarity",
    "triplets_from_labels",
    "triplets_from_targets",
]
