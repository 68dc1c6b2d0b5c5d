"""Inputs of the feature kernel from a nest, as named expressions, and its columns by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import frozen

from autotune.errors import UnknownNameError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    index_form,
    is_speculatable,
    less,
    select,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, loads, walk
from autotune.nest import LoopNest, Statement
from autotune.nest.quantities import (
    Walk,
    buffers_of,
    contiguous,
    counted,
    covered,
    innermost_stride,
    line_bytes,
    lines_by_power,
    physical_region,
    reuse_of,
    touched_bytes,
)

__all__ = [
    "ARITHMETIC",
    "BUFFERS",
    "BUFFER_COLUMNS",
    "BUFFER_OUTPUTS",
    "CURVE_SAMPLES",
    "DATAFLOW_COLUMNS",
    "FEATURE_COLUMNS",
    "FIDELITIES",
    "Conventions",
    "buffer_outputs",
    "conventions_for",
    "dataflow_accesses",
    "depth_outputs",
    "operation_classes",
    "statement_outputs",
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
        counts.update(_operations(nest, statement, statement.body, guards_as_functions))
        for load in loads(statement.body):
            counts.update(_index_operations(statement, load))
    stage = nest.workload.stage(statement.stage)
    if statement.role == "compute" and stage.combiner is not None:
        counts[_classified(stage.combiner, stage.output.dtype)] += 1
    return {name: counts[name] for name in ARITHMETIC if counts[name]}


def _operand_type(nest: LoopNest, node: ScalarExpr) -> str:
    """Type that an operation works on: that of its first conversion or load."""
    constants = []
    for inner in walk(node):
        if isinstance(inner, Cast):
            return inner.dtype
        if isinstance(inner, (Load, Gather)):
            return nest.workload.tensors[inner.tensor].dtype
        if isinstance(inner, Constant):
            constants.append(inner.dtype)
    return constants[0] if constants else "int32"


def _operations(
    nest: LoopNest, statement: Statement, body: ScalarExpr, guards_as_functions: bool
) -> Iterator[str]:
    """The class of each operation of a body."""
    for node in walk(body):
        if isinstance(node, (Unary, Binary)):
            yield _classified(node.op, _operand_type(nest, node))
        elif isinstance(node, Select):
            # A branch that must not be evaluated where it is not taken: compilers call a guard.
            if guards_as_functions and _is_guarded(nest, statement, node):
                yield _classified("guard", _operand_type(nest, node.on_true))
            else:
                yield "select"


def _is_guarded(nest: LoopNest, statement: Statement, node: Select) -> bool:
    if statement.role != "compute":
        # The axes of a copy are its own, and reach beyond what is copied where it is padded.
        return any(isinstance(inner, (Load, Gather)) for inner in walk(node))
    extents = nest.workload.stage(statement.stage).extents
    shapes = {name: tensor.shape for name, tensor in nest.workload.tensors.items()}
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


_KINDS = ("vectorized", "unrolled", "parallel")
# In the order in which the kernel reads them.
BUFFER_OUTPUTS = (
    "executions",
    "region",
    "line_bytes",
    "line_share",
    "contiguous_bytes",
    "reuse_loop",
    "reuse_serial",
    "reuse_count",
    "reuse_iterations",
    "reuse_bytes",
    "reuse_share",
    "stride",
)


def executions(statement: Statement, conventions: Conventions) -> IntExpr:
    """Number of executions of a statement; with published conventions also per virtual thread."""
    result = statement.trips(len(statement.loops))
    for loop in statement.loops:
        repeats = conventions.vthreads_repeat_copies and loop.kind == "vthread"
        if repeats and loop.name in statement.cooperating:
            result = result * loop.extent
    return result


def statement_outputs(
    nest: LoopNest, statement: Statement, conventions: Conventions, gpu: bool
) -> dict[str, IntExpr]:
    """Columns of a statement that are no operation counts, by column name."""
    outputs: dict[str, IntExpr] = {}
    for kind in _KINDS:
        outputs.update(_marked(statement, kind, conventions))
    outputs["is_gpu"] = const(int(gpu))
    outputs.update(_bound(statement))
    outputs.update(_allocation(nest, statement, conventions))
    outputs["executions"] = executions(statement, conventions)
    loops = const(0)
    for index in range(len(statement.loops)):
        loops = loops + counted(statement, index, annotated=conventions.annotated)
    outputs["loops"] = loops
    outputs["unroll_limit"] = statement.unroll_limit
    return outputs


def _bound(statement: Statement) -> dict[str, IntExpr]:
    """Extents of the loops over blocks and threads; of two over threads, the inner one is x.

    A copy that the threads make together has a loop of its own over all of them.
    """
    one = const(1)
    block, vthread = (
        next((loop.extent for loop in statement.loops if loop.kind == kind), one)
        for kind in ("block", "vthread")
    )
    own = (loop for loop in statement.loops if loop.name not in statement.cooperating)
    threads = [loop.extent for loop in own if loop.kind == "thread"]
    thread_y, thread_x = (one, one, *threads)[-2:]
    found = {"block_x": block, "thread_x": thread_x, "thread_y": thread_y, "vthread": vthread}
    return {**found, **dict.fromkeys(("block_y", "block_z", "thread_z"), one)}


def _marked(statement: Statement, kind: str, conventions: Conventions) -> dict[str, IntExpr]:
    """Number of loops of a kind, their product, and the innermost one's extent; 0 without any."""
    count, product, length = const(0), const(1), const(0)
    for index, loop in enumerate(statement.loops):
        if loop.kind != kind:
            continue
        counts = counted(statement, index, annotated=conventions.annotated)
        count = count + counts
        product = product * loop.extent
        length = select(counts, loop.extent, length)
    some = less(0, count)
    return {
        f"{kind}_count": count,
        f"{kind}_product": select(some, product, 0),
        f"{kind}_length": length,
        f"{kind}_none": select(some, 0, 1),
        f"{kind}_mixed": some,
    }


