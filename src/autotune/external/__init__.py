"""Programs that are tuned by data: parameters, constraints, and how to measure.

The package can be called: ``autotune.external(...)`` is :func:`autotune.external.api.external`.
Names are imported when they are first used, as the workers need none of them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autotune.imports import names_of_stub

if TYPE_CHECKING:
    from autotune.external.api import ExternalResult

__all__, __getattr__ = names_of_stub(__name__, __file__)


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **settings: Any) -> ExternalResult:
        from autotune.external.api import external

        return external(*args, **settings)


sys.modules[__name__].__class__ = _CallableModule
