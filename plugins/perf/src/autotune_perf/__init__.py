"""Observers of performance counters and of energy."""

from __future__ import annotations
