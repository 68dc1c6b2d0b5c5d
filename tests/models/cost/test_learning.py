"""The option that every cost model has."""

from __future__ import annotations

import pytest

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import (
    AnalyticCostModel,
    GradientBoostedTrees,
    check_has_learned,
    split_learn,
)
from autotune.targets import preset


def test_a_model_never_sees_the_option() -> None:
    assert split_learn("gbdt", {}) == (True, {})
    assert split_learn("gbdt", {"learn": False, "other": 1}) == (False, {"other": 1})
    assert split_learn("module:Model", {"learn": True}) == (True, {})
    assert split_learn("analytic", {"learns": False}) == (False, {}), "its earlier name"


def test_it_is_true_or_false() -> None:
    with pytest.raises(InvalidValueError, match="'learn' of cost model 'gbdt'.*not 'never'"):
        split_learn("gbdt", {"learn": "never"})


def test_what_has_to_be_trained_needs_a_file() -> None:
    with pytest.raises(InvalidValueError, match="'gbdt' is not to learn.*--load-cost-model"):
        check_has_learned("gbdt", GradientBoostedTrees(ModelContext()))
    check_has_learned("analytic", AnalyticCostModel(ModelContext(target=preset("avx512-8core"))))
