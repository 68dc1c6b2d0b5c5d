"""Torch's own samples of the operators of core ATen: nothing of them is computed wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import expecttest  # noqa: F401 - torch's samples need it
import pytest
import torch

from tests.support import torch_opinfo


def _judged(cases: Iterable[torch_opinfo.Case]) -> Counter[str]:
    verdicts = {it.name: torch_opinfo.judge(it) for it in cases}
    bad = {name: it for name, it in verdicts.items() if it.kind in ("wrong", "crashed")}
    assert not bad
    kinds = Counter(it.kind for it in verdicts.values())
    del kinds["excluded"]
    return kinds


@pytest.mark.slow
def test_a_sample_passes_or_is_refused_in_one_line() -> None:
    kinds = _judged(torch_opinfo.cases(most=1))
    assert kinds.total() >= 300
    assert kinds["passed"] >= 0.9 * kinds.total()


@pytest.mark.long
def test_the_samples_pass_or_are_refused_in_one_line() -> None:
    kinds = _judged(torch_opinfo.cases(most=12))
    assert kinds.total() >= 2000
    assert kinds["passed"] >= 0.9 * kinds.total()


def test_what_is_left_out_is_left_out_by_a_rule() -> None:
    by_name = {it.name: torch_opinfo.excluded(it) for it in torch_opinfo.op_db}
    assert by_name["bernoulli"] == by_name["nn.functional.dropout"] == "random numbers"
    assert by_name["fft.rfft"] == "complex and sparse numbers"
    assert torch.int64 in torch_opinfo.DTYPES
    assert not by_name["add"] and not by_name["nn.functional.conv2d"]
