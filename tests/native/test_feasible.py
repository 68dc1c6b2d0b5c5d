from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import _native


def pair(**changes: Any) -> dict[str, Any]:
    """Arguments of a feasible set of two columns, each a group that no constraint sees."""
    rows = np.array([[1], [2], [3]])
    unseen = np.zeros((3, 0), dtype=np.int64)
    groups = [([0], rows, unseen), ([1], rows, unseen)]
    return {"width": 2, "groups": groups, "plans": [(None, 0, [])] * 2, "limit": 9, **changes}


def test_groups_without_constraints_multiply() -> None:
    assert _native.FeasibleSet(**pair()).count == (0, 9)


@pytest.mark.parametrize("width", [0, 1, 3, 2**31 - 1])
def test_groups_hold_every_column(width: int) -> None:
    """Found out before memory is taken for the width."""
    with pytest.raises(ValueError, match="every column"):
        _native.FeasibleSet(**pair(width=width))


def test_a_group_has_each_row_once() -> None:
    rows, unseen = np.array([[1], [2], [1]]), np.zeros((3, 0), dtype=np.int64)
    groups = [([0], rows, unseen), ([1], rows, unseen)]
    with pytest.raises(ValueError, match="two rows of a group are equal"):
        _native.FeasibleSet(**pair(groups=groups))


def test_plans_fit_their_groups() -> None:
    with pytest.raises(ValueError, match="does not fit its state"):
        _native.FeasibleSet(**pair(plans=[(None, 1, []), (None, 0, [])]))
    with pytest.raises(ValueError, match="one plan for every group"):
        _native.FeasibleSet(**pair(plans=[(None, 0, [])]))


def test_dead_ends_of_factorizations_end() -> None:
    """No tuple has the product, but 2**63 beginnings divide it."""
    domains = [[1, 2]] * 63 + [[3]]
    with pytest.raises(ValueError, match="take too long to list"):
        _native.ordered_factorizations(2**49, domains, 10_000)
