"""From how a run has ended to its seconds and outputs, or to why there are none."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, one_line
from autotune.external.processes import Call, Ended
from autotune.external.program import ExternalProgram, Read, Validation
from autotune.process.processes import describe_exit

__all__ = ["NoResult", "difference", "read_outputs", "require_success", "seconds_of"]

_SHOWN = 200
_MESSAGE = 2000


class NoResult(Exception):
    """A candidate has no result: the status and the message of its outcome."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def require_success(ended: Ended, phase: str, timeout: float) -> None:
    """Pass on what has succeeded.

    Args:
        ended: How it ended.
        phase: ``build`` or ``run``.
        timeout: Seconds that it could take.

    Raises:
        NoResult: it failed; with its last words.
    """
    if ended.ended == "timeout":
        raise NoResult("timeout", f"{phase} took longer than {timeout:g} s")
    if ended.ended == "output":
        raise NoResult("invalid", f"{phase} printed more than can be kept")
    failed, where = ("build_error", "") if phase == "build" else ("crash", " in run")
    if ended.status is None:
        raise NoResult(failed, ended.stderr)
    if ended.raised:
        raise NoResult(failed, f"it raised {ended.raised}")
    if ended.status != 0:
        said = ended.stderr.strip() or ended.stdout.strip()
        words = f": {said[-_MESSAGE:]}" if said else ""
        raise NoResult(failed, f"{describe_exit(ended.status)}{where}{words}")


def seconds_of(program: ExternalProgram, call: Call, printed: str = "") -> float:
    """Seconds that a run counts as.

    Args:
        program: Says where the result is.
        call: The run.
        printed: What it printed.

    Raises:
        NoResult: there is no number, or none that seconds can be.
    """
    number = _number(program.read, call, printed)
    if not math.isfinite(number) or number <= 0:
        raise _invalid(f"the result is {number!r}; it must be a positive number")
    seconds = program.seconds(number)
    if not 0 < seconds < math.inf:
        raise _invalid(f"the result {number!r} {program.unit} is beyond all times")
    return seconds


def _invalid(why: str) -> NoResult:
    return NoResult("invalid", why)


def _number(read: Read, call: Call, printed: str) -> float:
    if read.source == "wall":
        return call.wall
    if read.source == "function":
        if call.value is None:
            raise _invalid("the function returned None, and no seconds")
        return call.value
    if read.source == "json":
        return _field(printed, read.field)
    match = re.search(read.pattern, printed)
    if match is None:
        raise _invalid(f"{read.pattern!r} matches nothing in {_shown(printed)}")
    try:
        return float(match[1])
    except (TypeError, ValueError):
        raise _invalid(f"{read.pattern!r} finds {match[1]!r}, which is no number") from None


def _field(printed: str, path: str) -> float:
    found = _parsed(printed)
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            raise _invalid(f"there is no field {path!r} in {_shown(printed)}")
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _invalid(f"field {path!r} is {found!r:.80}, which is no number")
    try:
        return float(found)
    except OverflowError:
        raise _invalid(f"field {path!r} is larger than any time") from None


def _parsed(printed: str) -> Any:
    """The JSON that is all of it, or its last line."""
    for text in (printed, printed.strip().rpartition("\n")[2]):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    raise _invalid(f"it printed no JSON: {_shown(printed)}")


def _shown(text: str) -> str:
    return repr(one_line(text, _SHOWN)) if text.strip() else "what it printed, which is nothing"


NUMERIC = "biufc"
"""Kinds of element types that can be compared."""
_MAGIC = b"\x93NUMPY"
_LARGEST = 4 << 30
Array = NDArray[Any]


def read_outputs(paths: Sequence[Path], validation: Validation) -> list[Array]:
    """Outputs from files: ``.npy``, or the bytes of elements of ``validation.dtype``.

    Raises:
        InvalidValueError: a file is missing, too large, or no array.
    """
    return [_read(path, validation) for path in paths]


def _read(path: Path, validation: Validation) -> Array:
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidValueError(f"the output has more than {_LARGEST} bytes")
        data = path.read_bytes()
    except OSError:
        raise InvalidValueError("it wrote no output") from None
    if data.startswith(_MAGIC):
        try:
            array = np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
        except (ValueError, EOFError, OSError) as error:
            raise InvalidValueError(f"its output is no array: {error}") from None
        if array.dtype.kind not in NUMERIC:
            raise InvalidValueError(f"its output is an array of {array.dtype}, and not of numbers")
        return array
    dtype = np.dtype(validation.dtype or "uint8")
    if not validation.dtype and validation.method == "allclose":
        raise InvalidValueError(
            "its output is no .npy file: say what its elements are (validate.dtype), or that "
            "bytes are compared (validate.method = 'bitexact')"
        )
    if len(data) % dtype.itemsize:
        raise InvalidValueError(
            f"its output of {len(data)} bytes is no whole number of {dtype.name}"
        )
    return np.frombuffer(data, dtype=dtype)


def difference(found: Sequence[Array], wanted: Sequence[Array], validation: Validation) -> str:
    """Describe an output that is not right within the bounds; "" where all are."""
    if len(found) != len(wanted):
        return f"it has {len(found)} outputs and not {len(wanted)}"
    for number, (own, right) in enumerate(zip(found, wanted, strict=True)):
        if why := _array_difference(own, right, validation):
            return f"output {number}: {why}" if len(wanted) > 1 else why
    return ""


def _array_difference(own: Array, right: Array, validation: Validation) -> str:
    if own.shape != right.shape:
        return f"its output has shape {list(own.shape)} and not {list(right.shape)}"
    if own.dtype != right.dtype:
        return f"its output is {own.dtype} and not {right.dtype}"
    if validation.method == "bitexact":
        one, other = (np.frombuffer(it.tobytes(), np.uint8) for it in (own, right))
        share = float((one != other).mean()) if one.size else 0.0
        return f"{share:.3%} of the bytes of its output differ" if share else ""
    close = np.isclose(own, right, rtol=validation.rtol, atol=validation.atol, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        worst = float(np.nanmax(np.abs(own.astype(np.complex128) - right.astype(np.complex128))))
    share = 1 - float(close.mean())
    return (
        f"{share:.3%} of its output differs by more than rtol={validation.rtol:g}, "
        f"atol={validation.atol:g}; at most by {worst:.3g}"
    )
