"""The data-flow block: eight accesses on the way from memory to the result.

Published (Pruner, ASPLOS'25): the accesses of a program in order, written down as a string of
places (global 0, shared 1, local 2), are searched for ``20101112``: an accumulator is
initialised, two operands are copied to shared memory, and both are multiplied from there. Other
programs, all programs for CPUs among them, have zeros. Generalised, these have a
block of the same meaning around the statement that does most of the arithmetic.
"""

from __future__ import annotations

from attrs import frozen

from autotune.nest import LoopNest, Statement
from autotune.nest.quantities import buffers_of

__all__ = ["PLACES", "FlowAccess", "dataflow_accesses"]

PLACES = ("global", "shared", "local")
_PATTERN = "20101112"


@frozen
class FlowAccess:
    """Access of the block.

    Attributes:
        statement: Index of the statement.
        buffer: The buffer it accesses.
        place: Index into ``PLACES``: memory, a copy, or the tile of a result.
    """

    statement: int
    buffer: str
    place: int


def dataflow_accesses(
    nest: LoopNest, dominant: int, *, generalised: bool
) -> tuple[FlowAccess | None, ...]:
    """The eight accesses of a nest, by structure alone; None for one that does not exist."""
    published = _published(nest)
    if published is not None:
        return published
    return _generalised(nest, dominant) if generalised else (None,) * len(_PATTERN)


def written_buffer(statement: Statement) -> str:
    """The buffer that a statement stores to."""
    return next(access.buffer for access in statement.accesses if access.write)


def _published(nest: LoopNest) -> tuple[FlowAccess, ...] | None:
    scopes = {buffer.name: buffer.scope for buffer in nest.buffers}
    accesses = []
    for index, statement in enumerate(nest.statements):
        written = written_buffer(statement)
        reads = [buffer for buffer in buffers_of(statement) if buffer != written]
        # As a hash table of the published extractor yields them.
        for buffer in (*reversed(reads), written):
            place = PLACES.index(scopes.get(buffer, "global"))
            accesses.append(FlowAccess(index, buffer, place))
    at = "".join(str(access.place) for access in accesses).find(_PATTERN)
    return None if at < 0 else tuple(accesses[at : at + len(_PATTERN)])


def _generalised(nest: LoopNest, dominant: int) -> tuple[FlowAccess | None, ...]:
    """Result; then both operands, where they come from and where they are copied to; then what
    the main statement reads of the second and of the first, and what it accumulates."""
    main = nest.statements[dominant]
    written = written_buffer(main)
    operands = [buffer for buffer in buffers_of(main) if buffer != written][:2]
    stored = _store_of(nest, dominant, written)
    result: list[FlowAccess | None] = [
        FlowAccess(stored, written_buffer(nest.statements[stored]), 0)
    ]
    reads: list[FlowAccess | None] = [None, None]
    for position in range(2):
        if position >= len(operands):
            result += [None, None]
            continue
        operand = operands[position]
        copy = _copy_of(nest, dominant, operand)
        read = FlowAccess(dominant, operand, 0 if copy is None else 1)
        reads[position] = read
        if copy is None:
            result += [read, read]
        else:
            source = buffers_of(nest.statements[copy])[0]
            result += [FlowAccess(copy, source, 0), FlowAccess(copy, operand, 1)]
    return (*result, reads[1], reads[0], FlowAccess(dominant, written, 2))


def _copy_of(nest: LoopNest, dominant: int, operand: str) -> int | None:
    """The statement that computes an operand before the main one; None for an input."""
    for index in range(dominant - 1, -1, -1):
        statement = nest.statements[index]
        reads = buffers_of(statement)[0] != written_buffer(statement)
        if written_buffer(statement) == operand and statement.role != "init" and reads:
            return index
    return None


def _store_of(nest: LoopNest, dominant: int, tile: str) -> int:
    """The statement that stores what the main one accumulated: a later one, or itself."""
    for index in range(dominant + 1, len(nest.statements)):
        statement = nest.statements[index]
        if tile in buffers_of(statement) and written_buffer(statement) != tile:
            return index
    return dominant
