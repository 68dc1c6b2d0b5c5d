"""Sizes at which the networks of the zoo are small, by name."""

from __future__ import annotations

__all__ = ["SMALL"]

SMALL: dict[str, dict[str, int]] = {
    "resnet_50": {"image": 32, "width": 8, "blocks": 2, "classes": 10},
    "mobilenet_v2": {"image": 32, "width_percent": 25, "blocks": 2, "classes": 10},
    "bert_base": {"sequence": 8, "layers": 2, "width": 32, "heads": 2, "vocabulary": 50},
    "vit_b_16": {"image": 32, "layers": 2, "width": 32, "heads": 2, "classes": 10},
    "gpt2": {"sequence": 8, "layers": 2, "width": 32, "heads": 2, "vocabulary": 50},
    "llama_block": {"sequence": 8, "width": 32, "heads": 4, "groups": 2, "hidden": 64},
    "dcgan": {"noise": 8, "width": 4},
    "r3d_18": {"frames": 4, "image": 16, "width": 4, "classes": 10},
}
