"""The classes of scikit-learn that a model file holds, and what of each: parameters and fitted attributes.

A file names no other class and sets no other attribute. A class whose state is numbers, texts, arrays and
lists of them can be added by its line; `tests/data/test_models.py` then stores it with the others.
"""

from __future__ import annotations

from typing import Any

_COMMON = ("n_features_in_", "feature_names_in_", "_sklearn_output_config")

# class name -> its module, and the attributes that fit sets and transform needs
SKLEARN = {
    "Pipeline": ("sklearn.pipeline", ""),
    "FeatureUnion": ("sklearn.pipeline", ""),
    "ColumnTransformer": (
        "sklearn.compose",
        "transformers_ sparse_output_ output_indices_ _columns _remainder _transformer_to_input_indices "
        "_n_features _name_to_fitted_passthrough",
    ),
    "StandardScaler": ("sklearn.preprocessing", "mean_ var_ scale_ n_samples_seen_"),
    "MinMaxScaler": (
        "sklearn.preprocessing",
        "min_ scale_ data_min_ data_max_ data_range_ n_samples_seen_",
    ),
    "MaxAbsScaler": ("sklearn.preprocessing", "max_abs_ scale_ n_samples_seen_"),
    "RobustScaler": ("sklearn.preprocessing", "center_ scale_"),
    "FunctionTransformer": ("sklearn.preprocessing", ""),  # without a function: columns passed through
    "Normalizer": ("sklearn.preprocessing", ""),
    "PowerTransformer": ("sklearn.preprocessing", "lambdas_ _scaler"),
    "QuantileTransformer": ("sklearn.preprocessing", "n_quantiles_ quantiles_ references_"),
    "OneHotEncoder": (
        "sklearn.preprocessing",
        "categories_ drop_idx_ _drop_idx_after_grouping _infrequent_enabled _infrequent_indices "
        "_default_to_infrequent_mappings _n_features_outs",
    ),
    "OrdinalEncoder": (
        "sklearn.preprocessing",
        "categories_ _missing_indices _infrequent_enabled _infrequent_indices "
        "_default_to_infrequent_mappings",
    ),
    "SimpleImputer": ("sklearn.impute", "statistics_ indicator_ _fit_dtype _fill_dtype"),
    "MissingIndicator": ("sklearn.impute", "features_ _n_features _precomputed"),
    "VarianceThreshold": ("sklearn.feature_selection", "variances_"),
    "PCA": (
        "sklearn.decomposition",
        "components_ mean_ explained_variance_ explained_variance_ratio_ singular_values_ n_components_ "
        "n_samples_ noise_variance_ _fit_svd_solver",
    ),
    "TruncatedSVD": (
        "sklearn.decomposition",
        "components_ explained_variance_ explained_variance_ratio_ singular_values_",
    ),
}


def attributes(name: str) -> tuple[str, ...]:
    """The fitted attributes of a class that may be stored."""
    return (*_COMMON, *SKLEARN[name][1].split())


def state(value: Any) -> dict[str, Any]:
    """What is stored of an object of one of these classes."""
    name = type(value).__name__
    found: dict[str, Any] = value.get_params(deep=False)
    found |= {key: vars(value)[key] for key in attributes(name) if key in vars(value)}
    if name == "ColumnTransformer" and "_columns" in found:
        # columns may be chosen by a function, which a file cannot hold: these are the ones it chose
        resolved = zip(found["transformers"], found["_columns"], strict=True)
        found["transformers"] = [(*parts[:2], columns) for parts, columns in resolved]
    return found
