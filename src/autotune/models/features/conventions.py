"""Counting conventions of features, where published extractors differ from memory traffic."""

from __future__ import annotations

from attrs import frozen

from autotune.errors import UnknownNameError

__all__ = ["FIDELITIES", "Conventions", "conventions_for"]


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
