"""The networks themselves: what is published of them, and that they are read as they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import autotune_zoo as zoo
import pytest
import torch
from autotune_zoo.building import outline
from small_networks import SMALL
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch_models import check_read

from autotune.errors import InvalidValueError

# torch.export and torch's own flop counter use what a later torch will not have.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

# Parameters as published (torchvision, transformers, PyTorch's DCGAN example; two layers of Llama
# 3.2 1B and its last norm), and gigaflop of an inference: two per multiply-add of convolutions
# and matrix products.
PUBLISHED = {
    "resnet_50": (25_557_032, 8.2),
    "mobilenet_v2": (3_504_872, 0.60),
    "bert_base": (109_482_240, 22.0),
    "vit_b_16": (86_567_656, 35.1),
    "gpt2": (124_439_808, 32.0),
    "llama_block": (2 * 60_821_504 + 2048, 31.0),
    "dcgan": (3_576_704, 0.21),
    "r3d_18": (33_371_472, 81.4),
}


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Calls of operators with the shapes that they give."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        shapes = [getattr(it, "shape", None) for it in tree_leaves(found)]
        self.calls.append((str(func), shapes))
        return found


def on_meta(name: str, sizes: Mapping[str, int]) -> tuple[Any, list[Any]]:
    """A network of these sizes and its inputs, without elements."""
    network = zoo.NETWORKS[name]
    module = import_module(f"autotune_zoo.{network.module}")
    made = outline(getattr(module, network.kind), {**network.sizes, **sizes})
    return made, [x.to("meta") for x in made.example_inputs(torch.Generator())]


def operations(name: str, sizes: Mapping[str, int]) -> object:
    """Parameters of a network and all that it calls, by shape."""
    module, inputs = on_meta(name, sizes)
    with Recorder() as recorder:
        module(*inputs)
    return [weight.shape for weight in module.parameters()], recorder.calls


def outputs(module: Any, inputs: Any) -> tuple[Any, ...]:
    result = module(*inputs)
    return result if isinstance(result, tuple) else (result,)


def test_every_network_is_tested() -> None:
    assert set(SMALL) == set(PUBLISHED) == set(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_parameters_and_flop_are_those_of_the_published_network(name: str) -> None:
    parameters, gigaflop = PUBLISHED[name]
    module, inputs = on_meta(name, {})
    assert sum(weight.numel() for weight in module.parameters()) == parameters
    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    assert counter.get_total_flops() / 1e9 == pytest.approx(gigaflop, rel=0.02)


@pytest.mark.parametrize("name", zoo.names())
def test_a_small_one_is_read_as_what_it_computes_in_torch(name: str) -> None:
    module, inputs = zoo.create(name, **SMALL[name])
    assert not module.training
    check_read(module, inputs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", zoo.names())
def test_a_seed_gives_the_same_network_and_inputs_again(name: str) -> None:
    before = torch.random.get_rng_state()
    runs = [zoo.create(name, seed=seed, **SMALL[name]) for seed in (7, 7, 8)]
    assert torch.equal(torch.random.get_rng_state(), before), "the user's own generator was used"
    states = [module.state_dict() for module, _ in runs]
    results = [outputs(module, inputs) for module, inputs in runs]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert all(map(torch.equal, results[0], results[1]))
    assert not torch.allclose(results[0][0], results[2][0])


@pytest.mark.parametrize("name", zoo.names())
def test_activations_neither_vanish_nor_explode(name: str) -> None:
    module, inputs = zoo.create(name, **SMALL[name])
    scales: list[float] = []
    for part in module.modules():
        part.register_forward_hook(
            lambda part, inputs, out: (
                scales.append(float(out.std())) if isinstance(out, torch.Tensor) else None
            )
        )
    found = outputs(module, inputs)
    assert min(scales) > 0.02 and max(scales) < 20
    assert all(math.isfinite(float(x.sum())) and float(x.std()) > 0.05 for x in found)


@pytest.mark.parametrize("name", zoo.names())
def test_every_size_changes_the_network(name: str) -> None:
    """So that a size which is named and ignored shows."""
    smaller = {
        "heads": {"llama_block": 2}.get(name, 1),
        "groups": 1,
        "image": 48 if name == "vit_b_16" else 80,
        "width": 16,
        "width_percent": 50,
    }

    usual = operations(name, SMALL[name])
    for size, length in SMALL[name].items():
        changed = {size: smaller.get(size, length // 2 or 1)}
        assert operations(name, {**SMALL[name], **changed}) != usual, size


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("bert_base", {"width": 30, "heads": 4}, "width 30 is not a multiple of heads 4.*32"),
        ("bert_base", {"sequence": 513}, "BERT reads at most 512 tokens, not 513"),
        ("gpt2", {"width": 30, "heads": 4}, "width 30 is not a multiple of heads 4.*32"),
        ("gpt2", {"sequence": 1025}, "GPT-2 reads at most 1024 tokens, not 1025"),
        ("vit_b_16", {"image": 100}, "image 100 is not a multiple of the patch 16.*is 96"),
        ("llama_block", {"heads": 4, "groups": 3}, "groups 3 do not divide heads 4"),
        ("llama_block", {"width": 36, "heads": 4, "groups": 4}, "heads of even depth.*gives 9"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(
    name: str, sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        zoo.create(name, **{**SMALL[name], **sizes})


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="a seed is not negative; -1 is"):
        zoo.create("dcgan", seed=-1)


def test_statistics_of_batch_norms_would_show_a_wrong_fold() -> None:
    module, _ = zoo.create("resnet_50", **SMALL["resnet_50"])
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms
    for norm in norms:
        for found, usual in itertools.zip_longest(
            (norm.running_mean, norm.running_var, norm.weight, norm.bias), (0.0, 1.0, 1.0, 0.0)
        ):
            assert float((found - usual).abs().mean()) > 0.01
