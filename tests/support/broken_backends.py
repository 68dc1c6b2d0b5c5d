"""Backends that do not get as far as building anything, for tests."""

from __future__ import annotations

import os
import time

from autotune.testing.reference_backend import ReferenceBackend


class Unstartable(ReferenceBackend):
    """Its compiler is not installed."""

    def warm_up(self) -> None:
        raise RuntimeError("no compiler here")


class Suicidal(ReferenceBackend):
    """Its compiler ends the process that imports it."""

    def warm_up(self) -> None:
        os._exit(7)


class Slow(ReferenceBackend):
    """Its compiler takes a minute to start."""

    def warm_up(self) -> None:
        time.sleep(60)
