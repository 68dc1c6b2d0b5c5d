"""A backend that applies scripts of its own choice; imported by name in worker processes."""

from __future__ import annotations

from autotune_mlir import compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.parsing import parse_payload
from autotune_mlir.transform_library import apply_schedule

from autotune.backends import BuildRequest, LoweredProgram
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Ordinal, Sketch

__all__ = ["NAME", "ScriptedBackend", "scripted"]

NAME = "scripted_schedules:ScriptedBackend"
"""Import string of the backend."""

_FRAME = """
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%root: !transform.any_op) {{
    %op = transform.structured.match attributes {{autotune.stage = "C"}} in %root
      : (!transform.any_op) -> !transform.any_op
    %function = transform.structured.match ops{{["func.func"]}} in %root
      : (!transform.any_op) -> !transform.any_op
    {operations}
    transform.yield
  }}
}}
"""

_TILE = """
    %tile, %loop = transform.structured.tile_using_for %op tile_sizes [{rows}]
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
"""

# The first makes of a broadcast what the second makes into a broadcast.
_ENDLESS = """
    transform.structured.vectorize %tile : !transform.any_op
    transform.apply_patterns to %function {
      transform.apply_patterns.vector.cast_away_vector_leading_one_dim
      transform.apply_patterns.vector.lower_broadcast
    } : !transform.any_op
"""

_SCRIPTS = {
    "tile 2": _TILE.format(rows=2),
    "tile 4": _TILE.format(rows=4),
    "endless": _TILE.format(rows=1) + _ENDLESS,
    "refused": "    transform.structured.vectorize %op vector_sizes [3] : !transform.any_op",
}


def scripted(workload: Workload, name: str) -> Candidate:
    """A candidate that stands for a script: ``tile 2``, ``tile 4``, ``endless``, ``refused``."""
    which = Ordinal("script", tuple(range(len(_SCRIPTS))))
    sketch = Sketch("scripted", workload, (which,), (), ())
    return Candidate(sketch, (list(_SCRIPTS).index(name),))


class ScriptedBackend(MLIRBackend):
    """The MLIR backend, with the script that the candidate stands for."""

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Apply the script."""
        module = parse_payload(payload(request.workload))
        if request.candidate is not None:
            operations = list(_SCRIPTS.values())[request.candidate.values[0]]
            apply_schedule(module, _FRAME.format(operations=operations))
        lowered = compiler.lower(str(module), threads=1)
        return LoweredProgram(request, lowered, lowered.digest)
