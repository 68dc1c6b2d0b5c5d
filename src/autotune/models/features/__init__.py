"""Features of statements and of their data flow, for learned cost models (Pruner's PAM)."""

from __future__ import annotations

from autotune.models.features.nest import (
    FEATURE_NAMES,
    FEATURE_VERSION,
    STATEMENT_FEATURES,
    estimated_seconds,
    pooled_features,
    statement_features,
)
from autotune.models.features.pam import PAM_VERSION, PamFeatures, pam_features
from autotune.models.features.quantities import DATAFLOW_COLUMNS, FEATURE_COLUMNS, FIDELITIES
from autotune.models.features.relaxed_features import (
    RELAXED_COLUMNS,
    RELAXED_RAW_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
    RelaxedPoints,
)

__all__ = [
    "DATAFLOW_COLUMNS",
    "FEATURE_COLUMNS",
    "FEATURE_NAMES",
    "FEATURE_VERSION",
    "FIDELITIES",
    "PAM_VERSION",
    "RELAXED_COLUMNS",
    "RELAXED_RAW_COLUMNS",
    "RELAXED_VERSION",
    "STATEMENT_FEATURES",
    "PamFeatures",
    "RelaxedFeatures",
    "RelaxedPoints",
    "estimated_seconds",
    "pam_features",
    "pooled_features",
    "statement_features",
]
