"""From a candidate to functions of TIR that are printed from its loop nest.

They are lowered as far as TVM's passes would lower them: see
:func:`autotune_tvm.compiler.tir_pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Tensor
from autotune.lower import Place, Program, print_candidate
from autotune.sketches import Candidate, is_default
from autotune_tvm.compiler import PRINTED
from autotune_tvm.emit import ENTRY
from autotune_tvm.executable import PackedArray, PackedOperand, packer_name
from autotune_tvm.passes.request_tiles import TILES
from autotune_tvm.tir_emitter import Entry, TIREmitter, sequence

__all__ = [
    "PrintedFunctions",
    "is_printable",
    "print_functions",
    "printed_functions",
]

_FLOAT_BYTES = 4


@frozen(eq=False)
class PrintedFunctions:
    """A candidate's functions.

    Attributes:
        kernel: Takes what is packed in the places of the constants that the candidate packs
            before.
        packers: What packs the parameter at a position: from the parameter to the packed ones.
    """

    kernel: Any
    packers: Mapping[int, Any]

    def module(self) -> tuple[IRModule, tuple[PackedOperand, ...]]:
        """A module whose ``main`` is the kernel, and what that takes packed."""
        functions, operands = {ENTRY: _named(self.kernel, ENTRY)}, []
        for position, packer in self.packers.items():
            kinds = [parameter.ty for parameter in packer.params[1:]]
            arrays = (PackedArray(tuple(map(int, it.shape)), str(it.dtype)) for it in kinds)
            operands.append(PackedOperand(position, tuple(arrays)))
            functions[packer_name(position)] = _named(packer, packer_name(position))
        return IRModule(functions), tuple(operands)


def is_printable(request: BuildRequest) -> bool:
    """Return whether the program of a request is printed, and not scheduled by TVM itself."""
    candidate = request.candidate
    if candidate is None or is_default(candidate) or request.target.kind == "cuda":
        return False
    return not candidate.sketch.is_opaque


def printed_functions(request: BuildRequest) -> PrintedFunctions:
    """The functions of a request.

    Raises:
        InvalidSchedule: the candidate's steps or values give no nest that can be printed.
    """
    assert request.candidate is not None
    width = max(1, request.target.vector_bytes // _FLOAT_BYTES)
    return print_functions(request.candidate, _parameters(request), width)


def _parameters(request: BuildRequest) -> tuple[Tensor, ...]:
    """Tensors that the function takes: those of an imported one in its own order."""
    if request.program is not None:
        return _imported_parameters(request.program)
    workload = request.workload
    return (*workload.inputs, *(workload.tensors[name] for name in workload.outputs))


@lru_cache(maxsize=64)
def _imported_parameters(program: str) -> tuple[Tensor, ...]:
    from autotune_tvm.importer import module_from_text, parameters_of

    return parameters_of(module_from_text(program))


def print_functions(
    candidate: Candidate, parameters: Sequence[Tensor], width: int
) -> PrintedFunctions:
    """The functions of a candidate.

    Args:
        candidate: What to print.
        parameters: Tensors that its function takes, in order.
        width: Lanes of a vector register, of numbers of single precision.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed.
    """
    emitter, program = _printed(candidate, width)
    entries: Mapping[str, Entry] = program.text
    positions = {tensor.name: at for at, tensor in enumerate(parameters)}
    packed: dict[int, list[tuple[str, Place]]] = {}
    for entry, operand, place in program.packed:
        packed.setdefault(positions[operand], []).append((entry, place))
    taken: list[Tensor | Place] = []
    packers = {}
    for at, tensor in enumerate(parameters):
        places = [place for _, place in packed.get(at, ())]
        taken += places or [tensor]
        if places:
            # One entry may pack several, such as weights and their sums.
            own = [entries[name] for name in dict.fromkeys(name for name, _ in packed[at])]
            packers[at] = _function(emitter, own, [tensor, *places])
    kernel = _function(emitter, [entries["run"]], taken)
    kernel = kernel.with_attr(TILES, 1) if program.uses_tiles else kernel
    return PrintedFunctions(kernel, packers)


def _printed(candidate: Candidate, width: int) -> tuple[TIREmitter, Program]:
    emitter = TIREmitter()
    try:
        return emitter, print_candidate(candidate, emitter, width)
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise InvalidSchedule(str(error)) from error


def _function(
    emitter: TIREmitter, entries: Sequence[Entry], parameters: Sequence[Tensor | Place]
) -> Any:
    """A function that runs entries one after the other; what is no parameter is its own."""
    given = {it.name: tirx.decl_buffer(it.shape, it.dtype, name=it.name) for it in parameters}
    statements: list[Any] = []
    for entry in entries:
        body = entry.body()
        for name, (_, view) in entry.views.items():
            if name in given:
                statements.append(_view(view, given[name]))
            else:
                statements.append(tirx.AllocBuffer(view))
        statements += body
    # Relax takes functions apart whose body is a block, and takes no others.
    block = SBlock([], [], [], "root", emitter.with_linked(sequence(statements)))
    function = tirx.PrimFunc(list(given.values()), SBlockRealize([], True, block))
    return function.with_attrs({PRINTED: 1, "tirx.noalias": True})


def _named(function: Any, name: str) -> Any:
    return function.with_attr("global_symbol", name)


def _view(view: Any, buffer: Any) -> Any:
    """The declaration of a flat view."""
    data = tirx.buffer_data(buffer)
    if view.dtype != buffer.dtype:
        data = tirx.reinterpret(tirx.buffer_data(view).ty, data)
    return tirx.DeclBuffer(view, data=data)
