"""Pruner (ASPLOS'25) for autotune: cost models that learn in torch."""

from __future__ import annotations
