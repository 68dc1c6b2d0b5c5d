"""Files that are there completely or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from autotune.errors import InvalidValueError

__all__ = ["replacing"]

# What a new file would have, were it not made under another name first.
_MODE = 0o666


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that replaces ``path`` when the block ends without an exception.

    It is on the disk by then. After an exception, ``path`` is what it was before. What is no
    plain file, such as a pipe or ``/dev/stdout``, is written to as it is.

    Raises:
        InvalidValueError: the path cannot be written to.
    """
    try:
        # Through links: the file that a link names is replaced, and not the link.
        final = Path(os.path.realpath(path))
        if final.is_dir():
            raise InvalidValueError(f"{str(path)!r} is a folder; name a file in it")
        if final.exists() and not final.is_file():
            with final.open("wb") as stream:
                yield stream
            return
        with _beside(final) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidValueError(
            f"{os.fspath(path)!r} cannot be written: {error.strerror or error}"
        ) from error


@contextlib.contextmanager
def _beside(final: Path) -> Iterator[BinaryIO]:
    if final.exists() and not os.access(final, os.W_OK, effective_ids=True):
        raise PermissionError(0, "it is read-only")
    mode = stat.S_IMODE(final.stat().st_mode) if final.exists() else _MODE & ~_umask()
    descriptor, name = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.replace(name, final)
    except BaseException:
        # Whatever ends it, an interrupt too: nothing half written stays behind.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
