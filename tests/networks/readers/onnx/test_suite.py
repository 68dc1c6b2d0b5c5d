"""ONNX's own test suite is the specification: nothing of it is computed wrong."""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import TensorProto, helper

from autotune.networks.graph import evaluate
from tests.support import onnx_suite


def _judged(every: int, run: onnx_suite.Run) -> Counter[str]:
    included = [it for it in onnx_suite.cases(every) if not onnx_suite.excluded(it.model)]
    verdicts = {it.name: onnx_suite.judge(it, run) for it in included}
    bad = {name: it for name, it in verdicts.items() if it.kind in ("wrong", "crashed")}
    assert not bad
    return Counter(it.kind for it in verdicts.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "every", "least"), [(evaluate, 16, 80), (onnx_suite.compiled, 64, 20)]
)
def test_a_sample_passes_or_is_refused_in_one_line(
    run: onnx_suite.Run, every: int, least: int
) -> None:
    kinds = _judged(every, run)
    assert kinds.total() >= least
    assert kinds["passed"] >= 0.9 * kinds.total()


@pytest.mark.long
@pytest.mark.parametrize("run", [evaluate, onnx_suite.compiled])
def test_the_suite_passes_or_is_refused_in_one_line(run: onnx_suite.Run) -> None:
    kinds = _judged(1, run)
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
