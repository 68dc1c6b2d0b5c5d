"""The interface of what reads programs into workloads."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autotune.errors import InvalidValueError, PluginError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.spec import Context

__all__ = ["Importer", "import_workload"]


class Importer(ABC):
    """Reads a program of some format, from a file or from an object, into workloads.

    It is asked only where a user names it. What a backend imports itself needs none.
    """

    def __init__(self, context: Context | None = None) -> None:  # noqa: B027
        """An importer is made like every other part, and needs nothing."""

    @abstractmethod
    def read(self, program: object) -> list[Workload]:
        """The workloads of a program: the path of a file as text, or an object.

        Raises:
            InvalidValueError: it cannot be read, or holds none.
            UnsupportedWorkload: names the part that cannot be expressed, and why.
        """


def import_workload(importer: str, program: object, function: str | None = None) -> Workload:
    """The only workload that an importer reads in a program, or the one of this name.

    Args:
        importer: Its name, or an import string.
        program: The path of a file, or an object.
        function: Name of the workload.

    Raises:
        InvalidValueError: there are several, and none is named.
        UnknownNameError: there is none of this name, or no such importer.
        PluginError: the importer cannot be made, or returned something else.
        AutotuneError: as :meth:`Importer.read`.
    """
    part: Importer = create_held_part("importer", importer)
    found = {workload.name: workload for workload in part.read(program)}
    if not found:
        raise PluginError(f"importer {importer!r} returned no workload from read()")
    if function is None and len(found) > 1:
        raise InvalidValueError(f"{program} has several functions: name one of {', '.join(found)}")
    name = next(iter(found)) if function is None else function
    if name not in found:
        raise UnknownNameError("function", name, found)
    return found[name]
