"""Calls of plugins, which may do anything: what they raise is one error that names them."""

from __future__ import annotations

from types import TracebackType

from autotune.errors import AutotuneError, PluginError
from autotune.process.call_watch import CallWatch, under_watch
from autotune.process.child import describe
from autotune.process.interrupts import is_of_user

__all__ = ["Calling", "part_noun"]


class Calling:
    """Around a call of a part: what it raises is an error that names the part and the call.

    Also what would end the process, such as ``SystemExit``. An interrupt by the user passes, and
    what autotune raises on purpose. A call that ends or holds up the process is named by
    :class:`~autotune.process.call_watch.CallWatch`, where there is one.

    Args:
        noun: The part, as of :func:`part_noun`.
        where: The call, as in ``"in ask()"``.
        timed: Whether it may not take longer than the watch allows.

    Raises:
        PluginError: the call raised anything else.
    """

    __slots__ = ("_noun", "_timed", "_watch", "_where")

    def __init__(self, noun: str, where: str, *, timed: bool = True) -> None:
        self._noun = noun
        self._where = where
        self._timed = timed
        self._watch: CallWatch | None = None

    def __enter__(self) -> None:
        self._watch = under_watch()
        if self._watch is not None:
            self._watch.begin(f"{self._noun} {self._where}", timed=self._timed)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.end()
        if error is None or is_of_user(error) or _is_on_purpose(error):
            return
        text = f"{self._noun} failed {self._where}: {describe(error)}"
        raise PluginError(text) from error


def _is_on_purpose(error: BaseException) -> bool:
    """Return whether it is an error of autotune that can be shown."""
    if not isinstance(error, AutotuneError):
        return False
    try:
        return isinstance(str(error), str)
    except BaseException:  # the class is a plugin's
        return False


def part_noun(kind: str, part: object) -> str:
    """Names a part by its kind, its name and where it is from."""
    name = getattr(part, "name", None)
    shown = repr(name) if isinstance(name, str) else repr(type(part).__name__)
    return f"{kind.replace('_', ' ')} {shown} ({type(part).__module__})"
