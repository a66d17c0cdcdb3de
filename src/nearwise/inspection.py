"""What there is to see in a fitted learner, as arrays."""

from nearwise.study.inspection import (
    Classes,
    Convergence,
    Distances,
    FeatureShares,
    Maps,
    Spectrum,
    classes,
    convergence,
    feature_shares,
    label_pairs,
    maps,
    pair_distances,
    spectrum,
)

__all__ = [
    "Classes",
    "Convergence",
    "Distances",
    "FeatureShares",
    "Maps",
    "Spectrum",
    "classes",
    "convergence",
    "feature_shares",
    "label_pairs",
    "maps",
    "pair_distances",
    "spectrum",
]
