"""A tuner as somebody published it: parts, their options and the size of a round at once."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

__all__ = ["Preset"]


@frozen(eq=False)
class Preset:
    """Meaning of a name such as ``pruner-published``. What a user gives besides counts.

    Attributes:
        name: The name.
        source: What was published, and where.
        parts: By kind: a name, or a name with options, as ``autotune.tune`` takes them.
        round_size: Candidates that are proposed before the models learn from them.
        differences: What still differs from what was published, one clause each.
        load_cost_model: What the cost model knows at the beginning; None for nothing.
        lookahead: Rounds that are proposed before the outcomes of the last are known.
    """

    name: str
    source: str
    parts: Mapping[str, object]
    round_size: int
    differences: tuple[str, ...]
    load_cost_model: str | None = None
    lookahead: int = 0

    @property
    def caveats(self) -> tuple[str, ...]:
        """The differences as warnings of a run, one line each."""
        return tuple(f"{self.name} is not as published: {text}" for text in self.differences)
