"""Features of statements and of their data flow, for learned cost models (Pruner's PAM)."""

from __future__ import annotations

from autotune.imports import names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
