"""``torch.compile(backend="autotune")`` on CUDA devices, and torch's way through Relax."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
import torch
from autotune_tvm import relax_pipelines

import autotune as package
from autotune.networks import torch_backend
from autotune.networks.torch_backend import BackendOptions, autotune

OPTIONS = {"threads": 1, "fallback": "eager"}


def model() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)
    return torch.nn.Sequential(*layers).eval()


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with what compiling the model with a budget records."""
    path = tmp_path_factory.mktemp("records") / "records.db"
    options = {**OPTIONS, "trials": 4, "database": str(path)}
    with torch.no_grad():
        torch.compile(model(), backend=autotune, options=options)(torch.ones(8, 32))
    torch._dynamo.reset()
    return path


def test_the_way_through_relax(tuned: Path) -> None:
    """Torch's own backend of TVM, once it goes through Relax."""
    from tvm.relax.frontend.torch import relax_dynamo

    relax_pipelines.register()
    x = torch.randn(8, 32)
    with torch.no_grad(), package.database(tuned):
        compiled = torch.compile(model(), backend=relax_dynamo(pipeline="autotune"))
        close(compiled(x), model()(x))


def graph_on_cuda(function: Any, *shapes: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """Capture a function of tensors on a CUDA device, which need not be there."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inputs = [torch.empty(shape, device="cuda") for shape in shapes]
        graph = make_fx(lambda *tensors: (function(*tensors),), tracing_mode="real")(*inputs)
    assert mode is not None
    return graph, inputs


def test_subgraphs_on_a_cuda_device_are_compiled_for_it(
    fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.relu(x @ y + torch.full((6,), 2.0, device=x.device))

    fake_cuda.install(fake_driver, tmp_path, monkeypatch)
    path = tmp_path / "records.db"
    package.open_database(path).close()
    graph, inputs = graph_on_cuda(function, (4, 8), (8, 6))
    options = BackendOptions.read({"target": "cuda", "database": str(path)})
    compiled = torch_backend._compiled(options, graph, inputs)
    # Tensors of the host are copied to the device.
    x, y = torch.randn(4, 8), torch.randn(8, 6)
    (found,) = compiled(x, y)
    close(found, function(x, y))
    assert any("cuda" in str(node.kwargs) for node in graph.graph.nodes), "the graph was changed"

    asked = BackendOptions.read({"target": "cpu", "database": str(path)})
    with pytest.raises(torch_backend._NotCompiled, match="on cuda:0, and target 'cpu' is of kind"):
        torch_backend._compiled(asked, graph, inputs)
    with pytest.raises(torch_backend._NotCompiled, match="on cpu, cuda:0; subgraphs are compiled"):
        torch_backend._compiled(options, graph, [inputs[0], torch.ones(8, 6)])


def attention_of_gpus(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """By the kernels that torch would launch on a GPU: with a mask, with a scale, and causal."""
    aten = torch.ops.aten
    masked = aten._scaled_dot_product_efficient_attention.default(q, k, v, bias, False)[0]
    scaled = aten._scaled_dot_product_flash_attention.default(q, k, masked, scale=0.2)[0]
    kernel = aten._scaled_dot_product_cudnn_attention.default
    return kernel(q, k, scaled, None, False, 0.0, True)[0]


def test_attention_of_gpus_is_compiled(
    fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cuda.install(fake_driver, tmp_path, monkeypatch)
    path = tmp_path / "records.db"
    package.open_database(path).close()
    shapes = [(1, 2, 3, 8)] * 3 + [(1, 2, 3, 3)]
    graph, inputs = graph_on_cuda(attention_of_gpus, *shapes)
    options = BackendOptions.read({"target": "cuda", "database": str(path)})
    compiled = torch_backend._compiled(options, graph, inputs)
    q, k, v, bias = (torch.randn(shape) for shape in shapes)
    plain = torch.nn.functional.scaled_dot_product_attention
    wanted = plain(q, k, plain(q, k, plain(q, k, v, attn_mask=bias), scale=0.2), is_causal=True)
    close(compiled(q, k, v, bias)[0], wanted)

    # Gradients need more than the result: torch's own kernel is asked for it.
    def for_gradients(q: Any, k: Any, v: Any) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v)[1]

    graph, inputs = graph_on_cuda(for_gradients, *shapes[:3])
    with pytest.raises(torch_backend._NotCompiled, match="_scaled_dot_product_flash_attention"):
        torch_backend._compiled(options, graph, inputs)


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_a_model_on_a_cuda_device_is_compiled_for_it(tmp_path: Path) -> None:
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there = model().cuda()
    x = torch.randn(8, 32, device="cuda")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "autotune:")
        found = torch.compile(there, backend=autotune, options=options)(x)
    assert found.is_cuda
    close(found.cpu(), model()(x.cpu()))


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_compiled_models_are_called_on_torchs_stream(tmp_path: Path) -> None:
    """Ten calls are begun behind work that takes long, and see weights as they are by then."""
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there, plain = model().cuda(), model().cuda()
    compiled = torch.compile(there, backend=autotune, options=options)
    x = torch.randn(8, 32, device="cuda")
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        compiled(x)
        busy = torch.randn(8192, 8192, device="cuda")
        for _ in range(50):
            busy = (busy @ busy).sin()
        done = torch.cuda.Event()
        done.record()
        found = []
        for factor in range(10):
            for one, other in zip(there.parameters(), plain.parameters(), strict=True):
                one.copy_(other * (1 + factor))
            found.append(compiled(x + factor))
        assert not done.query(), "the host has waited"
        for factor, tensor in enumerate(found):
            scaled = model().cuda()
            for one, other in zip(scaled.parameters(), plain.parameters(), strict=True):
                one.copy_(other * (1 + factor))
            torch.testing.assert_close(tensor, scaled(x + factor), rtol=1e-3, atol=1e-3)


class Attending(torch.nn.Module):  # type: ignore[misc]
    """Attention of four heads beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        parts = self.inputs(self.norm(x)).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(x.shape)


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_attention_on_a_cuda_device_is_left_to_nobody(tmp_path: Path, dtype: Any) -> None:
    """Whichever kernel torch would take, on a device that the model's process uses already."""
    kept = torch.zeros(1 << 30, device="cuda")
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there = Attending().cuda().to(dtype).eval()
    x = torch.randn(2, 48, 64, device="cuda", dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "autotune:")
        found = torch.compile(there, backend=autotune, options=options)(x)
        wanted = there.double()(x.double())
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    assert kept.sum() == 0
