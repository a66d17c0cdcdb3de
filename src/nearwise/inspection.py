"""What there is to see in a fitted learner, as arrays; `Missing` says why there is none."""

from nearwise.study.before_after import Missing
from nearwise.study.by_kind import (
    ClassRecall,
    Margins,
    MeasuredDistances,
    PenaltyPath,
    class_recall,
    margins,
    measured_distances,
    penalty_path,
)
from nearwise.study.examples import Example, Examples, examples
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
    ranges,
    spectrum,
)

__all__ = [
    "ClassRecall",
    "Classes",
    "Convergence",
    "Distances",
    "Example",
    "Examples",
    "FeatureShares",
    "Maps",
    "Margins",
    "MeasuredDistances",
    "Missing",
    "PenaltyPath",
    "Spectrum",
    "class_recall",
    "classes",
    "convergence",
    "examples",
    "feature_shares",
    "label_pairs",
    "maps",
    "margins",
    "measured_distances",
    "pair_distances",
    "penalty_path",
    "ranges",
    "spectrum",
]
