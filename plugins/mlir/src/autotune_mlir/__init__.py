"""The MLIR backend of autotune.

Nothing is imported here: importing MLIR takes a quarter of a second, and most of what a host does
needs none of it.
"""

from __future__ import annotations

__all__: list[str] = []
