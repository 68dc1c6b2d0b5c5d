"""Observers, which read counters or energy while candidates are built and run."""

from __future__ import annotations

from autotune.measure.observers.observer import Availability, Observer
from autotune.measure.observers.observer_set import ObserverSet

__all__ = ["Availability", "Observer", "ObserverSet"]
