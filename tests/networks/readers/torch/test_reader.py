"""Models of torch as graphs: inputs, outputs, what is written, what is shared and refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import register_pytree_node
from torch_models import Called, check_read, computed, plain

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks.fixed_inputs import AskedInputs
from autotune.networks.graph import HostOperator
from autotune.networks.readers.torch import read_torch

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
        x = functional.relu(self.norm(self.first(image)), inplace=True)
        x = functional.relu6(self.depthwise(x)) + x
        x = functional.max_pool2d(torch.tanh(self.up_norm(self.up(x))), 2)
        return self.classes(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


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


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [
        (torch.float32, 1e-4),
        (torch.float64, 1e-9),
        (torch.float16, 1e-2),
        (torch.bfloat16, 5e-2),
    ],
)
def test_a_network_computes_what_it_does_in_torch(dtype: Any, bound: float) -> None:
    check_read(model(Residual).to(dtype), (IMAGE[0].to(dtype),), bound, bound)


class Cast(nn.Module):
    """Operators of each of autocast's lists, some of them outside of it and inside it again."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        self.first, self.last = nn.Linear(24, 16), nn.Linear(16, 5)
        self.filters = nn.Conv1d(1, 4, 3)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", self.dtype):
            y = self.first(x.relu()) + self.filters(x[:, None]).mean()
            error = functional.mse_loss(y, x[:, :16])
            with torch.autocast("cpu", enabled=False):
                product = x @ x.T
            mixed = torch.cat([y, x], 1)
            halves = self.last(y.softmax(-1))
        return halves, halves.float(), error, product, mixed, self.last(x[:, :16])


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_operators_under_autocast_have_the_types_that_it_gives_them(
    dtype: Any, bound: float
) -> None:
    torch.manual_seed(0)
    network = check_read(Cast(dtype).eval(), (torch.randn(4, 24),), bound, bound)
    inner = {kind for node in network.graph.nodes for _, kind in node.results}
    assert str(dtype)[6:] in inner


def test_volumes_are_transposed_and_convolved() -> None:
    parts = (nn.Conv3d(2, 4, 3, 2, 1), nn.ConvTranspose3d(4, 4, 4, 2, 1), nn.BatchNorm3d(4))
    grouped = nn.ConvTranspose3d(4, 4, 3, 2, 1, output_padding=1, groups=2, dilation=2)
    check_read(nn.Sequential(*parts, grouped).eval(), (torch.randn(1, 2, 6, 6, 6),))


class Mixed(nn.Module):
    """Outputs that are no tensors, beside one that is, twice."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        return {"number": x.shape[0], "none": None, "twice": [y, y]}


def test_outputs_have_the_names_that_the_model_gives_them() -> None:
    network = check_read(Mixed(), IMAGE)
    assert list(network.graph.outputs) == ["['twice'][0]", "['twice'][1]"]
    assert list(read_torch(model(Residual), IMAGE).graph.outputs) == ["linear"]


class Cache:
    """A cache that torch knows nothing of."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def __iter__(self) -> Any:
        return iter(self.layers)


@attrs.define
class Held:
    """An object with a tensor in it."""

    last: Any


class Caching(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"logits": x * 2, "cache": Cache((x + 1, x + 2), (x + 3, Held(x + 4)))}


def test_objects_that_are_returned_are_taken_apart() -> None:
    network = read_torch(Caching(), (torch.zeros(3),))
    assert [array[0] for array in computed(network, [torch.zeros(3)])] == [0, 1, 2, 3, 4]


class Named(dict[str, Any]):
    """A container that a library tells torch to take apart, without names for the parts."""


class Pair(NamedTuple):
    """Two tensors."""

    low: Any
    high: Any


register_pytree_node(
    Named,
    lambda it: (list(it.values()), list(it.keys())),
    lambda values, keys: Named(zip(keys, values, strict=True)),
    serialized_type_name="autotune.tests.Named",
)


class ReturningNamed(nn.Module):
    def forward(self, x: Any) -> Any:
        return Named(sum=x + 1, bounds=Pair(-x, x), parts=[x * 2])


