"""Fetches of a kernel ahead of what computes on them, by asynchronous copies to shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from autotune.ir.expressions import Constant, IntExpr, Load, ScalarExpr, Select, const, var
from autotune.ir.workloads import Stage
from autotune.sketches import AtLeast, Constraint, Ordinal, PipelineFetches
from autotune.sketches.intrinsics.intrinsic import compute_capability
from autotune.spaces.rules.draft import SketchDraft

__all__ = ["FetchPipeline", "fetch_pipeline"]

# More stages than these hide no more latency than they cost residency.
_DEPTHS = (1, 2, 3, 4)
_FIRST_CAPABILITY = 80
# What one asynchronous copy of a thread moves.
_COPIED_BYTES = (4, 8, 16)


@frozen
class FetchPipeline:
    """How many iterations of a loop have what they fetch in shared memory at once.

    Attributes:
        depth: The number.
        param: The parameter that chooses it; None where there is no choice.
    """

    depth: IntExpr
    param: Ordinal | None

    def step(self, stage: str, at: str) -> list[PipelineFetches]:
        """The step for what a stage fetches inside one of its loops; none where it never waits."""
        return [] if self.param is None else [PipelineFetches(stage, at, self.depth)]

    def constraints(self, rounds: IntExpr) -> list[Constraint]:
        """What a loop of so many iterations allows."""
        if self.param is None:
            return []
        return [AtLeast(rounds - self.depth, 0, "as many iterations as stages")]


def fetch_pipeline(
    draft: SketchDraft,
    stage: Stage,
    rounds: int,
    fetched: Mapping[str, Sequence[int]],
    inlined: Iterable[str],
) -> FetchPipeline:
    """The stages to choose from, where everything that is fetched can be copied asynchronously.

    Args:
        draft: What is decided so far.
        stage: What the operands are fetched for.
        rounds: Most iterations that fetch.
        fetched: By operand, the bytes of vectors in which it may be fetched; none where its
            elements are moved one by one.
        inlined: Stages that are computed on the way.
    """
    copied = all(
        widths and all(width in _COPIED_BYTES for width in widths) for widths in fetched.values()
    )
    moved = all(_is_moved(draft.workload.stage(name).body) for name in inlined)
    capable = compute_capability(draft.target.processor) >= _FIRST_CAPABILITY
    depths = tuple(depth for depth in _DEPTHS if depth <= rounds)
    if not (copied and moved and capable and len(depths) > 1 and draft.can("pipeline_fetches")):
        return FetchPipeline(const(1), None)
    name = f"{stage.name}.stages"
    return FetchPipeline(var(name), Ordinal(name, depths))


def _is_moved(body: ScalarExpr) -> bool:
    """Whether a stage moves elements of a tensor, with zeros where there are none."""
    if isinstance(body, Select):
        other = body.on_false
        return isinstance(other, Constant) and other.value == 0 and _is_moved(body.on_true)
    return isinstance(body, Load)
