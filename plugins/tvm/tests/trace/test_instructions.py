"""A trace that others wrote is data: whatever is no schedule primitive is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autotune_tvm.trace.instructions import decided, read_instructions, sampled
from autotune_tvm.trace.step import TraceStep

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import var
from autotune.sketches import Step

LOOKUP = ["GetSBlock", [], [0, "main"], ["b0"]]
TILE = ["SamplePerfectTile", ["l0"], [2, 64], ["v0", "v1"]]
CHOICE = ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v2"]]
LOCATION = ["SampleComputeLocation", ["b0"], [], ["l1"]]


def text_of(*instructions: Any) -> str:
    return json.dumps(list(instructions))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "JSON list of instructions"),
        ("{}", "at most 4096 instructions"),
        ("[" * 100_000, "JSON list of instructions"),
        (text_of(["GetSBlock", []]), "instruction 0 of the trace is no list of a kind"),
        (text_of(LOOKUP, ["Tensorize", ["l0"], ["x"], []]), "instruction 1 .* of no kind"),
        (text_of(["GetSBlock", [], ["C", "main"], ["b0"]]), "neither one of 1 stages nor 'root'"),
        (text_of(["GetSBlock", [], [1, "main"], ["b0"]]), "neither one of 1 stages"),
        (text_of(["GetSBlock", [], [0, "other"], ["b0"]]), "no block of the function 'main'"),
        (
            text_of(["Annotate", ["b0", '"x"'], ["pragma_import_llvm"], []]),
            r"annotates something else than meta_schedule\.\*",
        ),
        (text_of(["SamplePerfectTile", ["l0"], [17, 64], []]), "no tile of at most 16 loops"),
        (text_of(["SampleCategorical", [], [[0, 0], []], ["v2"]]), "has a choice twice"),
        (text_of(["SampleCategorical", [], [["x"], []], ["v2"]]), "no choice among whole numbers"),
        (text_of(["Fuse", [{"a": 1}], [], ["l0"]]), "something else than names, numbers"),
        (text_of(["Fuse", ["l0"], [], [3]]), "results without names"),
        (f'[["Fuse", [{"[" * 900}{"]" * 900}], [], []]]', "something else than names, numbers"),
        (" " * (1 << 20) + "[]", "at most 1048576 characters"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        read_instructions(text, 1)


def test_what_is_sampled_and_decided() -> None:
    instructions = read_instructions(text_of(LOOKUP, TILE, CHOICE, LOCATION), 1)
    assert [(at, count) for at, _, count in sampled(instructions)] == [(1, 2), (2, 1), (3, 1)]
    assert decided(instructions, [4, 2, 16, -1]) == [[1, [4, 2]], [2, 1], [3, -1]]


def test_a_step_survives_json_and_names_its_stages() -> None:
    decisions = tuple(var(name) for name in ("a", "b", "c", "d"))
    step = TraceStep("C", ("C",), text_of(LOOKUP, TILE, CHOICE, LOCATION), decisions)
    data = json.loads(json.dumps(to_json(step)))
    assert data["step"] == "tvm_trace" and from_json(Step, data) == step
    with pytest.raises(InvalidValueError, match="decides 4 values, and not 3"):
        TraceStep("C", ("C",), step.trace, decisions[:3])
    with pytest.raises(InvalidValueError, match="of no kind that a trace may have"):
        from_json(Step, {**data, "trace": text_of(["Import", [], [], []])})
