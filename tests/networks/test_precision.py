"""Networks of float32 in half precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.source import Source, in_precision

needs_torch = pytest.mark.needs("torch")


def test_what_cannot_be_converted_is_refused_by_name() -> None:
    source = Source(Path("model.onnx"), None, "model.onnx")
    assert in_precision(source, None) is source
    with pytest.raises(InvalidValueError, match=r"model\.onnx cannot be converted to float16: on"):
        in_precision(source, "float16")
    with pytest.raises(UnknownNameError, match="unknown precision 'float15'.*'float16'"):
        in_precision(source, "float15")


def layers() -> Any:
    """A module of two inputs in a tuple, one of them whole numbers, and a named output."""
    import torch

    class Chosen(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 4)

        def forward(self, pair: Any) -> Any:
            x, places = pair
            return {"rows": self.first(x)[places]}

    torch.manual_seed(0)
    return Chosen().eval(), ((torch.randn(6, 8), torch.tensor([3, 1])),)


@needs_torch
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_weights_and_inputs_are_converted_and_the_model_stays(precision: str) -> None:
    import torch

    model, inputs = layers()
    source = Source(model, inputs, "layers")
    found: Any = in_precision(source, precision)
    kind = getattr(torch, precision)
    assert found.model.first.weight.dtype == kind and model.first.weight.dtype == torch.float32
    ((x, places),) = found.example_inputs
    assert (x.dtype, places.dtype) == (kind, torch.int64)
    assert found.text == f"layers in {precision}" and found.key != source.key
    # Of the inputs as they were rounded, in float32.
    (rows,) = found.wide((x, places))
    wanted = model((x.float(), places))["rows"].detach().numpy()
    np.testing.assert_array_equal(rows, wanted)
    half = found.model((x, places))["rows"].detach().float().numpy()
    assert 0 < np.abs(half - wanted).max() < 0.05
    array = np.asarray(inputs[0][0])
    given: Any = in_precision(Source(model, ((array, inputs[0][1]),), "layers"), precision)
    assert str(given.example_inputs[0][0].dtype) == precision


@needs_torch
def test_a_module_needs_example_inputs() -> None:
    with pytest.raises(InvalidValueError, match="layers has no example inputs"):
        in_precision(Source(layers()[0], None, "layers"), "float16")
