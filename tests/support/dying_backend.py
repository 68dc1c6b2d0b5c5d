"""A backend whose compiler dies of the text of programs, for tests."""

from __future__ import annotations

import os
import signal

from autotune.backends import BuildRequest
from autotune.testing.reference_backend import ReferenceBackend

__all__ = ["DyingBackend"]


class DyingBackend(ReferenceBackend):
    """Ends its process where it should show a program."""

    def show(self, request: BuildRequest) -> str:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""
