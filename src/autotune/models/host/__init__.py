"""Models in a process of their own: one that crashes, hangs or misbehaves does not end a run."""

from __future__ import annotations

from autotune.imports import names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
