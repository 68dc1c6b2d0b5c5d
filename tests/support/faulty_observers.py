"""Observers that misbehave, for workers to find by import string."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from autotune.measure.observers import Availability, Observer
from autotune.plugins import Context


class Counting(Observer):
    """Counts what it has observed, and says in which process."""

    name = "counting"
    run_seconds = 0.0

    def __init__(self, context: Context) -> None:
        self._builds = 0

    def check(self) -> Availability:
        return Availability(("process", "builds", "calls"))

    def before_build(self) -> None:
        self._builds += 1

    def build_readings(self) -> Mapping[str, float | None]:
        return {"builds": self._builds}

    def readings(self, calls: int) -> Mapping[str, float | None]:
        return {"process": os.getpid(), "calls": calls}


class Missing(Observer):
    """Can read nothing on any machine."""

    name = "missing"

    def check(self) -> Availability:
        return Availability((), ("joules",), "no meter was ever built")


class Raises(Counting):
    name = "raises"

    def readings(self, calls: int) -> Mapping[str, float | None]:
        raise ZeroDivisionError("some trouble")


class Exits(Counting):
    name = "exits"

    def readings(self, calls: int) -> Mapping[str, float | None]:
        raise SystemExit(0)


class EndsWhenMade(Counting):
    def __init__(self, context: Context) -> None:
        os._exit(0)


class HangsWhenMade(Counting):
    def __init__(self, context: Context) -> None:
        time.sleep(60)


class HangsInBuild(Counting):
    name = "hangs-in-build"

    def before_build(self) -> None:
        time.sleep(60)


class HangsInRun(Counting):
    name = "hangs-in-run"

    def before_run(self) -> None:
        time.sleep(60)


class KillsItself(Counting):
    name = "kills-itself"

    def after_run(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)
