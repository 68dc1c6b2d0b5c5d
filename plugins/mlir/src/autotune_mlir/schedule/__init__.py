"""From a candidate's steps to a script of MLIR's transform dialect."""

from __future__ import annotations

from autotune_mlir.schedule.replay import schedule

__all__ = ["schedule"]
