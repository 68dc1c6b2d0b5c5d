"""Features of statements and of their data flow, for learned cost models (Pruner's PAM)."""

from __future__ import annotations

from autotune.pam.columns import DATAFLOW_COLUMNS, FEATURE_COLUMNS
from autotune.pam.conventions import FIDELITIES
from autotune.pam.features import PAM_VERSION, PamFeatures, pam_features
from autotune.pam.relaxed_features import (
    RELAXED_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
    RelaxedPoints,
)

__all__ = [
    "DATAFLOW_COLUMNS",
    "FEATURE_COLUMNS",
    "FIDELITIES",
    "PAM_VERSION",
    "RELAXED_COLUMNS",
    "RELAXED_VERSION",
    "PamFeatures",
    "RelaxedFeatures",
    "RelaxedPoints",
    "pam_features",
]