def test_outputs_of_a_form_that_a_library_registered_have_names_where_it_says_some() -> None:
    network = check_read(ReturningNamed(), (torch.randn(3),))
    names = ["['sum']", "['bounds'].low", "['bounds'].high", "['parts'][0]"]
    assert list(network.graph.outputs) == names


class Mapped(nn.Module):
    """A mask from a function of two positions, as models of language make it."""

    def forward(self, x: Any) -> Any:
        places = torch.arange(x.shape[-1])
        rows = torch.vmap(lambda query, key: key <= query, in_dims=(None, 0))
        mask = torch.vmap(rows, in_dims=(0, None))(places, places)
        return torch.where(mask, x, -1.0)


def test_functions_that_are_mapped_over_an_axis_are_read() -> None:
    check_read(Mapped(), (torch.randn(2, 5, 5),))


class Nested(nn.Module):
    """Tensors in lists and dictionaries, beside what is no tensor."""

    def forward(self, pair: Any, more: Any) -> Any:
        scale = 1 if more["none"] is None else 0
        return len(pair) * pair[0] + pair[1] * more["scale"] * scale * more["count"]


def test_each_tensor_of_a_nested_argument_is_an_input() -> None:
    one, two, scale = torch.randn(3, 5), torch.randn(3, 5), np.full(5, 0.5, np.float32)
    given = ([one, two], {"scale": scale, "count": 3, "none": None})
    network = read_torch(Nested(), given)
    assert [it.shape for it in network.graph.inputs] == [(3, 5), (3, 5), (5,)]
    (found,) = computed(network, [one, two, torch.from_numpy(scale)])
    np.testing.assert_allclose(found, (2 * one + 1.5 * two).numpy(), rtol=1e-5)


def test_weights_are_shared_and_not_copied() -> None:
    linear = nn.Linear(64, 32)
    network = read_torch(nn.Sequential(linear, nn.ReLU(inplace=True)), (torch.randn(4, 64),))
    held = [it.constant for it in network.graph.constants]
    weight = linear.weight.detach().numpy()
    assert any(it is not None and np.shares_memory(it, weight) for it in held)
    assert linear.weight.requires_grad


def test_an_exported_program_and_its_file_are_read(tmp_path: Path) -> None:
    exported = torch.export.export(model(Residual), IMAGE)
    path = tmp_path / "residual.pt2"
    torch.export.save(exported, path)
    for source in (exported, path, str(path)):
        network = read_torch(source)
        assert network.fixed.examples is not None
        assert np.array_equal(network.fixed.examples[0], IMAGE[0].numpy())
        (found,) = network.reference(network.fixed.examples)
        np.testing.assert_allclose(computed(network, IMAGE)[0], found, rtol=1e-4, atol=1e-5)
    assert network.name == "residual"


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "object.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), IMAGE), path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("object/data/constants/opaque_obj_0", b"anything")
    with pytest.raises(InvalidValueError, match=r"pickled object .*opaque_obj_0"):
        read_torch(path)
    path.write_bytes(whole[:2000])
    with pytest.raises(InvalidValueError, match="no exported program") as caught:
        read_torch(path)
    assert "\n" not in str(caught.value)


class Scaled(nn.Module):
    def forward(self, x: Any, factor: Any) -> Any:
        return x * factor + x.shape[0]


def test_open_axes_of_an_exported_program_are_given_lengths() -> None:
    inputs = torch.randn(2, 4), torch.tensor(3.0)
    rows = {0: torch.export.Dim.AUTO}
    exported = torch.export.export(Scaled(), inputs, dynamic_shapes=(rows, None))
    network = read_torch(exported)
    assert network.graph.inputs[0].shape == (2, 4)
    assert "open: it is 2 (--dim" in network.fixed.remarks[0]
    network = read_torch(exported, None, AskedInputs(inputs={"x": (5, 4), "factor": 2.5}))
    assert [(it.name, it.shape) for it in network.graph.inputs] == [("x", (5, 4))]
    x = torch.randn(5, 4)
    np.testing.assert_allclose(computed(network, [x])[0], (x * 2.5 + 5).numpy(), rtol=1e-6)
    np.testing.assert_allclose(network.reference([x.numpy()])[0], x * 2.5 + 5, rtol=1e-6)