def _allocation(
    nest: LoopNest, statement: Statement, conventions: Conventions
) -> dict[str, IntExpr]:
    """Size of the buffer that is written, and the loops outside and inside its allocation."""
    name = statement.stored.buffer
    known = nest.buffer(name)
    if known is None:
        tensor = nest.workload.tensors[name]
        elements, depth = const(tensor.elements), 0
    else:
        elements, depth = known.elements, known.depth
    outer, inner = const(1), const(1)
    for index, loop in enumerate(statement.loops):
        repeats = conventions.vthreads_repeat_copies and loop.kind == "vthread"
        if loop.name in statement.cooperating and not repeats:
            continue
        if index < depth:
            outer = outer * loop.extent
        else:
            inner = inner * loop.extent
    return {
        "allocated_bytes": elements * nest.element_bytes(name),
        "allocated_product": elements * outer,
        "allocated_outer": outer,
        "allocated_inner": inner,
    }


def buffer_outputs(
    nest: LoopNest,
    statement: Statement,
    buffer: str,
    known: Mapping[str, IntExpr],
    conventions: Conventions,
) -> dict[str, IntExpr]:
    """The inputs of one buffer's columns: ``BUFFER_OUTPUTS``, by name."""
    walk = Walk(nest, statement, buffer, known, annotated=conventions.annotated)
    reuse = reuse_of(walk)
    powered = lines_by_power(walk)
    return {
        "executions": executions(statement, conventions),
        "region": known[f"{statement.name}/region/{buffer}/0"],
        "line_bytes": powered[0] if conventions.lines_by_power else line_bytes(walk),
        "line_share": powered[1] if conventions.lines_by_power else const(1),
        "contiguous_bytes": _contiguous_bytes(walk, conventions),
        "reuse_loop": reuse.loop,
        "reuse_serial": reuse.serial,
        "reuse_count": reuse.count,
        "reuse_iterations": reuse.iterations,
        "reuse_bytes": reuse.bytes,
        "reuse_share": reuse.share,
        "stride": innermost_stride(walk),
    }


def _contiguous_bytes(walk: Walk, conventions: Conventions) -> IntExpr:
    """Bytes that lie together in memory, by one of three readings."""
    nest, statement, buffer = walk.nest, walk.statement, walk.buffer
    width = nest.element_bytes(buffer)
    if conventions.contiguity == "run":
        return contiguous(nest, statement, buffer) * width
    region_of = buffer if conventions.contiguity == "dimension" else statement.stored.buffer
    layout = Walk(nest, statement, region_of, walk.known).layout
    extents = physical_region(nest, statement, region_of, layout)
    whole = covered(walk.layout.shape, extents)
    # TVM starts from one byte where no dimension is touched completely, Ansor from one element.
    least = 1 if conventions.contiguity == "dimension" else width
    return select(less(0, whole), whole * width, least)


