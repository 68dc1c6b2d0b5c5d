"""Programs that are tuned by data: parameters, constraints, and how to measure.

The package can be called: ``autotune.external(...)`` is :func:`autotune.external.api.external`.
Names are imported when they are first used, as the workers need none of them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.external.api import ExternalResult, external, tune_external
    from autotune.external.given import configuration_of, recorded_configuration
    from autotune.external.program import Build, ExternalProgram, Read, Run, Validation
    from autotune.external.specs import program_of, read_spec

__all__ = [
    "Build",
    "ExternalProgram",
    "ExternalResult",
    "Read",
    "Run",
    "Validation",
    "configuration_of",
    "external",
    "program_of",
    "read_spec",
    "recorded_configuration",
    "tune_external",
]

_MODULES = ("api", "given", "program", "specs")


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **settings: Any) -> ExternalResult:
        from autotune.external.api import external

        return external(*args, **settings)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for place in _MODULES:
            module = importlib.import_module(f"{__name__}.{place}")
            if name in module.__all__:
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallableModule
