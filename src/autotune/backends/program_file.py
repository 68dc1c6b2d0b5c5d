"""A program in a file, for the backend that reads such files."""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen


@frozen
class ProgramFile:
    """A program in a file. Which backend imports it depends on its format.

    Attributes:
        path: The file.
        format: Its format, such as ``"mlir"``.
        function: The function that is meant, where the file has several.
    """

    path: Path = field(converter=Path)
    format: str
    function: str | None = None
