"""Names of the columns, in the published order (Ansor, OSDI'20; Pruner, ASPLOS'25)."""

from __future__ import annotations

from collections import Counter

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    Load,
    ScalarExpr,
    Select,
    Unary,
    index_form,
    is_speculatable,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, children, loads, walk
from autotune.nest import LoopNest, Statement

__all__ = [
    "ARITHMETIC",
    "BUFFERS",
    "BUFFER_COLUMNS",
    "CURVE_SAMPLES",
    "DATAFLOW_COLUMNS",
    "FEATURE_COLUMNS",
    "operation_classes",
]

_CLASSES = ("multiply_add", "add", "multiply", "divide", "compare", "function", "other_function")
ARITHMETIC = (
    *(f"float_{name}" for name in _CLASSES),
    *(f"integer_{name}" for name in _CLASSES),
    "logic",
    "select",
)
_POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
# Buffers of a statement that have columns, and samples of the curve of arithmetic intensity.
BUFFERS = 5
CURVE_SAMPLES = 10
BUFFER_COLUMNS = (
    "read",
    "write",
    "read_write",
    "bytes",
    "unique_bytes",
    "lines",
    "unique_lines",
    "reuse_loop",
    "reuse_serial",
    "reuse_none",
    "reuse_iterations",
    "reuse_bytes",
    "reuse_count",
    "bytes_per_reuse",
    "unique_bytes_per_reuse",
    "lines_per_reuse",
    "unique_lines_per_reuse",
    "stride",
)
FEATURE_COLUMNS = (
    *ARITHMETIC,
    *(
        f"{kind}_{name}"
        for kind in ("vectorized", "unrolled", "parallel")
        for name in ("count", "product", "length", *_POSITIONS)
    ),
    "is_gpu",
    *(f"{kind}_{dim}" for kind in ("block", "thread") for dim in "xyz"),
    "vthread",
    *(f"buffer{at}_{name}" for at in range(BUFFERS) for name in BUFFER_COLUMNS),
    *(f"intensity{at}" for at in range(CURVE_SAMPLES)),
    "allocated_bytes",
    "allocated_product",
    "allocated_outer",
    "allocated_inner",
    "executions",
    "loops",
    "unroll_limit",
)
DATAFLOW_COLUMNS = (
    "float_operations",
    "in_global",
    "in_shared",
    "in_local",
    *BUFFER_COLUMNS,
    "allocated_bytes",
)


_CLASS_OF = {
    "add": "add",
    "sub": "add",
    "neg": "add",
    "mul": "multiply",
    "div": "divide",
    "mod": "divide",
    "max": "compare",
    "min": "compare",
}


def operation_classes(
    nest: LoopNest, statement: Statement, *, guards_as_functions: bool
) -> dict[str, int]:
    """Count each class of ``ARITHMETIC`` in one execution; classes that do not occur are left out.

    Integer classes hold the arithmetic of integer tensors, the comparisons of padding
    predicates, and the index arithmetic of loads: on the sketch's canonical indices, sums over
    loops of a stride times the loop, whatever a compiler makes of them. A multiply-add counts as
    its two operations, as it does in TVM.
    """
    counts: Counter[str] = Counter()
    if statement.body is not None:
        _Visitor(nest, statement, counts, guards_as_functions).visit(statement.body)
        for load in loads(statement.body):
            counts.update(_index_operations(statement, load))
    stage = nest.workload.stage(statement.stage)
    if statement.role == "compute" and stage.combiner is not None:
        counts[_classified(stage.combiner, stage.output.dtype)] += 1
    return {name: counts[name] for name in ARITHMETIC if counts[name]}


class _Visitor:
    def __init__(
        self,
        nest: LoopNest,
        statement: Statement,
        counts: Counter[str],
        guards_as_functions: bool,
    ) -> None:
        self.nest = nest
        self.statement = statement
        self.counts = counts
        self.guards_as_functions = guards_as_functions

    def dtype(self, node: ScalarExpr) -> str:
        """Type that an operation works on: that of its first conversion or load."""
        constants = []
        for inner in walk(node):
            if isinstance(inner, Cast):
                return inner.dtype
            if isinstance(inner, (Load, Gather)):
                return self.nest.workload.tensors[inner.tensor].dtype
            if isinstance(inner, Constant):
                constants.append(inner.dtype)
        return constants[0] if constants else "int32"

    def visit(self, node: ScalarExpr) -> None:
        if isinstance(node, Select):
            self._select(node)
        elif isinstance(node, (Unary, Binary)):
            self.counts[_classified(node.op, self.dtype(node))] += 1
        for child in children(node):
            self.visit(child)

    def _select(self, node: Select) -> None:
        # A branch that must not be evaluated where it is not taken: compilers call a guard.
        if self.guards_as_functions and self._is_guarded(node):
            self.counts[_classified("guard", self.dtype(node.on_true))] += 1
        else:
            self.counts["select"] += 1

    def _is_guarded(self, node: Select) -> bool:
        if self.statement.role != "compute":
            # The axes of a copy are its own, and reach beyond what is copied where it is padded.
            return any(isinstance(inner, (Load, Gather)) for inner in walk(node))
        workload = self.nest.workload
        extents = workload.stage(self.statement.stage).extents
        shapes = {name: tensor.shape for name, tensor in workload.tensors.items()}
        branches = (node.on_true, node.on_false)
        return not all(is_speculatable(branch, extents, shapes) for branch in branches)


def _classified(op: str, dtype: str) -> str:
    if op in LOGIC or op == "not":
        return "logic"
    kind = "float" if element_type(dtype).is_float else "integer"
    if op in COMPARISONS:
        return f"{kind}_compare"
    return f"{kind}_{_CLASS_OF.get(op, 'function')}"


def _index_operations(statement: Statement, load: Load) -> Counter[str]:
    counts: Counter[str] = Counter()
    for index in load.indices:
        form = index_form(index)
        counts["integer_divide"] += sum(term.op != "any" for term in form.terms.values())
        terms = 0
        for loop in statement.loops:
            for position, (axis, _) in enumerate(loop.parts):
                if axis not in form.axes:
                    continue
                terms += 1
                counts["integer_multiply"] += 1
                counts["integer_divide"] += (position > 0) + (position < len(loop.parts) - 1)
        constant = form.constant != 0
        counts["integer_add"] += max(0, terms - 1) + (1 if constant and terms else 0)
    return counts
