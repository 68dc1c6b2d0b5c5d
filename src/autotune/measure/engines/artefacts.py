"""Built programs and arrays as files that are named by their content."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from attrs import field, frozen

from autotune.errors import AutotuneError, InvalidValueError

__all__ = ["ArtefactStore", "DamagedArtefact", "digest_of_file"]

_DIGEST_CHARACTERS = 64
_CHUNK = 1 << 20


class DamagedArtefact(AutotuneError):
    """An artefact is missing, or its content is not what its name says."""


@frozen
class ArtefactStore:
    """A folder of files, each named by the SHA-256 digest of its content.

    Every host has one of its own; an engine copies into it what jobs of that host need. A file is
    complete as soon as it has its name.

    Attributes:
        folder: The folder, which exists.
    """

    folder: Path = field(converter=Path)

    def add_bytes(self, content: bytes) -> str:
        """Keep a content; returns its digest."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.folder / digest
        if not path.exists():
            descriptor, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        return digest

    def add_file(self, path: Path) -> str:
        """Take over a file, which is moved and has to be on the same file system."""
        digest = digest_of_file(path)
        os.replace(path, self.folder / digest)
        return digest

    def receive(self, digest: str, content: bytes) -> Path:
        """Keep a content that came from elsewhere, and check it.

        Raises:
            DamagedArtefact: the content has another digest.
        """
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise DamagedArtefact(
                f"artefact {digest[:12]} arrived with the content of {found[:12]}: "
                f"{len(content)} bytes were damaged or exchanged on the way"
            )
        self.add_bytes(content)
        return self.folder / digest

    def has(self, digest: str) -> bool:
        """Return whether there is such a file; its content is checked by :meth:`path`."""
        return self._path(digest).is_file()

    def path(self, digest: str) -> Path:
        """The file with this digest, checked.

        Raises:
            DamagedArtefact: there is none, or its content has changed.
            InvalidValueError: this is no SHA-256 digest.
        """
        path = self._path(digest)
        try:
            found = digest_of_file(path)
        except OSError as error:
            raise DamagedArtefact(f"artefact {digest[:12]} is not here: {error}") from error
        if found != digest:
            raise DamagedArtefact(f"artefact {digest[:12]} has the content of {found[:12]}")
        return path

    def content(self, digest: str) -> bytes:
        """The bytes of :meth:`path`."""
        return self.path(digest).read_bytes()

    def remove(self, digest: str) -> None:
        """Delete a file that is needed no more; again, it does nothing."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        # A digest from elsewhere must not name a file outside of the folder.
        if len(digest) != _DIGEST_CHARACTERS or not set(digest) <= set("0123456789abcdef"):
            raise InvalidValueError(
                f"an artefact is named by the {_DIGEST_CHARACTERS} hexadecimal digits of a "
                f"SHA-256 digest, not {digest[:80]!r}"
            )
        return self.folder / digest


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()
