"""Observers, which read counters or energy while candidates are built and run."""

from __future__ import annotations

from autotune.observers.lookup import find_observer
from autotune.observers.observer import Availability, Observer
from autotune.observers.observer_set import ObserverSet

__all__ = ["Availability", "Observer", "ObserverSet", "find_observer"]
