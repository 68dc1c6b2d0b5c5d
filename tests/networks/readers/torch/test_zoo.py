"""The networks that the package builds are read as they are."""

from __future__ import annotations

import pytest
import torch

from autotune.networks.zoo import create, names
from tests.support.torch_models import check_read

SMALL = {
    "bert_base": {"sequence": 16, "layers": 2, "width": 64, "heads": 4, "vocabulary": 100},
    "dcgan": {"width": 8},
    "gpt2": {"sequence": 16, "layers": 2, "width": 64, "heads": 4, "vocabulary": 100},
    "llama_block": {"sequence": 16, "width": 64, "heads": 4, "groups": 2, "hidden": 128},
    "mobilenet_v2": {"image": 32, "width_percent": 25, "classes": 10},
    "r3d_18": {"frames": 4, "image": 32, "width": 8, "classes": 10},
    "resnet_50": {"image": 32, "width": 8, "blocks": 2, "classes": 10},
    "vit_b_16": {"image": 32, "layers": 2, "width": 64, "heads": 4, "classes": 10},
}


@pytest.mark.parametrize("name", names())
def test_a_small_one_computes_what_it_does_in_torch(name: str) -> None:
    model, inputs = create(name, **SMALL[name])
    assert isinstance(model, torch.nn.Module)
    check_read(model, inputs, rtol=1e-3, atol=1e-4)
