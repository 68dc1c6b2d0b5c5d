"""Knobs that a compiler leaves open in a script of MLIR's Transform dialect.

``transform.tune.knob`` is a choice among attributes, ``transform.tune.alternatives`` one among
regions, and ``transform.smt.constrain_params`` says which choices fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from autotune.spaces.parameters import Parameter, Value
from autotune_mlir.importing.importer import ask_reader
from autotune_mlir.knob_reading import FILE, select

__all__ = ["Knobs", "read_knobs", "write_selected"]


@frozen
class Knobs:
    """Choices in a script.

    Attributes:
        parameters: One for each name of a knob, its options as values, and one for each of
            alternatives, with the numbers of its regions; the default is what is selected already.
            In names, what is no letter or digit becomes ``_``. An option that is no number, truth
            value or text is a text: how MLIR prints it.
        constraints: What ``transform.smt.constrain_params`` asserts, as expressions over the
            parameters; and that a knob in a region of alternatives keeps one value where another
            region is chosen, so that no program is tried twice.
    """

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]


@lru_cache(maxsize=64)
def read_knobs(text: str) -> Knobs:
    """The knobs of a module.

    Like all MLIR text of others, a script is read in a process of its own, which takes about a
    second the first time.

    Args:
        text: Of the module, in either form that MLIR prints.

    Raises:
        UnsupportedWorkload: it does not parse, or MLIR does not survive it; says where and why.
        InvalidValueError: there are no knobs, two of one name have other options, options are no
            list, or a constraint cannot be read; says which and where.
        BindingsMissing: MLIR is not installed.
    """
    found = ask_reader({"op": "read_knobs", "text": text, "file": FILE})
    parameters = [
        Parameter(it["name"], tuple(it["values"]), it["default"]) for it in found["parameters"]
    ]
    return Knobs(tuple(parameters), tuple(found["constraints"]))


def write_selected(text: str, config: Mapping[str, Value]) -> str:
    """The module with a configuration selected, for ``--transform-interpreter``.

    Args:
        text: Of the module.
        config: Value of every parameter of :func:`read_knobs`; what was selected is replaced.

    Returns:
        The module with the attribute ``selected`` of every knob, and ``selected_region`` of
        alternatives.

    Raises:
        InvalidValueError: a parameter is missing or unknown, a value is none of its options, or
            as of :func:`read_knobs`.
        UnsupportedWorkload: as of :func:`read_knobs`.
        BindingsMissing: MLIR is not installed.
    """
    read_knobs(text)  # so that MLIR is known to survive reading it here, too
    return select(text, config)
