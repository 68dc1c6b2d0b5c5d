"""Programs that ask Linux for the tile registers of AMX before they use them.

A process that uses these registers without having asked is killed (SIGILL); threads and forked
processes inherit the permission. A function with such calls asks in its first call, so that
whatever loads it need not know what it holds.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST
from autotune_tvm.linked_text import linked, with_functions

__all__ = ["TILES", "request_tiles"]

TILES = "autotune.tiles"
"""Attribute of functions that use the tile registers."""

_REQUEST = "autotune_request_tiles"
_WORDS = ", ".join(f"i64 {word}" for word in REQUEST)
_TEXT = f"""@{_REQUEST}_granted = linkonce_odr global i8 0
declare i64 @syscall(i64, ...)
define linkonce_odr i32 @{_REQUEST}() alwaysinline nounwind {{
  %known = load i8, ptr @{_REQUEST}_granted
  %first = icmp eq i8 %known, 0
  br i1 %first, label %ask, label %done
ask:
  %refused = call i64 (i64, ...) @syscall({_WORDS})
  %granted = icmp eq i64 %refused, 0
  %remembered = zext i1 %granted to i8
  store i8 %remembered, ptr @{_REQUEST}_granted
  br label %done
done:
  %is = phi i1 [ true, %0 ], [ %granted, %ask ]
  %result = zext i1 %is to i32
  ret i32 %result
}}
"""


def request_tiles(module: IRModule) -> IRModule:
    """A lowered module whose functions ask for the tile registers if they are marked.

    Where they are refused, a call raises ``RuntimeError``.
    """

    def changed(function: Any) -> Any:
        marked = function.attrs is not None and TILES in function.attrs
        return _asking(function) if marked else function

    return with_functions(module, changed)


def _asking(function: Any) -> Any:
    granted = tirx.call_extern("int32", _REQUEST)
    parts = [tvm.ir.StringImm(REFUSED)]
    # TVM 0.27 takes the condition first, whatever it calls its parameters.
    asked = tirx.AssertStmt(granted == 1, tvm.ir.StringImm("RuntimeError"), parts)
    return function.with_body(linked(tirx.SeqStmt([asked, function.body]), [_TEXT]))
