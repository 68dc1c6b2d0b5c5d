"""Typed integer columns of a configuration."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from autotune.errors import InvalidValueError


@frozen
class Factor:
    """A tile factor: one factor of a product that a ``ProductEquals`` constraint fixes.

    ``values`` restricts it (a vectorised level is exactly the lanes); None allows any divisor.
    """

    name: str
    values: tuple[int, ...] | None = None


@frozen
class Ordinal:
    """One of ``values``, which are in a meaningful order."""

    name: str
    values: tuple[int, ...]


@frozen
class Categorical:
    """One of ``len(labels)`` choices without an order; the value is the choice's position."""

    name: str
    labels: tuple[str, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """Positions of the labels."""
        return tuple(range(len(self.labels)))


Param = Factor | Ordinal | Categorical

_KINDS: dict[str, type[Any]] = {"factor": Factor, "ordinal": Ordinal, "categorical": Categorical}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def param_to_json(param: Param) -> list[Any]:
    """``[kind, name, domain]``."""
    domain = param.labels if isinstance(param, Categorical) else param.values
    return [_NAMES[type(param)], param.name, None if domain is None else list(domain)]


def param_from_json(data: Any) -> Param:
    """Read what :func:`param_to_json` wrote.

    Raises:
        InvalidValueError: the value is not a parameter.
    """
    try:
        kind, name, domain = data
        param: Param = _KINDS[kind](name, None if domain is None else tuple(domain))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not a parameter: {data!r}") from error
    return param
