"""Typed integer columns of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from autotune.ir.converter import json_forms, tagged_lists

if TYPE_CHECKING:
    from cattrs import Converter


@frozen
class Factor:
    """A tile factor: one factor of a product that a ``ProductEquals`` constraint fixes.

    ``values`` restricts it (a vectorised level is exactly the lanes); None allows any divisor.
    """

    name: str
    values: tuple[int, ...] | None = None


@frozen
class Ordinal:
    """Choice of ``values``, which are in a meaningful order."""

    name: str
    values: tuple[int, ...]


@frozen
class Categorical:
    """Choice of ``len(labels)`` values without an order; the value is the choice's position."""

    name: str
    labels: tuple[str, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """Positions of the labels."""
        return tuple(range(len(self.labels)))


Param = Factor | Ordinal | Categorical


@json_forms
def _forms(converter: Converter) -> None:
    kinds = {"factor": Factor, "ordinal": Ordinal, "categorical": Categorical}
    tagged_lists(converter, Param, "parameter", kinds)
