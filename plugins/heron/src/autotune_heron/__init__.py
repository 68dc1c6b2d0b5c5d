"""Heron's constrained genetic search, as a plugin."""

from __future__ import annotations
