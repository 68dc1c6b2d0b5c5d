"""TVM's translators from other packages' graphs, which fail at a node and print."""

from __future__ import annotations

import gc
import io
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from types import TracebackType
from typing import Any

from autotune.errors import AutotuneError
from autotune_tvm.compiler import brief
from autotune_tvm.networks.native_messages import ALWAYS_SAID, without_messages

__all__ = ["NotTranslated", "translated"]

_TRANSLATORS = "tvm.relax.frontend."
# What TVM says of each graph that was begun and is given up.
_GIVEN_UP = b"BlockBuilder destroyed"


class NotTranslated(Exception):
    """A translator failed.

    Attributes:
        node: The node of the other package's graph that it was at, or None.
    """

    def __init__(self, message: str, node: Any) -> None:
        super().__init__(message)
        self.node = node


def translated(translate: Callable[[], Any]) -> Any:
    """What a translator returns.

    Raises:
        NotTranslated: it raised anything.
    """
    with without_messages((*ALWAYS_SAID, _GIVEN_UP)), redirect_stdout(io.StringIO()):
        try:
            return translate()
        except Exception as error:  # translators assert, and raise what TVM raises
            node = next(_nodes(error.__traceback__), None)
            failed = error.with_traceback(None)
        # The frames are gone, and with them the graph that is given up, which says so.
        gc.collect()
        known = isinstance(failed, AutotuneError)
        raise NotTranslated(str(failed) if known else brief(failed).rstrip("."), node) from failed


def _nodes(trace: TracebackType | None) -> Iterator[Any]:
    """What the variables ``node`` of a translator's frames hold, the innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    for frame in reversed(frames):
        inside = str(frame.f_globals.get("__name__", "")).startswith(_TRANSLATORS)
        if inside and frame.f_locals.get("node") is not None:
            yield frame.f_locals["node"]
