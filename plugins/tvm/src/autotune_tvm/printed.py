"""From a candidate to functions of TIR that are printed from its loop nest.

They are lowered as far as TVM's passes would lower them: see
:func:`autotune_tvm.lowering.tir_pipeline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen
from tvm import tirx

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.lower import Place, Program, print_candidate
from autotune.sketches import Candidate
from autotune_tvm.lowering import PRINTED
from autotune_tvm.tir_emitter import Entry, TIREmitter
from autotune_tvm.tir_program import sequence

__all__ = ["Argument", "PrintedFunctions", "print_functions"]

@frozen
class Argument:
    """A parameter of a function.

    Attributes:
        name: Of the tensor.
        shape: Its extents, as the function has them.
        dtype: Its element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@frozen(eq=False)
class PrintedFunctions:
    """A candidate's functions.

    Attributes:
        whole: Takes all parameters as they are; None where the candidate packs none before.
        kernel: Takes what is packed in the places of the constants that the candidate packs
            before; ``whole`` itself where it packs none.
        packers: What packs the parameter at a position: from the parameter to the packed ones.
    """

    kernel: Any
    packers: Mapping[int, Any]


def print_functions(
    candidate: Candidate, arguments: Sequence[Argument], width: int
) -> PrintedFunctions:
    """The functions of a candidate.

    Args:
        candidate: What to print.
        arguments: The parameters of its function, in order.
        width: Lanes of a vector register, of numbers of single precision.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed.
    """
    emitter, program = _printed(candidate, width)
    entries: Mapping[str, Entry] = program.text
    positions = {argument.name: at for at, argument in enumerate(arguments)}
    packed: dict[int, list[tuple[str, Place]]] = {}
    for entry, operand, place in program.packed:
        packed.setdefault(positions[operand], []).append((entry, place))
    places: list[list[Any]] = []
    for at, argument in enumerate(arguments):
        own = [(place.name, place.shape, place.dtype) for _, place in packed.get(at, ())]
        places.append(own or [(argument.name, argument.shape, argument.dtype)])
    kernel = _function(emitter, [entries["run"]], [it for each in places for it in each])
    packers = {}
    for at, parts in packed.items():
        argument = arguments[at]
        first = (argument.name, argument.shape, argument.dtype)
        results = [(place.name, place.shape, place.dtype) for _, place in parts]
        packers[at] = _function(emitter, [entries[name] for name, _ in parts], [first, *results])
    return PrintedFunctions(kernel, packers)


def _printed(candidate: Candidate, width: int) -> tuple[TIREmitter, Program]:
    emitter = TIREmitter()
    try:
        return emitter, print_candidate(candidate, emitter, width)
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise InvalidSchedule(str(error)) from error


def _function(
    emitter: TIREmitter, entries: Sequence[Entry], parameters: Iterable[tuple[str, Any, str]]
) -> Any:
    """A function that runs entries one after the other; what is no parameter is its own."""
    given = {name: tirx.decl_buffer(shape, dtype, name=name) for name, shape, dtype in parameters}
    statements: list[Any] = []
    for entry in entries:
        body = entry.body()
        for name, (_, view) in entry.views.items():
            if name in given:
                statements.append(_view(view, given[name]))
            else:
                statements.append(tirx.AllocBuffer(view))
        statements += body
    whole = emitter.with_linked(sequence(statements))
    function = tirx.PrimFunc(list(given.values()), whole)
    return function.with_attrs({PRINTED: 1, "tirx.noalias": True})


def _view(view: Any, buffer: Any) -> Any:
    """The declaration of a flat view."""
    data = tirx.buffer_data(buffer)
    if view.dtype != buffer.dtype:
        data = tirx.reinterpret(tirx.buffer_data(view).ty, data)
    return tirx.DeclBuffer(view, data=data)
