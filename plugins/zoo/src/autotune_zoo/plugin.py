"""The entry point: networks by name and size; creating one imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import frozen

from autotune import hookimpl
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.plugins import Context, PluginSpec
from autotune.process.importing import no_collection

if TYPE_CHECKING:
    from autotune.networks import Source

__all__ = ["NETWORKS", "Network", "autotune_parts", "create", "names"]

AUTOTUNE_API_VERSION = 4

_LARGEST_SIZE = 1 << 20


@frozen
class Network:
    """Network, and what can be chosen of it.

    Attributes:
        module: The module beside this one that defines it.
        kind: The name of its class there.
        sizes: What can be chosen, with the values of the published network.
        summary: What it is, in one line.
    """

    module: str
    kind: str
    sizes: Mapping[str, int]
    summary: str


NETWORKS: Mapping[str, Network] = {
    "resnet_50": Network(
        "convolutional",
        "ResNet50",
        {"image": 224, "width": 64, "blocks": 6, "classes": 1000},
        "ResNet-50, image classification",
    ),
    "mobilenet_v2": Network(
        "convolutional",
        "MobileNetV2",
        {"image": 224, "width_percent": 100, "blocks": 4, "classes": 1000},
        "MobileNet-V2, image classification with depthwise convolutions",
    ),
    "bert_base": Network(
        "transformers",
        "Bert",
        {"sequence": 128, "layers": 12, "width": 768, "heads": 12, "vocabulary": 30522},
        "BERT-base, text encoder with pooler",
    ),
    "vit_b_16": Network(
        "transformers",
        "VisionTransformer",
        {"image": 224, "layers": 12, "width": 768, "heads": 12, "classes": 1000},
        "ViT-B/16, image classification by a transformer",
    ),
    "gpt2": Network(
        "transformers",
        "Gpt2",
        {"sequence": 128, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50257},
        "GPT-2 small, prefill of a text decoder",
    ),
    "llama_block": Network(
        "transformers",
        "LlamaBlock",
        {
            "sequence": 128,
            "layers": 2,
            "width": 2048,
            "heads": 32,
            "groups": 8,
            "hidden": 8192,
        },
        "decoder layers of Llama 3.2 1B on hidden states, with a padding mask",
    ),
    "dcgan": Network(
        "convolutional",
        "DcganGenerator",
        {"noise": 100, "width": 64},
        "DCGAN generator of 64 x 64 images, by transposed convolutions",
    ),
    "r3d_18": Network(
        "convolutional",
        "R3D18",
        {"frames": 16, "image": 112, "width": 64, "blocks": 2, "classes": 400},
        "R3D-18, video classification by 3-D convolutions",
    ),
}


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every network as a part."""
    return [
        PluginSpec(
            "network",
            name,
            partial(_source, name),
            network.summary,
            {size: f"whole number; {value} as published" for size, value in network.sizes.items()},
        )
        for name, network in NETWORKS.items()
    ]


def _source(name: str, context: Context) -> Source:
    """A network as the core takes it, with the sizes that the context has as options."""
    from autotune.networks import Source

    module, inputs = create(name, **context.options)
    return Source(module, inputs, name)


def names() -> tuple[str, ...]:
    """The names that :func:`create` takes, in alphabetical order."""
    return tuple(sorted(NETWORKS))


def create(name: str, *, seed: int = 0, **sizes: int) -> tuple[Any, tuple[Any, ...]]:
    """Builds a network with random weights, for batch 1 in float32.

    The same name, seed and sizes give the same weights and inputs.

    Args:
        name: One of :func:`names`.
        seed: Of the weights and of the inputs; not negative.
        sizes: Positive whole numbers instead of those of the published network, by their names in
            :data:`NETWORKS`. ``blocks`` is the largest number of blocks in a stage.

    Returns:
        A ``torch.nn.Module`` in evaluation mode, and the tensors to call it with.

    Raises:
        UnknownNameError: There is no network or size of this name.
        InvalidValueError: A size is out of range, or does not fit the others.
    """
    network = NETWORKS.get(name)
    if network is None:
        raise UnknownNameError("network", name, NETWORKS)
    chosen = _checked(name, network, sizes)
    with no_collection():
        building = import_module("autotune_zoo.building")
        module = import_module(f"autotune_zoo.{network.module}")
    made: tuple[Any, tuple[Any, ...]] = building.build(getattr(module, network.kind), chosen, seed)
    return made


def _checked(name: str, network: Network, sizes: Mapping[str, int]) -> dict[str, int]:
    """Every size of the network, those given in place of the published ones."""
    for key, value in sizes.items():
        if key not in network.sizes:
            raise UnknownNameError(f"size of {name}", key, network.sizes)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidValueError(f"{key} of {name} is a whole number, not {value!r}")
        if not 1 <= value <= _LARGEST_SIZE:
            raise InvalidValueError(f"{key} of {name} is {value}; it is 1 to {_LARGEST_SIZE}")
    return {**network.sizes, **sizes}
