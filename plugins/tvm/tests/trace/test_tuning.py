"""Tuning in the trace space: which parts work there, and that its records are records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autotune_tvm.importer import import_module
from other_names import check_answers_from_records
from tvm import te

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate
from autotune.tuning.options import NONE, chosen_parts

TRACE = {"search_space": "trace"}


def layer(number: int, axis: str) -> Any:
    """A linear layer with relu, its tensors and axes called by number."""
    names = [f"lv{number + offset}" for offset in range(4)]
    x, w = (
        te.placeholder(shape, "float32", name)
        for name, shape in zip(names, ((16, 24), (24, 32)), strict=False)
    )
    k = te.reduce_axis((0, 24), axis)
    product = te.compute((16, 32), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), names[2])
    positive = te.compute((16, 32), lambda i, j: te.max(product[i, j], 0.0), names[3])
    return te.create_prim_func([x, w, positive])


def test_the_usual_parts_are_those_that_know_traces() -> None:
    chosen = chosen_parts(TRACE, {})
    assert {kind: choice.name for kind, choice in chosen.items()} == {
        "runner": "local",
        "strategy": "evolutionary",
        "cost_model": "lowered",
        "pruning_model": NONE,
        "search_space": "trace",
        "task_scheduler": "gradient",
        "measurer": "local",
    }
    for strategy in ("random", "grid"):
        assert chosen_parts({**TRACE, "strategy": strategy}, {})["cost_model"].is_none
    assert chosen_parts({**TRACE, "cost_model": "random"}, {})["cost_model"].name == "random"


@pytest.mark.parametrize(
    ("kind", "name", "others"),
    [
        ("strategy", "felix", "annealing, auto, evolutionary, grid, random"),
        ("strategy", "heron", "annealing, auto, evolutionary, grid, random"),
        ("cost_model", "gbdt", "lowered, random"),
        ("pruning_model", "psa", "none"),
    ],
)
def test_parts_that_read_the_nest_are_refused(kind: str, name: str, others: str) -> None:
    noun = kind.replace("_", " ")
    said = f"{noun} '{name}' reads the symbolic loop nest, and .* 'trace' have none; .*: {others}$"
    with pytest.raises(InvalidValueError, match=said):
        chosen_parts({**TRACE, kind: name}, {})


def test_the_cost_model_of_the_space_is_refused_in_another_one() -> None:
    """At once: it was found in the second round, when candidates were scored."""
    said = (
        "^cost model 'lowered' scores candidates of space 'trace', and that of the run is "
        "'sketch'; there can be: .*gbdt.*random"
    )
    with pytest.raises(InvalidValueError, match=said):
        chosen_parts({"cost_model": "lowered"}, {})


def test_records_answer_for_equal_programs(tmp_path: Path) -> None:
    """With the usual strategy and cost model: two rounds, of which the second is scored."""
    first, second = layer(3, "k"), layer(69, "reduced")
    workload, _ = import_module(second)
    settings = {"backend": "tvm", "parts": TRACE, "round_size": 3}
    _, other = check_answers_from_records(first, second, workload, tmp_path, **settings)
    candidate = other.require_best().candidate
    assert isinstance(candidate, Candidate) and candidate.sketch.is_opaque
    assert "lv71" in " ".join(candidate.config)
