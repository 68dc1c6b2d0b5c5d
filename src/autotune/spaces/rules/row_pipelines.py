"""Work on a row of a program in memory while another one is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions import var
from autotune.ir.workloads import Stage
from autotune.sketches import Ordinal, Param, Prefetch, Step, partial_name
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_levels import divisors

__all__ = ["pipeline_host", "prefetch_choice", "rows_of_a_pipeline"]

# The last row of an iteration of the parallel loop is written on its own.
_FEWEST_ROWS = 16


def rows_of_a_pipeline(extent: int) -> tuple[int, ...]:
    """Number of rows that may follow one another; none where there are too few."""
    return tuple(rows for rows in divisors(extent) if rows >= _FEWEST_ROWS)


def pipeline_host(
    stage: Stage, behind: Sequence[Stage], rows: int, lanes: Mapping[str, int]
) -> str | None:
    """The stage along a row in whose loops the row before can be written: the first one.

    Args:
        stage: What writes the rows.
        behind: What is computed for it, in the order in which it is.
        rows: Number of row axes.
        lanes: Partial results of each of these stages; 1 where it has none.

    Returns:
        None where that overwrites what is still to be written.
    """
    for producer in behind:
        if lanes[producer.name] > 1:
            return partial_name(producer.name)
        if producer.name in stage.reads:
            return None
        if not is_pointwise(producer) or len(producer.spatial_axes) > rows:
            return producer.name
    return None


def prefetch_choice(
    draft: SketchDraft,
    stage: Stage,
    passes: Sequence[Stage],
    lanes: Mapping[str, int],
    loop: str,
    axes: int,
) -> tuple[list[Param], list[Step]]:
    """A parameter and its step, or nothing: whether the next row is asked for.

    The second stage along a row that reads an input asks for it: the first one waits for memory
    itself.

    Args:
        draft: The sketch so far.
        stage: What writes the rows.
        passes: What computes along a row, in this order.
        lanes: Partial results of each of these stages; 1 where it has none.
        loop: The stage's loop over rows.
        axes: Number of axes along which a row is computed and those of the rows.
    """
    if not draft.can("prefetch"):
        return [], []
    for tensor in draft.workload.inputs:
        readers = [it for it in passes if _reads_a_row(it, tensor.name, axes)]
        if len(readers) > 1 and (is_pointwise(readers[1]) or lanes[readers[1].name] > 1):
            second = readers[1].name
            reader = second if is_pointwise(readers[1]) else partial_name(second)
            name = f"{stage.name}.prefetch"
            step = Prefetch(reader, tensor.name, stage.name, loop, var(name))
            return [Ordinal(name, (0, 1))], [step]
    return [], []


def _reads_a_row(reader: Stage, tensor: str, axes: int) -> bool:
    """Tell if a stage of so many axes reads all of a tensor, one row for each of its rows."""
    return len(reader.axes) == axes and any(
        load.tensor == tensor
        and {axis for form in reader.forms(load) for axis in form.axes}
        == {axis.name for axis in reader.axes}
        for load in reader.loads
    )
