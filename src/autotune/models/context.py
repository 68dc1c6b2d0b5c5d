"""The context of models that score candidates."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from autotune.plugins import Context
from autotune.targets import Target

__all__ = ["ModelContext"]

_ABSENT: Any = None


@frozen(eq=False)
class ModelContext(Context):
    """The context of a cost model or a pruning model.

    Attributes:
        target: What programs are made for; None where only a model is made that asks for none.
        seed: Of the model's randomness.
        threads: That the model may use.
    """

    target: Target = field(default=_ABSENT, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    threads: int = field(default=1, kw_only=True)
