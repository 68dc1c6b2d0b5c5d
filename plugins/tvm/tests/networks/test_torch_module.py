"""Models of torch become programs that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from autotune_tvm.importer import import_module
from autotune_tvm.networks.frontend import RelaxFrontend
from torch import nn

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.arrays import as_numpy
from autotune.networks.comparison import compare_outputs
from autotune.networks.running import check_network
from autotune.targets import Target

functional = nn.functional


class Residual(nn.Module):
    """Convolutions of every kind with batch norms, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.up_norm = nn.BatchNorm2d(4)
        self.classes = nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        x = functional.relu(self.norm(self.first(image)))
        x = functional.relu6(self.depthwise(x)) + x
        x = functional.max_pool2d(torch.tanh(self.up_norm(self.up(x))), 2)
        return self.classes(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class Decoder(nn.Module):
    """Embeddings, causal attention with a padding mask, and a layer of GELU."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(20, width), nn.Embedding(8, width)
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, words: Any, kept: Any) -> Any:
        batch, length = words.shape
        x = self.words(words) + self.places(torch.arange(length))
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & (kept == True)[:, None, None, :]  # noqa: E712
        parts = self.into(self.norm(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return x + self.narrow(functional.gelu(self.wide(x))), x[:, 0]


class Grouped(nn.Module):
    """Causal attention of four heads that share two of keys and values, in torch's way."""

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )


class Expanded(nn.Module):
    """The same with keys and values that are copied before, as models of `transformers` do."""

    def forward(self, query: Any, *held: Any) -> Any:
        batch, heads, length, width = query.shape
        groups = held[0].shape[1]
        copies = (batch, groups, heads // groups, length, width)
        key, value = (it[:, :, None].expand(copies).reshape(query.shape) for it in held)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Ends(nn.Module):
    """Positions that are counted from the end."""

    def forward(self, x: Any) -> Any:
        return x[:, -1] + x[:, [-2, 0]].sum(1), x[..., -3:-1], x[-1, -1, -1]


def model(kind: type[Any]) -> Any:
    """A model of inference with random weights and statistics."""
    torch.manual_seed(0)
    made = kind()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return made.eval()


IMAGE = (torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0)),)
KEPT = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
WORDS = (torch.arange(12).reshape(2, 6), KEPT)
GROUPS = tuple(torch.randn(2, heads, 16, 16) for heads in (4, 2, 2))


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        (Residual, IMAGE),
        (Decoder, WORDS),
        (Ends, (IMAGE[0][0],)),
        (Grouped, GROUPS),
        (Expanded, GROUPS),
    ],
)
def test_a_model_computes_what_it_does_in_torch(kind: Any, inputs: Any, target: Target) -> None:
    network = model(kind)
    program = RelaxFrontend().load(network, inputs, LoadOptions(target, 1))
    found = program.build({}, target, 1)(*inputs)
    with torch.no_grad():
        wanted = network(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert all(isinstance(tensor, torch.Tensor) for tensor in found)
    for difference in compare_outputs(program.outputs, wanted, found):
        assert difference.ok, str(difference)
    for difference in compare_outputs(program.outputs, wanted, program.reference(inputs) or ()):
        assert difference.ok, str(difference)


@pytest.mark.parametrize("kind", [Grouped, Expanded])
def test_heads_that_share_keys_are_not_copied(kind: Any, target: Target) -> None:
    program = RelaxFrontend().load(model(kind), GROUPS, LoadOptions(target, 1))
    (task,) = (it for it in program.tasks if not it.view)
    workload, _ = import_module(task.program)
    assert [it.shape for it in workload.inputs] == [(4, 2, 16, 16), (4, 16, 16), (4, 16, 16)]


def half_model() -> Any:
    parts = (nn.Conv2d(3, 8, 3, bias=True), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8, bias=False))
    rest = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
    torch.manual_seed(0)
    return nn.Sequential(*parts, *rest).half().eval()