def depth_outputs(
    nest: LoopNest, statement: Statement, known: Mapping[str, IntExpr], conventions: Conventions
) -> list[tuple[IntExpr, IntExpr, IntExpr]]:
    """For each loop, outermost first: extent, whether it counts, bytes touched inside it."""
    found = []
    for index, loop in enumerate(statement.loops):
        if loop.name not in statement.cooperating:
            counts = counted(statement, index, annotated=conventions.annotated)
            found.append((loop.extent, counts, touched_bytes(nest, statement, index, known)))
    return found


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


def _published(nest: LoopNest) -> tuple[FlowAccess, ...] | None:
    accesses = []
    for index, statement in enumerate(nest.statements):
        written = statement.stored.buffer
        reads = [buffer for buffer in buffers_of(statement) if buffer != written]
        # As a hash table of the published extractor yields them.
        for buffer in (*reversed(reads), written):
            place = PLACES.index(nest.scope(buffer))
            accesses.append(FlowAccess(index, buffer, place))
    at = "".join(str(access.place) for access in accesses).find(_PATTERN)
    return None if at < 0 else tuple(accesses[at : at + len(_PATTERN)])


def _generalised(nest: LoopNest, dominant: int) -> tuple[FlowAccess | None, ...]:
    """Result; then both operands, where they come from and where they are copied to; then what
    the main statement reads of the second and of the first, and what it accumulates."""
    main = nest.statements[dominant]
    written = main.stored.buffer
    operands = [buffer for buffer in buffers_of(main) if buffer != written][:2]
    stored = _store_of(nest, dominant, written)
    result: list[FlowAccess | None] = [
        FlowAccess(stored, nest.statements[stored].stored.buffer, 0)
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
        reads = buffers_of(statement)[0] != statement.stored.buffer
        if statement.stored.buffer == operand and statement.role != "init" and reads:
            return index
    return None


def _store_of(nest: LoopNest, dominant: int, tile: str) -> int:
    """The statement that stores what the main one accumulated: a later one, or itself."""
    for index in range(dominant + 1, len(nest.statements)):
        statement = nest.statements[index]
        if tile in buffers_of(statement) and statement.stored.buffer != tile:
            return index
    return dominant


@frozen
class Conventions:
    """Reading of the definitions.

    Attributes:
        annotated: Loops of extent 1 are loops when they are marked parallel, vectorised, ...
        lines_by_power: The loops inside the first that moves a buffer are taken to have the
            extent of the innermost one, each.
        contiguity: What lies together in memory: the buffer's own ``"run"``, the last
            ``"dimension"`` that is touched completely, or that of the ``"written"`` buffer.
        guards_as_functions: A guarded load (padding) is a function call rather than a select.
        vthreads_repeat_copies: Virtual threads repeat a copy that a block makes once.
        operations_squared: The data-flow block multiplies operations by executions twice.
        dataflow_generalised: Programs without the published pattern have a data-flow block too.
    """

    annotated: bool
    lines_by_power: bool
    contiguity: str
    guards_as_functions: bool
    vthreads_repeat_copies: bool
    operations_squared: bool
    dataflow_generalised: bool


FIDELITIES = {
    "corrected": Conventions(
        annotated=False,
        lines_by_power=False,
        contiguity="run",
        guards_as_functions=False,
        vthreads_repeat_copies=False,
        operations_squared=False,
        dataflow_generalised=True,
    ),
    "published": Conventions(
        annotated=True,
        lines_by_power=True,
        contiguity="written",
        guards_as_functions=True,
        vthreads_repeat_copies=True,
        operations_squared=True,
        dataflow_generalised=False,
    ),
    "tvm": Conventions(
        annotated=True,
        lines_by_power=False,
        contiguity="dimension",
        guards_as_functions=True,
        vthreads_repeat_copies=True,
        operations_squared=False,
        dataflow_generalised=True,
    ),
}


def conventions_for(fidelity: str) -> Conventions:
    """The conventions called ``fidelity``.

    Raises:
        UnknownNameError: there are none of that name.
    """
    if fidelity not in FIDELITIES:
        raise UnknownNameError("fidelity", fidelity, FIDELITIES)
    return FIDELITIES[fidelity]
