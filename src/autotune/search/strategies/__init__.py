"""Search strategies: the interface and the built-ins."""

from __future__ import annotations

from autotune.imports import names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
