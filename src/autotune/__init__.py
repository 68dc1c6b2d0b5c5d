"""Finds fast schedules for tensor programs; every decision-making part is a plugin.

    import autotune

    result = autotune.tune(autotune.workloads.gemm(m=512, n=512, k=512), trials=64)
    print(result.best.outcome.latency)
    matmul = result.build()

The names are those of the stub beside this file; each is imported when it is first used, so that
importing this package stays cheap.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

# Lines `from module import name as name`: one list for type checkers and for the lazy import.
_STUB = Path(__file__).with_suffix(".pyi").read_text().splitlines()
_MODULE_OF = {line.split()[3]: line.split()[1] for line in _STUB}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    module = importlib.import_module(_MODULE_OF[name])
    if not hasattr(module, name):
        importlib.import_module(f"{_MODULE_OF[name]}.{name}")
    # A package that can be called is itself what its name stands for.
    value = sys.modules.get(f"{__name__}.{name}") or getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
