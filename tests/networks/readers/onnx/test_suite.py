"""ONNX's own test suite is the specification: nothing of it is computed wrong."""

from __future__ import annotations

from collections import Counter

import onnx_suite
import pytest
from onnx import TensorProto, helper

from autotune.networks.graph import evaluate


def _judged(every: int, *runs: tuple[onnx_suite.Run, int]) -> list[Counter[str]]:
    """Verdicts of one in ``every`` tests by each way, which takes a part of them."""
    included = [it for it in onnx_suite.cases(every) if not onnx_suite.excluded(it.model)]
    found = []
    for run, part in runs:
        verdicts = {it.name: onnx_suite.judge(it, run) for it in included[::part]}
        assert not {name: it for name, it in verdicts.items() if it.kind in ("wrong", "crashed")}
        found.append(Counter(it.kind for it in verdicts.values()))
    return found


@pytest.mark.slow
def test_a_sample_passes_or_is_refused_in_one_line() -> None:
    """Both ways at once: it takes seconds to make the tests of the suite."""
    for kinds, least in zip(
        _judged(16, (evaluate, 1), (onnx_suite.compiled, 4)), (80, 20), strict=True
    ):
        assert kinds.total() >= least
        assert kinds["passed"] >= 0.9 * kinds.total()


@pytest.mark.long
@pytest.mark.parametrize("run", [evaluate, onnx_suite.compiled])
def test_the_suite_passes_or_is_refused_in_one_line(run: onnx_suite.Run) -> None:
    (kinds,) = _judged(1, (run, 1))
    assert kinds.total() >= 1400
    assert kinds["passed"] >= 0.95 * kinds.total()


def test_what_is_left_out_is_left_out_by_a_rule() -> None:
    def model(kind: str, element: int) -> object:
        values = [helper.make_tensor_value_info(it, element, [2]) for it in "xy"]
        node = helper.make_node(kind, ["x"], ["y"])
        return helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]))

    assert onnx_suite.excluded(model("Relu", TensorProto.FLOAT)) == ""
    assert onnx_suite.excluded(model("Relu", TensorProto.UINT32)) == ""
    assert onnx_suite.excluded(model("Identity", TensorProto.STRING)) == "strings"
    assert onnx_suite.excluded(model("Bernoulli", TensorProto.FLOAT)) == "random numbers"
    for narrow in (TensorProto.INT4, TensorProto.FLOAT8E5M2, TensorProto.UINT2):
        assert "bits" in onnx_suite.excluded(model("Identity", narrow))
