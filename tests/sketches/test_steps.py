from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import IntExpr, const, var
from autotune.sketches import (
    BIND_ROLES,
    STEP_TYPES,
    Accumulate,
    Bind,
    BoundLoop,
    BulkCopy,
    ChunkReduction,
    ChunkScan,
    CooperativeFetch,
    CoreMatrices,
    FuseConsumer,
    FuseProducer,
    Im2col,
    Inline,
    Interleave,
    Order,
    Pack,
    PadExtent,
    Parallel,
    PipelineFetches,
    Prefetch,
    Prepack,
    SharedLayout,
    SoftwarePipeline,
    SplitReduction,
    Step,
    Stream,
    Tensorize,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
    WarpTensorize,
)

NAMES = st.sampled_from(["C", "Y", "i", "i.0", "j.1"])
OPTIONAL_NAMES = st.none() | NAMES
NAME_LISTS = st.lists(NAMES, max_size=4).map(tuple)
EXPRESSIONS: st.SearchStrategy[IntExpr] = st.sampled_from(
    [const(1), const(16), var("p"), var("p") * var("q"), var("p") + 3, var("p") // 4]
)
EXPRESSION_LISTS = st.lists(EXPRESSIONS, max_size=4).map(tuple)
SMALL = st.integers(1, 16)
ARGUMENTS: dict[type[Step], tuple[st.SearchStrategy[Any], ...]] = {
    Inline: (NAMES,),
    PadExtent: (NAMES, NAMES, EXPRESSIONS),
    SplitReduction: (NAMES, NAMES, SMALL),
    ChunkReduction: (NAMES, NAMES, SMALL),
    ChunkScan: (NAMES, SMALL),
    Im2col: (NAMES,),
    Tile: (NAMES, NAMES, EXPRESSION_LISTS),
    Order: (NAMES, NAME_LISTS),
    Pack: (
        *(NAMES, NAMES, OPTIONAL_NAMES, st.none() | st.integers(0, 3)),
        *(st.none() | EXPRESSIONS, SMALL),
    ),
    Interleave: (NAMES, NAMES, st.integers(0, 3), SMALL),
    Prepack: (NAMES, NAMES),
    Accumulate: (NAMES, NAMES, EXPRESSION_LISTS),
    FuseConsumer: (NAMES, NAMES, NAMES, EXPRESSION_LISTS),
    FuseProducer: (NAMES, NAMES, NAMES, SMALL),
    Parallel: (NAMES, NAME_LISTS),
    Vectorize: (NAMES, NAMES),
    Unroll: (NAMES, NAME_LISTS),
    Tensorize: (NAMES, NAME_LISTS, NAMES),
    WarpTensorize: (NAMES, NAME_LISTS, NAMES),
    Bind: (NAMES, NAME_LISTS, st.sampled_from(BIND_ROLES)),
    CooperativeFetch: (NAMES, NAMES, NAMES, EXPRESSIONS, EXPRESSIONS),
    SharedLayout: (NAMES, NAMES, st.permutations(range(3)).map(tuple), EXPRESSIONS),
    PipelineFetches: (NAMES, NAMES, EXPRESSIONS),
    CoreMatrices: (NAMES, NAMES, st.integers(0, 3), SMALL, EXPRESSIONS),
    BulkCopy: (NAMES, NAMES, EXPRESSIONS),
    TileCeil: (NAMES, NAMES, EXPRESSION_LISTS),
    UnrollLimit: (NAMES, EXPRESSIONS),
    Stream: (NAMES, EXPRESSIONS),
    SoftwarePipeline: (NAMES, NAMES, NAMES),
    Prefetch: (NAMES, NAMES, NAMES, NAMES, EXPRESSIONS),
    BoundLoop: (
        *(NAMES, NAMES, NAMES, EXPRESSIONS, SMALL),
        *(st.sampled_from([-1, 1, 2]), st.none() | EXPRESSIONS),
    ),
}
STEPS = st.one_of([st.builds(step, *arguments) for step, arguments in ARGUMENTS.items()])


@given(STEPS)
def test_json_round_trip(step: Step) -> None:
    data = json.loads(json.dumps(to_json(step)))
    assert from_json(Step, data) == step
    assert type(from_json(Step, data)) is type(step)
    fields = attrs.fields(type(step))
    added = {it.name for it in fields if getattr(step, it.name) == it.default}
    assert set(data) == {"step", *(it.name for it in fields)} - added


def test_every_step_is_tested() -> None:
    assert set(ARGUMENTS) == set(STEP_TYPES.values())


def test_the_form_in_json() -> None:
    step = Pack("C", "B", None, 1, var("C.j.2") * 16, 16)
    assert to_json(step) == {
        "step": "pack",
        "stage": "C",
        "operand": "B",
        "at": None,
        "block_dim": 1,
        "block": ["mul", 16, "C.j.2"],
        "lanes": 16,
    }


def test_bounds_by_causal_masks_have_the_form_that_they_had() -> None:
    """Digests of sketches depend on it."""
    mask = {"stage": "Y", "loop": "j.0", "axis": "i", "offset": 0, "scale": 1}
    step = from_json(Step, {"step": "bound_loop", **mask})
    assert step == BoundLoop("Y", "j.0", "i", const(0), 1, -1, None)
    assert to_json(step) == {"step": "bound_loop", **mask}
    window = BoundLoop("Y", "kh.0", "ho", const(14), 2, 1, const(1))
    assert to_json(window) == {
        "step": "bound_loop",
        "stage": "Y",
        "loop": "kh.0",
        "axis": "ho",
        "offset": 14,
        "scale": 2,
        "stride": 1,
        "least": 1,
    }


@pytest.mark.parametrize(
    ("written", "read"), [("fetch", "cooperative_fetch"), ("cover", "tile_ceil")]
)
def test_steps_are_read_in_both_spellings(written: str, read: str) -> None:
    fields = {
        "fetch": {"stage": "C", "operand": "A", "at": "k.0", "threads": 128, "lanes": 4},
        "cover": {"stage": "C", "axis": "i", "factors": [4, 16]},
    }[written]
    step = from_json(Step, {"step": read, **fields})
    assert to_json(step) == {"step": written, **fields}
    assert from_json(Step, to_json(step)) == step


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"step": "fly"}, "unknown step 'fly'; known: .*inline, pad_extent"),
        ({}, "unknown step None"),
        ({"step": ["tile"]}, "unknown step"),
        (None, "not a step"),
        ("tile", "not a step"),
        ([], "not a step"),
        ({"step": "inline"}, "malformed step"),
        ({"step": "inline", "stage": "C", "axis": "i"}, "malformed step"),
        ({"step": "tile", "stage": "C", "axis": "i", "factors": 3}, "malformed step"),
        ({"step": "tile", "stage": "C", "axis": "i", "factors": [None]}, "integer expression"),
        ({"step": "pad_extent", "stage": "C", "axis": "i", "extent": 1.5}, "integer expression"),
    ],
)
def test_malformed_json_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        from_json(Step, data)
