"""Networks in torch and in what reads them from torch, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.networks.bench import BenchOptions, bench_model
from autotune.networks.source import Source
from autotune.testing.reference_frontend import REFERENCE_FRONTEND

pytestmark = pytest.mark.needs("torch")

MODELS = """
import torch

class Several(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 4)

    def forward(self, x):
        return {"scores": self.first(x), "parts": (x.relu(), x.amax(-1))}

def several():
    return Several().eval(), (torch.randn(2, 8),)

def linear():
    return torch.nn.Linear(8, 4).eval(), (torch.randn(2, 8),)
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "torch_models.py").write_text(MODELS)


def options(*runtimes: str) -> BenchOptions:
    return BenchOptions(
        runtimes=runtimes, turns=2, seconds=0.02, threads=1, frontend=REFERENCE_FRONTEND
    )


@pytest.mark.parametrize(
    "reader",
    [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("onnxruntime", "openvino")],
)
def test_weights_and_inputs_are_the_same_in_every_process(reader: str) -> None:
    """Of a model whose outputs are nested."""
    result = bench_model("torch_models:several", options("torch eager", reader))
    assert result.reference == "torch eager"
    for row in result.rows:
        assert row.problem == "" and row.latency and row.peak_bytes
        assert row.error is not None and row.error < 1.0


def test_nested_outputs_are_flat() -> None:
    import torch

    from autotune.networks.bench.torch_runtimes import ReturningTensors, as_arrays

    class Cache:
        """A cache that torch knows nothing of."""

        def __init__(self, *layers: torch.Tensor) -> None:
            self.layers = layers

        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(self.layers)

    class Caching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"logits": x + 2, "cache": Cache(x + 3, x + 5), "loss": None}

    a, b, c = (torch.full((2,), float(value)) for value in range(3))
    found = as_arrays({"first": a, "others": (b, [c])})
    np.testing.assert_array_equal(np.stack(found)[:, 0], [0.0, 1.0, 2.0])
    for model in (Caching(), ReturningTensors(Caching())):
        cached = np.stack(as_arrays(model(a)))
        np.testing.assert_array_equal(cached[:, 0], [2.0, 3.0, 5.0])


def test_an_exported_program_has_its_inputs(tmp_path: Path) -> None:
    import torch

    from autotune.networks.bench.torch_runtimes import as_arrays, as_module

    inputs = (torch.randn(2, 8),)
    exported = torch.export.export(torch.nn.Linear(8, 4).eval(), inputs)
    torch.export.save(exported, tmp_path / "linear.pt2")
    for model in (exported, tmp_path / "linear.pt2"):
        module, given = as_module(Source(model, None, "linear"))
        assert len(given) == 1 and torch.equal(given[0], inputs[0])
        np.testing.assert_array_equal(*as_arrays([module(*given), exported.module()(*inputs)]))
    with pytest.raises(InvalidValueError, match="linear is no model of torch"):
        as_module(Source(3, inputs, "linear"))
    with pytest.raises(InvalidValueError, match="linear has no example inputs"):
        as_module(Source(torch.nn.Linear(8, 4), None, "linear"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_faster_order_of_channels_counts() -> None:
    """A CPU takes the place of a device."""
    import torch

    from autotune.networks.bench import torch_runtimes
    from autotune.targets import preset

    torch.manual_seed(0)
    model = torch.nn.Conv2d(4, 8, 3).eval()
    inputs = (torch.randn(1, 4, 9, 9),)
    wanted = model(*inputs).detach().numpy()
    orders = torch_runtimes._orders(model, inputs, "cpu")
    assert [order for order, _, _ in orders] == ["", ", channels last"]
    assert orders[1][2][0].is_contiguous(memory_format=torch.channels_last)
    found = torch_runtimes.prepared_on(
        preset("h100"), model, inputs, torch_runtimes.as_arrays, compiles=False, device="cpu"
    )
    np.testing.assert_allclose(found.outputs()[0], wanted, rtol=1e-5, atol=1e-5)
    found.run()
    assert found.on_device and found.seconds is not None and len(found.seconds(3)) == 3
    assert not torch.backends.cudnn.allow_tf32, "the target does not allow it"


def test_what_was_converted_is_compared_with_the_model_as_it_was() -> None:
    asked = BenchOptions(
        runtimes=("torch eager",), turns=1, seconds=0.02, threads=1, precision="bfloat16"
    )
    result = bench_model("torch_models:linear", asked)
    (row,) = result.rows
    assert result.reference == "the model before it was converted" and row.problem == ""
    assert row.error is not None and 0 < row.error < 1
    assert result.to_json()["precision"] == "bfloat16"