def test_products_of_halves_are_summed_in_single_precision(target: Target) -> None:
    network, image = half_model(), IMAGE[0].half()
    program = RelaxFrontend().load(network, (image,), LoadOptions(target, 1))
    (found,) = program.build({}, target, 1)(image)
    assert found.dtype == torch.float16
    with torch.no_grad():
        for difference in compare_outputs(program.outputs, (network(image),), (found,)):
            assert difference.ok, str(difference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_networks_of_other_types_compute_what_torch_does(dtype: Any, target: Target) -> None:
    network, image = Residual().eval().to(dtype), IMAGE[0].to(dtype)
    program = RelaxFrontend().load(network, (image,), LoadOptions(target, 1))
    compiled = program.build({}, target, 1)
    (found,) = compiled(image)
    assert found.dtype == dtype
    with torch.no_grad():
        for difference in compare_outputs(program.outputs, (network(image),), (found,)):
            assert difference.ok, str(difference)
    (array,) = compiled(*program.example_inputs())
    assert isinstance(array, np.ndarray) and str(array.dtype) == str(dtype).split(".")[1]
    np.testing.assert_array_equal(as_numpy(found), array)
    assert program.weight_bytes >= dtype.itemsize * network.classes.weight.numel()


def test_a_volume_is_transposed_and_convolved(target: Target) -> None:
    parts = (nn.Conv3d(2, 4, 3, 2, 1), nn.ConvTranspose3d(4, 4, 4, 2, 1), nn.BatchNorm3d(4))
    grouped = nn.ConvTranspose3d(4, 4, 3, 2, 1, output_padding=1, groups=2, dilation=2)
    check(nn.Sequential(*parts, grouped).eval(), (torch.randn(1, 2, 6, 6, 6),), target)


class Mixed(nn.Module):
    """Outputs that are no tensors, beside one that is."""

    def forward(self, x: Any) -> Any:
        return {"number": x.shape[0], "none": None, "twice": [x * 2]}


def test_outputs_that_are_no_tensors_are_left_out(target: Target) -> None:
    program = check(Mixed(), IMAGE, target)
    assert len(program.outputs) == 1


def check(network: Any, inputs: tuple[Any, ...], target: Target) -> Any:
    """Compare what a model computes with its own outputs in torch; returns the program."""
    program = RelaxFrontend().load(network.eval(), inputs, LoadOptions(target, 1))
    check_network(program, program.build({}, target, 1))
    return program


def test_batch_norms_and_epilogues_are_in_the_tasks_before_them(target: Target) -> None:
    program = RelaxFrontend().load(model(Residual), IMAGE, LoadOptions(target, 1))
    nodes = [task.nodes for task in program.tasks]
    assert ("conv2d", "add", "relu") in nodes
    assert not any("batch_norm" in it or "conv2d_transpose" in it for it in nodes)


def test_numpy_arrays_give_numpy_arrays(target: Target) -> None:
    network = RelaxFrontend().load(model(Residual), IMAGE, LoadOptions(target, 1))
    compiled = network.build({}, target, 1)
    (tensor,), (array,) = compiled(*IMAGE), compiled(IMAGE[0].numpy())
    assert isinstance(array, np.ndarray) and np.array_equal(array, tensor.numpy())


def test_an_exported_program_and_its_file_are_read(target: Target, tmp_path: Path) -> None:
    exported = torch.export.export(model(Residual), IMAGE)
    path = tmp_path / "residual.pt2"
    torch.export.save(exported, path)
    options = LoadOptions(target, 1)
    names = []
    for source in (exported, path):
        program = RelaxFrontend().load(source, None, options)
        assert np.array_equal(program.example_inputs()[0], IMAGE[0].numpy())
        names.append([task.name for task in program.tasks])
    assert names[0] == names[1] and program.name == "residual"


def test_a_file_with_a_pickled_object_is_refused_unread(target: Target, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "object.pt2"
    torch.export.save(torch.export.export(model(Residual), IMAGE), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("object/data/constants/opaque_obj_0", b"anything")
    with pytest.raises(InvalidValueError, match="pickled object .*opaque_obj_0"):
        RelaxFrontend().load(path, None, LoadOptions(target, 1))


def test_a_damaged_file_is_one_line(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "cut.pt2"
    torch.export.save(torch.export.export(model(Residual), IMAGE), path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InvalidValueError, match="no exported program") as caught:
        RelaxFrontend().load(path, None, LoadOptions(target, 1))
    assert "\n" not in str(caught.value)


class Sorts(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.svd(x)[1]


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x


class Within(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"sorts": Sorts()})

    def forward(self, x: Any) -> Any:
        return self.layers["sorts"](x + 1)


class Words(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2, "text"


class Misfits(nn.Module):
    def forward(self, x: Any) -> Any:
        return x @ torch.ones(3, 3)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Sorts, r"does not know the operator of node '\w*svd' \(_linalg_svd.default\)"),
        (Within, r"node '\w*svd' \(_linalg_svd.default in 'layers.sorts'\); replace it"),
        # TVM fails in the middle of its own graph, and would say that it gives that up.
        (Words, "node 'output' .*output type"),
        (Counts, "writes 'calls'"),
        (Branches, r"cannot trace Branches at test_torch_module.py:\d+: .* torch.where"),
        (Misfits, r"cannot trace Misfits at test_torch_module.py:\d+: .*; call the model"),
    ],
)
def test_what_cannot_be_a_network_is_named(
    kind: Any, message: str, target: Target, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnsupportedWorkload, match=message) as caught:
        RelaxFrontend().load(kind().eval(), (torch.ones(4, 4),), LoadOptions(target, 1))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), "no more than the error"


def test_a_module_needs_inputs_and_is_not_in_training(target: Target) -> None:
    options = LoadOptions(target, 1)
    with pytest.raises(InvalidValueError, match="needs example inputs"):
        RelaxFrontend().load(model(Residual), None, options)
    with pytest.raises(InvalidValueError, match=r"call eval\(\)"):
        RelaxFrontend().load(model(Residual).train(), IMAGE, options)


@pytest.mark.needs("torch of CUDA")
def test_a_model_on_another_device_is_read_on_the_cpu() -> None:
    from autotune_tvm.networks.sources.torch_module import _on_cpu
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Shifted(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + torch.full((4,), 2.0, device=x.device)

    with FakeTensorMode(), torch.device("cuda"):
        program = torch.export.export(Shifted(4, 4).eval(), (torch.empty(2, 4),))
    moved = _on_cpu(program)
    assert {it.device.type for it in moved.state_dict.values()} == {"cpu"}
    made = [node.kwargs["device"] for node in moved.graph.nodes if "device" in node.kwargs]
    assert list(map(str, made)) == ["cpu"]
    assert _on_cpu(moved) is moved
