"""Schedule steps: intents that every backend replays with its own primitives.

Loops are named ``axis.level`` (``i.0`` is the outermost level of axis ``i``); an axis that is
not tiled is one loop ``axis.0``. Statements are named after the stage they belong to:
``C`` (the computation), ``B.pack`` (the copy that packs operand ``B``), ``C.write`` (the copy
that writes an accumulate tile back). Steps are applied in order; within one stage the order is
pad, tile, order, then the rest.
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.expressions import IntExpr


@frozen
class Inline:
    """Compute ``stage`` inside its consumers; it has no buffer and no loops of its own."""

    stage: str


@frozen
class PadExtent:
    """Iterate ``axis`` of ``stage`` to ``extent``, which is at least the axis's own extent.

    Every operand that depends on the axis is packed and the result is accumulated in a tile:
    reads beyond the original extent see zero, results beyond it are dropped.
    """

    stage: str
    axis: str
    extent: IntExpr


@frozen
class SplitReduction:
    """Reduce ``axis`` of ``stage`` in ``lanes`` interleaved partial results, then over those.

    The partial results are a stage of their own, called by
    :func:`~autotune.sketches.rewrites.partial_name`; its lane axis can be vectorised. ``lanes``
    divides the axis. Floating-point sums are reassociated.
    """

    stage: str
    axis: str
    lanes: int


@frozen
class Tile:
    """Split ``axis`` into loops with the given extents, outermost first."""

    stage: str
    axis: str
    factors: tuple[IntExpr, ...]


@frozen
class Order:
    """The loops of ``stage``, outermost first; every loop of the stage appears once."""

    stage: str
    loops: tuple[str, ...]


@frozen
class Pack:
    """Copy the part of ``operand`` that ``stage`` reads inside loop ``at`` into a buffer.

    ``at`` is None for the whole operand, copied before the stage in a parallel loop nest of
    its own. With ``block_dim`` the buffer's layout is ``[operand[block_dim] // block, the
    other dimensions in order, operand[block_dim] % block]``; without it the layout is kept.
    The copy's loops follow the operand's dimensions; the innermost is split into vectors of
    ``lanes``, which divide it (1: not vectorised).
    """

    stage: str
    operand: str
    at: str | None
    block_dim: int | None
    block: IntExpr | None
    lanes: int


@frozen
class Accumulate:
    """Keep the result of ``stage`` inside loop ``at`` in a buffer, written back after the loops.

    ``write_factors`` split the innermost dimension of the write-back, the last one vectorised.
    """

    stage: str
    at: str
    write_factors: tuple[IntExpr, ...]


@frozen
class FuseConsumer:
    """Compute ``stage``, which reads ``producer`` point by point, inside the producer's loop.

    The producer's result then lives in a buffer inside loop ``at`` and is never written out.
    ``write_factors`` split the innermost axis of ``stage``, the last one vectorised.
    """

    stage: str
    producer: str
    at: str
    write_factors: tuple[IntExpr, ...]


@frozen
class FuseProducer:
    """Compute the part of ``stage`` that ``consumer`` needs inside its loop ``at``.

    The innermost loop is split into vectors of ``lanes``, which divide it (1: not vectorised).
    """

    stage: str
    consumer: str
    at: str
    lanes: int


@frozen
class Parallel:
    """Fuse the given outermost loops of ``stage`` and run them on all cores."""

    stage: str
    loops: tuple[str, ...]


@frozen
class Vectorize:
    """Run ``loop`` of ``stage``, its innermost, as vector lanes."""

    stage: str
    loop: str


@frozen
class Unroll:
    """Unroll the given loops of ``stage`` completely."""

    stage: str
    loops: tuple[str, ...]


Step = (
    Inline
    | PadExtent
    | SplitReduction
    | Tile
    | Order
    | Pack
    | Accumulate
    | FuseConsumer
    | FuseProducer
    | Parallel
    | Vectorize
    | Unroll
)

STEP_TYPES: dict[str, type[Any]] = {
    "inline": Inline,
    "pad_extent": PadExtent,
    "split_reduction": SplitReduction,
    "tile": Tile,
    "order": Order,
    "pack": Pack,
    "accumulate": Accumulate,
    "fuse_consumer": FuseConsumer,
    "fuse_producer": FuseProducer,
    "parallel": Parallel,
    "vectorize": Vectorize,
    "unroll": Unroll,
}
STEP_NAMES = {cls: name for name, cls in STEP_TYPES.items()}

_EXPRESSIONS = ("extent", "block")
_EXPRESSION_LISTS = ("factors", "write_factors")


def step_to_json(step: Step) -> dict[str, Any]:
    """A JSON object with the step's name under ``"step"`` and its fields."""
    data: dict[str, Any] = {"step": STEP_NAMES[type(step)]}
    for attribute in attrs.fields(type(step)):
        value = getattr(step, attribute.name)
        if isinstance(value, IntExpr):
            value = value.to_json()
        elif isinstance(value, tuple):
            value = [item.to_json() if isinstance(item, IntExpr) else item for item in value]
        data[attribute.name] = value
    return data


def step_from_json(data: Any) -> Step:
    """Read what :func:`step_to_json` wrote.

    Raises:
        InvalidValueError: the object is not a step.
    """
    if not isinstance(data, dict):
        raise InvalidValueError(f"not a step: {data!r}")
    fields = dict(data)
    name = fields.pop("step", None)
    if not isinstance(name, str) or name not in STEP_TYPES:
        raise InvalidValueError(f"unknown step {name!r}; known: {', '.join(STEP_TYPES)}")
    try:
        for key, value in fields.items():
            if key in _EXPRESSIONS and value is not None:
                fields[key] = IntExpr.from_json(value)
            elif key in _EXPRESSION_LISTS:
                fields[key] = tuple(IntExpr.from_json(item) for item in value)
            elif isinstance(value, list):
                fields[key] = tuple(value)
        step: Step = STEP_TYPES[name](**fields)
    except TypeError as error:
        raise InvalidValueError(f"malformed step {data!r}: {error}") from error
    return step