def _halves(x: Any) -> Any:
    x[:, 0].mul_(2)
    return x.sum(1)


def _both(x: Any, y: Any) -> Any:
    y.mul_(x)
    return x.relu_() + y, y


@pytest.mark.parametrize(
    ("function", "writes"),
    [
        (lambda x: functional.relu(x, inplace=True) * 2, ["x"]),
        (lambda x: x.add_(1), ["x"]),
        (lambda x: x.view(-1).clamp_(0, 1) * 2, ["x"]),
        (lambda x, y: (y.copy_(x), x + 1)[1], ["y"]),
        (_halves, ["x"]),
        (_both, ["x", "y"]),
    ],
)
def test_inputs_that_a_model_writes_are_written(function: Any, writes: list[str]) -> None:
    count = function.__code__.co_argcount
    given = [torch.randn(3, 4) for _ in range(count)]
    before = [it.clone() for it in given]
    network = read_torch(Called(function).eval(), given)
    torch.testing.assert_close(given, before, rtol=0, atol=0)
    assert sorted(network.writes) == [f"inputs_{'xy'.index(it)}" for it in writes]
    found = computed(network, given)
    reference = network.reference([it.numpy() for it in given])
    wanted = function(*given)
    names = [it.name for it in network.graph.inputs]
    expected = [given[names.index(it)] for it in network.writes]
    expected += [*wanted] if isinstance(wanted, tuple) else [wanted]
    for one, other, want in zip(found, reference, expected, strict=True):
        np.testing.assert_allclose(one, want.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, want.numpy(), rtol=1e-5, atol=1e-6)


def _seen_before(x: Any) -> Any:
    y = x * 2
    seen, copied = y.view(-1), y + 0
    y.add_(1)
    y.relu_()
    return seen, copied, y


def _seen_after(x: Any) -> Any:
    y = x * 2
    z = y.relu_()
    return z.view(-1), y.mul_(3), z + y


@pytest.mark.parametrize("function", [_seen_before, _seen_after])
def test_what_is_written_is_seen_wherever_it_is_read(function: Any) -> None:
    check_read(Called(function), (torch.randn(3, 4),))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def test_what_a_model_holds_and_writes_is_its_state() -> None:
    network = read_torch(Counts(), (torch.ones(3),))
    assert network.writes == ("calls",) and list(network.state) == ["calls"]
    assert [it.name for it in network.graph.inputs] == ["x", "calls"]
    feeds = [torch.ones(3).numpy(), np.float32(4)]
    for found in (computed(network, [torch.ones(3)]), network.reference(feeds)):
        assert found[0] in (1, 5) and np.all(found[1] == found[0])


def test_comparing_leaves_what_a_model_holds_as_it_was() -> None:
    held = Counts()
    network = read_torch(held, (torch.ones(3),))
    for _ in range(2):
        (calls, _), given = network.reference([np.ones(3, np.float32), np.float32(4)]), held.calls
        assert calls == 5 and given == 0 and network.state["calls"] == 0


