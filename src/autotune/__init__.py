"""Finds fast schedules for tensor programs; every decision-making part is a plugin.

    import autotune

    result = autotune.tune(autotune.workloads.gemm(m=512, n=512, k=512), trials=64)
    print(result.best.outcome.latency)
    matmul = result.build()

The names are those of the stub beside this file; each is imported when it is first used, so that
importing this package stays cheap.
"""

from __future__ import annotations

from autotune.imports import find_parts_by, names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _registered_part(kind: str, name: str) -> object:
    from autotune.plugins.parts import registered_part

    return registered_part(kind, name)


find_parts_by(_registered_part)
