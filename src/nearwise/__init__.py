"""Learn what "near" means: distance metrics and kernels from side information, with a certificate.

Everything public is named in one table below and imported when it is first used, so that `import nearwise`
costs nothing and pulls in none of the numerical libraries.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import (
        constraints as constraints,
        datasets as datasets,
        online as online,
        plotting as plotting,
        solvers as solvers,
    )
    from ._binding import LeftOutWarning as LeftOutWarning
    from .divergences import (
        Divergence as Divergence,
        Frobenius as Frobenius,
        LogDet as LogDet,
        SpectralDivergence as SpectralDivergence,
        VonNeumann as VonNeumann,
    )
    from .estimators import (
        FixedRankEmbedding as FixedRankEmbedding,
        FixedRankLearner as FixedRankLearner,
        FixedRankRegressor as FixedRankRegressor,
        KernelLearner as KernelLearner,
        KernelReducer as KernelReducer,
        MetricLearner as MetricLearner,
        OnlineLearner as OnlineLearner,
        PriorKeptWarning as PriorKeptWarning,
        UnknownIdsWarning as UnknownIdsWarning,
        WorseThanEuclideanWarning as WorseThanEuclideanWarning,
    )
    from .metric import KernelMap as KernelMap, KernelMetric as KernelMetric, Metric as Metric
    from .models import ModelFileError as ModelFileError, load as load, save as save
    from .problem import (
        Problem as Problem,
        check_infeasibility as check_infeasibility,
    )
    from .problems import (
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
    from .result import (
        Certificate as Certificate,
        InfeasibilityCheck as InfeasibilityCheck,
        Record as Record,
        Result as Result,
        Status as Status,
        Violation as Violation,
    )
    from .solve import solve as solve

# public name -> the module that defines it; None for a module that is public itself
_EXPORTS: dict[str, str | None] = {
    "constraints": None,
    "datasets": None,
    "online": None,
    "plotting": None,
    "solvers": None,
    "Divergence": "divergences",
    "SpectralDivergence": "divergences",
    "LogDet": "divergences",
    "VonNeumann": "divergences",
    "Frobenius": "divergences",
    "Problem": "problem",
    "check_infeasibility": "problem",
    "InfeasibilityCheck": "result",
    "Result": "result",
    "Status": "result",
    "Certificate": "result",
    "Record": "result",
    "Violation": "result",
    "solve": "solve",
    "Metric": "metric",
    "KernelMetric": "metric",
    "KernelMap": "metric",
    "MetricLearner": "estimators",
    "FixedRankEmbedding": "estimators",
    "FixedRankLearner": "estimators",
    "FixedRankRegressor": "estimators",
    "KernelLearner": "estimators",
    "OnlineLearner": "estimators",
    "KernelReducer": "estimators",
    "LeftOutWarning": "_binding",
    "PriorKeptWarning": "estimators",
    "UnknownIdsWarning": "estimators",
    "WorseThanEuclideanWarning": "estimators",
    "nearest_correlation": "problems",
    "nearest_covariance": "problems",
    "NearestMatrix": "problems",
    "definite_boost": "problems",
    "BoostResult": "problems",
    "BoostStep": "problems",
    "balanced_cut": "problems",
    "Cut": "problems",
    "isometric_embedding": "problems",
    "Embedding": "problems",
    "minimax_sdp": "problems",
    "logdet_sdp": "problems",
    "SdpResult": "problems",
    "save": "models",
    "load": "models",
    "ModelFileError": "models",
}

__all__ = sorted([*_EXPORTS, "__version__"])


class _Package(ModuleType):
    """This package, in which the name `solve` is the function, never the module of that name.

    Importing a submodule binds it as an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _EXPORTS.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

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
