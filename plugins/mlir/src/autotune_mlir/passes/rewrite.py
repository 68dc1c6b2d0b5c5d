"""Rewrites between bufferization and loops for which MLIR has no pass."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from autotune.backends import ALIGNMENT
from autotune_mlir.passes.carried_extremes import EXTREMES, track_numbers
from autotune_mlir.passes.chosen_reads import separate_choices
from autotune_mlir.passes.fast_math import expand_functions
from autotune_mlir.passes.masked_vectors import MASKED, split_masked
from autotune_mlir.passes.narrow_indices import CASTS, narrow_indices
from autotune_mlir.passes.neighbouring_lanes import GATHER, load_neighbours
from autotune_mlir.passes.transposed_vectors import TRANSPOSE, transpose_in_registers
from autotune_mlir.passes.vector_instructions import VectorInstructions
from autotune_mlir.passes.vector_maker import constant_of
from autotune_mlir.passes.vector_reductions import REDUCTION, reduce_in_halves
from autotune_mlir.traversal import operations_in

__all__ = ["rewrite"]

_FLAGS = MappingProxyType(
    {
        **dict.fromkeys(("arith.addf", "arith.subf", "arith.mulf"), "contract"),
        **dict.fromkeys(("arith.maximumf", "arith.minimumf"), "nsz"),
    }
)
_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})
_ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
_ALIGNED = "alignment"
_UPPER_HALF = -(1 << 16)


def rewrite(ir: Any, module: Any, vectors: VectorInstructions) -> None:
    """Write out, in a module on buffers, what would become calls, and let sums take products in.

    - Single-precision functions become polynomials (see :mod:`autotune_mlir.passes.fast_math`).
    - ``memref.copy`` between buffers with strides becomes a structured operation, hence loops:
      the function that MLIR would call for it is not in the bindings.
    - Sums and products of floats may be fused into one operation of the processor, which rounds
      once, as C compilers do and as contractions of vectors are.
    - A vector of floats is reduced to a number in halves (see
      :mod:`autotune_mlir.passes.vector_reductions`).
    - Of two zeros a maximum or minimum may be either, which saves half of its instructions; where
      one operand is NaN, so is the result.
    - Elements of narrow numbers that a vector was made of are converted one by one where nothing
      but they are used again: LLVM would make the vector of them first, and then take it apart.
      Of half precision, the vectors that are made of each of them are converted.
    - Vectors of elements that the processor has no masks for are read and written without one
      where all lanes are inside (see :mod:`autotune_mlir.passes.masked_vectors`).
    - What is gathered of neighbours in memory is loaded
      (see :mod:`autotune_mlir.passes.neighbouring_lanes`).
    - Matrices are transposed in registers (see :mod:`autotune_mlir.passes.transposed_vectors`).
    - Buffers that a schedule has asked for are aligned like all others, or each vector of a copied
      operand would lie across two lines of the cache.

    Args:
        ir: The ``ir`` module of the bindings.
        module: The ``ir.Module``, of which the context is the current one.
        vectors: What the processor does to vectors.
    """
    separate_choices(ir, module, vectors.least_masked_bits)
    functions: list[Any] = []
    copies: list[Any] = []
    floats: list[Any] = []
    casts: list[Any] = []
    transfers: list[Any] = []
    reductions: list[Any] = []
    gathers: list[Any] = []
    indices: list[Any] = []
    transposes: list[Any] = []
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)

    for operation in operations_in(module.operation):
        name = operation.name
        if name.startswith("math."):
            functions.append(operation)
        elif name == "memref.copy":
            copies.append(operation)
        elif name in _FLAGS:
            floats.append(operation)
        elif name in _WIDENING:
            casts.append(operation)
        elif name in MASKED:
            transfers.append(operation)
        elif name == REDUCTION:
            reductions.append(operation)
        elif name == GATHER:
            gathers.append(operation)
        elif name in CASTS:
            indices.append(operation)
        elif name == TRANSPOSE:
            transposes.append(operation)
        elif name in _ALLOCATIONS and _ALIGNED not in operation.attributes:
            operation.attributes[_ALIGNED] = alignment
    exact = ir.Attribute.parse("#arith.fastmath<none>")
    for operation in (*floats, *reduce_in_halves(ir, reductions)):
        if operation.attributes["fastmath"] == exact:
            flag = _FLAGS[operation.name]
            operation.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{flag}>")
    track_numbers(ir, [it for it in floats if it.name in EXTREMES])
    narrow_indices(ir, indices)
    expand_functions(ir, functions, vectors.scaled_lanes)
    load_neighbours(ir, gathers)
    transpose_in_registers(ir, transposes)
    split_masked(ir, transfers, vectors.least_masked_bits)
    for cast in casts:
        _widen_elements(ir, cast)
    for copy in copies:
        source, target = copy.operands
        if not (_is_dense(ir, source.type) and _is_dense(ir, target.type)):
            _write_copy(ir, copy, source, target)


def _widen_elements(ir: Any, cast: Any) -> None:
    """Convert the elements of a vector that are used, where it is used by its elements alone.

    Vectors that are made of an element of half precision are converted in its place. The processor
    has no instruction for single elements of float16: they are left alone where there are others.
    """
    source, result = cast.operands[0], cast.results[0]
    if not isinstance(source.type, ir.VectorType):
        return
    users = [use.owner.operation for use in result.uses]
    wide, narrow = result.type.element_type, source.type.element_type
    if not all(user.name == "vector.extract" and user.results[0].type == wide for user in users):
        return
    made_of = [use.owner.operation for user in users for use in user.results[0].uses]
    if str(narrow) == "f16" and any(user.name != "vector.broadcast" for user in made_of):
        return
    create = ir.Operation.create
    for user in users:
        attributes = {"static_position": user.attributes["static_position"]}
        with ir.InsertionPoint(user), user.location:
            operands = [source, *list(user.operands)[1:]]
            element = create("vector.extract", [narrow], operands, attributes).results[0]
            if str(narrow) in ("f16", "bf16"):
                _widen_vectors(ir, element, user.results[0])
            if any(True for _ in user.results[0].uses):
                made = create(cast.name, [wide], [element]).results[0]
                user.results[0].replace_all_uses_with(made)
        user.erase()
    cast.erase()


def _widen_vectors(ir: Any, element: Any, wide: Any) -> None:
    """Convert the vectors that are made of an element of half precision, and not the element."""
    made_of = [use.owner.operation for use in wide.uses]
    for spread in (user for user in made_of if user.name == "vector.broadcast"):
        kind = spread.results[0].type
        with ir.InsertionPoint(spread), spread.location:
            if str(element.type) == "bf16":
                made = _spread_bfloat16(ir, element, kind)
            else:
                narrow = ir.VectorType.get(list(kind.shape), element.type)
                many = ir.Operation.create("vector.broadcast", [narrow], [element]).results[0]
                made = ir.Operation.create("arith.extf", [kind], [many]).results[0]
        spread.results[0].replace_all_uses_with(made)
        spread.erase()


def _spread_bfloat16(ir: Any, element: Any, kind: Any) -> Any:
    """A bfloat16 as a vector of float32, of which it is the upper half.

    In both halves of each lane it is a vector of 16 bits; then the lower halves are cleared.
    """
    half, word = (ir.IntegerType.get_signless(bits) for bits in (16, 32))
    *outer, lanes = kind.shape
    halves, words = (
        ir.VectorType.get([*outer, 2 * lanes], half),
        ir.VectorType.get([*outer, lanes], word),
    )
    mask = constant_of(ir, words, ir.IntegerAttr.get(word, _UPPER_HALF))
    value = element
    for name, result in (
        ("arith.bitcast", half),
        ("vector.broadcast", halves),
        ("vector.bitcast", words),
    ):
        value = ir.Operation.create(name, [result], [value]).results[0]
    value = ir.Operation.create("arith.andi", [words], [value, mask]).results[0]
    return ir.Operation.create("arith.bitcast", [kind], [value]).results[0]


def _is_dense(ir: Any, kind: Any) -> bool:
    """Whether a buffer is row-major without gaps; copies of such buffers need no function."""
    rank = len(kind.shape)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    return bool(kind.layout == identity)


def _write_copy(ir: Any, copy: Any, source: Any, target: Any) -> None:
    kind = source.type
    rank = len(kind.shape)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    with ir.InsertionPoint(copy), copy.location:
        loops = ir.Operation.create(
            "linalg.generic",
            operands=[source, target],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([identity, identity]),
                "iterator_types": ir.ArrayAttr.get([parallel] * rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            },
            regions=1,
        )
        element = kind.element_type
        block = ir.Block.create_at_start(loops.regions[0], [element, element])
        with ir.InsertionPoint(block):
            ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    copy.erase()
