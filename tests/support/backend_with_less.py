"""A backend that can do less than it says."""

from __future__ import annotations

from autotune.backends import BuildRequest, InvalidSchedule, LoweredProgram
from autotune.ir.expressions.integer import evaluate
from autotune.sketches import AtMost
from autotune.testing.reference_backend import ReferenceBackend

DECLARED_BYTES, TRUE_BYTES = 1 << 16, 256


class BackendWithLess(ReferenceBackend):
    """Declares that accumulate tiles have 64 KiB of stack, and has ``TRUE_BYTES``."""

    name = "less"

    def lower(self, request: BuildRequest) -> LoweredProgram:
        candidate = request.candidate
        if candidate is not None:
            for limit in candidate.sketch.constraints:
                if isinstance(limit, AtMost) and limit.limit == DECLARED_BYTES:
                    size = evaluate(limit.expression, candidate.config)
                    if size > TRUE_BYTES:
                        raise InvalidSchedule(f"a tile of {size} bytes does not fit the stack")
        return super().lower(request)
