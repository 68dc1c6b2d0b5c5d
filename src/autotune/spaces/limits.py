"""What a backend can compile, as the search space needs to know it."""

from __future__ import annotations

from attrs import frozen


@frozen
class ScheduleLimits:
    """Limits that become hard constraints of every sketch.

    Attributes:
        steps: Names of the steps that the backend can replay (keys of ``STEP_TYPES``).
        stack_bytes: Largest accumulate tile, in bytes.
        unrolled_statements: Most copies of a statement that complete unrolling may make.
        source: Who says so; named by the constraints.
    """

    steps: frozenset[str]
    stack_bytes: int
    unrolled_statements: int
    source: str