class OfNamedParts(nn.Module):
    """A container whose parts have the names of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.full((3,), 3.0))
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("calls_2", torch.ones(()))

    def forward(self, x: Any, calls: Any) -> Any:
        self.calls += 1
        self.calls_2 += self.calls
        return x * self.x + calls * self.calls * self.calls_2


def test_what_a_model_holds_may_have_the_name_of_an_input() -> None:
    network = read_torch(OfNamedParts(), (torch.ones(3), torch.ones(3)))
    names = [it.name for it in network.graph.inputs]
    assert names[:2] == ["x", "calls"] and len({*names}) == 4
    assert set(network.state) == set(network.writes) == {*names[2:]}
    x, calls = torch.arange(3.0), torch.full((3,), 2.0)
    for found in (
        computed(network, [x, calls]),
        network.reference([x.numpy(), calls.numpy(), *network.state.values()]),
    ):
        np.testing.assert_array_equal(found[-1], x * 3 + calls * 2)


def test_a_batch_norm_in_training_is_read_as_one() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4).train()
    x = torch.randn(5, 4) * 3 + 5
    network = read_torch(norm, (x,))
    assert set(network.writes) == {"running_mean", "running_var", "num_batches_tracked"}
    found = dict(zip(network.writes, computed(network, [x]), strict=False))
    (shown,) = computed(network, [x])[len(network.writes) :]
    np.testing.assert_allclose(shown, norm(x).detach(), rtol=1e-4, atol=1e-5)
    for name, array in found.items():
        np.testing.assert_allclose(array, plain(getattr(norm, name)), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "node"),
    [
        (lambda x: functional.dropout(x, 0.5, True) * 1, "dropout.default"),
        (lambda x: functional.alpha_dropout(x, 0.5, True), "alpha_dropout"),
        (lambda x: functional.rrelu(x, training=True), "rrelu"),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), "scaled_dot"),
        (lambda x: x + torch.randn_like(x), "randn_like.default"),
        (lambda x: x + torch.rand(4), "rand.default"),
        (lambda x: x + torch.randint(0, 2, (4,)), "randint.low"),
        (lambda x: x + torch.randperm(4), "randperm.default"),
        (lambda x: x + torch.empty_like(x).bernoulli_(0.5), "bernoulli"),
        (lambda x: torch.multinomial(x.softmax(-1), 2), "multinomial.default"),
    ],
)
def test_random_numbers_are_refused_by_node(function: Any, node: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=rf"node '\w+' \({node}.*draws random numbers"):
        read_torch(Called(function).eval(), (torch.ones(3, 4),))


def test_what_draws_in_training_only_is_read_in_evaluation() -> None:
    layers = nn.Sequential(nn.Dropout(), nn.RReLU(), nn.AlphaDropout(), nn.Linear(4, 4))
    check_read(layers.eval(), (torch.randn(3, 4),))


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x


class Within(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"sorts": Called(lambda x: torch.linalg.svd(x)[1])})

    def forward(self, x: Any) -> Any:
        return self.layers["sorts"](x + 1)


class Misfits(nn.Module):
    def forward(self, x: Any) -> Any:
        return x @ torch.ones(3, 3)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Within, r"node '\w*svd' \(\S*svd.default in 'layers.sorts'\): .*operator is not"),
        (Branches, r"cannot trace Branches at test_reader.py:\d+: .* torch.where"),
        (Misfits, r"cannot trace Misfits at test_reader.py:\d+: .*; call the model"),
    ],
)
def test_what_cannot_be_a_network_is_named(
    kind: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnsupportedWorkload, match=message) as caught:
        read_torch(kind().eval(), (torch.ones(4, 4),))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), "no more than the error"


def test_a_module_needs_inputs() -> None:
    with pytest.raises(InvalidValueError, match="needs example inputs"):
        read_torch(model(Residual))
    with pytest.raises(InvalidValueError, match=r"path of a \.pt2 file, not int"):
        read_torch(3)


def test_strides_of_outputs_are_those_of_torch() -> None:
    image = IMAGE[0].to(memory_format=torch.channels_last)
    convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    network = check_read(convolution, (image,))
    assert network.strides == (tuple(convolution(image).stride()),)


def test_batch_norms_are_one_product_and_one_sum() -> None:
    network = read_torch(model(Residual), IMAGE)
    kinds = [it.operation.name for it in network.graph.nodes if hasattr(it.operation, "name")]
    assert kinds.count("batch_norm") == 2
    assert all(
        it.operation.kind == "reshape"
        for it in network.graph.nodes
        if isinstance(it.operation, HostOperator)
    )


def test_nodes_are_called_after_those_of_the_export() -> None:
    network = read_torch(model(Residual), IMAGE)
    names = {it.label for it in network.graph.nodes}
    assert "" not in names and {"tanh", "linear", "max_pool2d"} <= names
