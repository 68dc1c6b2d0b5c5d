"""Machine code that was made before, in the user's own cache folder.

A file is named by a digest of all that its content was made from, and begins with a digest of
name and content: what was damaged, cut short or exchanged is not found, and made again. Nothing
but this module names files here; records and databases have no part in it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from autotune.process.cache_folder import user_cache_folder

__all__ = ["VARIABLE", "ObjectCache", "object_cache", "object_cache_findings"]

VARIABLE = "AUTOTUNE_OBJECT_CACHE"
"""Environment variable: the folder to use instead, or ``off``."""

_MOST_BYTES = 64 << 20
# A sweep follows one of so many new files; a network has some fifty.
_NEW_FILES_PER_SWEEP = 64
_NAME = re.compile(r"[0-9a-f]{64}(\.[0-9]+)?")
_MAGIC = b"autotune object 1\n"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@frozen
class ObjectCache:
    """A folder of object files, of bounded size.

    Attributes:
        folder: Where they are; made on first use, for this user alone.
        most_bytes: Of all files together, about. What was used longest ago is deleted first.
    """

    folder: Path
    most_bytes: int = _MOST_BYTES

    def find(self, name: str) -> bytes | None:
        """The object file of this name; None where there is none that can be trusted."""
        path = self.folder / name
        with suppress(OSError):
            if self.problem() is not None:
                return None
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if not _is_own(os.fstat(file.fileno()), stat.S_ISREG):
                    return None
                data = file.read()
            code = data[len(_MAGIC) + hashlib.sha256().digest_size :]
            if data == _sealed(name, code):
                os.utime(path)
                return code
        return None

    def keep(self, name: str, code: bytes) -> None:
        """Keep an object file; where that is not possible, there is none."""
        new = self.folder / f"{name}.{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.problem() is not None:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(new, flags, mode=0o600), "wb") as file:
                file.write(_sealed(name, code))
            os.replace(new, self.folder / name)
            if int(name[:8], 16) % _NEW_FILES_PER_SWEEP == 0:
                self.sweep()
        except OSError:
            with suppress(OSError):
                new.unlink()

    def sweep(self) -> None:
        """Delete what was used longest ago, until a fourth of the size is free."""
        files = sorted(self._files(), key=lambda it: it[1].st_mtime, reverse=True)
        total = 0
        for path, found in files:
            total += found.st_size
            if total > self.most_bytes * 3 // 4:
                with suppress(OSError):
                    path.unlink()

    def problem(self) -> str | None:
        """Why the folder cannot be used; None where it can, or is not there yet."""
        try:
            found = os.stat(self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.folder} cannot be read: {error.strerror}"
        if not _is_own(found, stat.S_ISDIR):
            return f"{self.folder} is no folder that only this user may write to"
        if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{self.folder} cannot be written to"
        return None

    def contents(self) -> tuple[int, int]:
        """Number of files, and bytes of all of them."""
        sizes = [found.st_size for _, found in self._files()]
        return len(sizes), sum(sizes)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """The files of this cache, whatever else is in the folder."""
        found = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):  # another process may have deleted it
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return found


def object_cache() -> ObjectCache | None:
    """The cache that the environment names; None where it is off, or there is no home."""
    given = os.environ.get(VARIABLE, "")
    if given == "off":
        return None
    if given:
        return ObjectCache(Path(given).absolute())
    folder = user_cache_folder()
    return None if folder is None else ObjectCache(folder / "objects")


def object_cache_findings() -> list[tuple[str, str, str]]:
    """The place where machine code is kept, for `autotune doctor`: label, status and message."""
    cache = object_cache()
    if cache is None:
        return [("object cache", "ok", "off: programs are compiled again in every process")]
    problem = cache.problem()
    if problem is not None:
        return [("object cache", "warning", f"not used: {problem}; see {VARIABLE}")]
    count, size = cache.contents()
    return [("object cache", "ok", f"{cache.folder}: {count} files, {size / 1e6:.1f} MB")]


def _sealed(name: str, code: bytes) -> bytes:
    """The content of a file."""
    return _MAGIC + hashlib.sha256(name.encode() + code).digest() + code


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Tell whether it is of a kind, and only this user may change it."""
    own = found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
    return own and is_kind(found.st_mode)
