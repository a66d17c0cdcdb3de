"""Learn what "near" means: distance metrics and kernels from side information, with a certificate.

Everything public is named in one table below and imported when it is first used, so that `import nearwise`
costs nothing and pulls in none of the numerical libraries.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from . import (
        constraints as constraints,
        datasets as datasets,
        distributed as distributed,
        inspection as inspection,
        online as online,
        plotting as plotting,
        report as report,
        solvers as solvers,
        study as study,
        tables as tables,
    )
    from ._common.threads import threads as threads
    from .core import (
        Certificate as Certificate,
        Divergence as Divergence,
        Frobenius as Frobenius,
        InfeasibilityCheck as InfeasibilityCheck,
        LogDet as LogDet,
        Problem as Problem,
        SpectralDivergence as SpectralDivergence,
        Tolerance as Tolerance,
        Violation as Violation,
        VonNeumann as VonNeumann,
        check_divergence as check_divergence,
        check_infeasibility as check_infeasibility,
        verify as verify,
    )
    from .data.models import ModelFileError as ModelFileError, load as load, save as save
    from .learners.auto_learner import AutoLearner as AutoLearner
    from .learners.base import (
        PriorKeptWarning as PriorKeptWarning,
        WorseThanEuclideanWarning as WorseThanEuclideanWarning,
    )
    from .learners.coordinate_metrics import JoinedMetric as JoinedMetric, KernelMap as KernelMap
    from .learners.fixed_rank_embedding import FixedRankEmbedding as FixedRankEmbedding
    from .learners.fixed_rank_learner import FixedRankLearner as FixedRankLearner
    from .learners.fixed_rank_regressor import FixedRankRegressor as FixedRankRegressor
    from .learners.kernel_learner import KernelLearner as KernelLearner
    from .learners.kernel_reducer import (
        KernelReducer as KernelReducer,
        TruncationWarning as TruncationWarning,
    )
    from .learners.metric import (
        KernelMetric as KernelMetric,
        Metric as Metric,
    )
    from .learners.metric_learner import MetricLearner as MetricLearner
    from .learners.neighbor_learner import NeighborLearner as NeighborLearner
    from .learners.online_learner import OnlineLearner as OnlineLearner
    from .learners.selection import SelectedFeedbackWarning as SelectedFeedbackWarning
    from .methods import (
        Record as Record,
        Result as Result,
        Status as Status,
        solve as solve,
    )
    from .named import (
        BoostResult as BoostResult,
        BoostStep as BoostStep,
        Cut as Cut,
        Embedding as Embedding,
        NearestMatrix as NearestMatrix,
        SdpResult as SdpResult,
        balanced_cut as balanced_cut,
        definite_boost as definite_boost,
        isometric_embedding as isometric_embedding,
        logdet_sdp as logdet_sdp,
        minimax_sdp as minimax_sdp,
        nearest_correlation as nearest_correlation,
        nearest_covariance as nearest_covariance,
    )
    from .side import LeftOutWarning as LeftOutWarning, UnknownIdsWarning as UnknownIdsWarning
    from .study.clustering import kernel_k_means as kernel_k_means

# public name -> the module that defines it; None for a module that is public itself
_EXPORTS: dict[str, str | None] = {
    "constraints": None,
    "datasets": None,
    "distributed": None,
    "inspection": None,
    "online": None,
    "plotting": None,
    "report": None,
    "solvers": None,
    "study": None,
    "tables": None,
    "Divergence": "core",
    "SpectralDivergence": "core",
    "LogDet": "core",
    "VonNeumann": "core",
    "Frobenius": "core",
    "check_divergence": "core",
    "Problem": "core",
    "check_infeasibility": "core",
    "verify": "core",
    "Tolerance": "core",
    "InfeasibilityCheck": "core",
    "Result": "methods",
    "Status": "methods",
    "Certificate": "core",
    "Record": "methods",
    "Violation": "core",
    "solve": "methods",
    "threads": "_common.threads",
    "Metric": "learners.metric",
    "KernelMetric": "learners.metric",
    "JoinedMetric": "learners.coordinate_metrics",
    "KernelMap": "learners.coordinate_metrics",
    "MetricLearner": "learners.metric_learner",
    "AutoLearner": "learners.auto_learner",
    "FixedRankEmbedding": "learners.fixed_rank_embedding",
    "FixedRankLearner": "learners.fixed_rank_learner",
    "FixedRankRegressor": "learners.fixed_rank_regressor",
    "KernelLearner": "learners.kernel_learner",
    "NeighborLearner": "learners.neighbor_learner",
    "OnlineLearner": "learners.online_learner",
    "KernelReducer": "learners.kernel_reducer",
    "LeftOutWarning": "side",
    "PriorKeptWarning": "learners.base",
    "SelectedFeedbackWarning": "learners.selection",
    "TruncationWarning": "learners.kernel_reducer",
    "UnknownIdsWarning": "side",
    "WorseThanEuclideanWarning": "learners.base",
    "nearest_correlation": "named",
    "nearest_covariance": "named",
    "NearestMatrix": "named",
    "definite_boost": "named",
    "BoostResult": "named",
    "BoostStep": "named",
    "balanced_cut": "named",
    "Cut": "named",
    "isometric_embedding": "named",
    "Embedding": "named",
    "minimax_sdp": "named",
    "logdet_sdp": "named",
    "SdpResult": "named",
    "kernel_k_means": "study.clustering",
    "save": "data.models",
    "load": "data.models",
    "ModelFileError": "data.models",
}

__all__ = sorted([*_EXPORTS, "__version__"])


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _EXPORTS[name]
        module = import_module(f"{__name__}.{home or name}")
        value = getattr(module, name) if home else module
        setattr(sys.modules[__name__], name, value)
        return value

    def __dir__() -> list[str]:
        return list(__all__)
