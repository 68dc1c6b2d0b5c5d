"""The context that the factory of a part receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

__all__ = ["Context"]


@frozen(eq=False)
class Context:
    """The context of parts that need nothing but options, and the base of all others.

    Time, randomness and the machine come from a context and from nowhere else. A kind of part
    that needs any has a context of its own, beside its interface; ``docs/plugins.md`` has a table.

    Attributes:
        options: The user's options of the part, strings already converted to numbers where they
            came from a command line; a part refuses those that it does not know.
    """

    options: Mapping[str, Any] = field(factory=dict, kw_only=True)
