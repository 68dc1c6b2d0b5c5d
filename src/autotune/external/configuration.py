"""Values of parameters by name, from candidates and records: read, and nothing run."""

from __future__ import annotations

from autotune.errors import InvalidValueError
from autotune.external.specs import parameters_of_text
from autotune.sketches import Candidate
from autotune.spaces.parameters import Value
from autotune.store.records import Record

__all__ = ["configuration_of", "recorded_configuration"]


def configuration_of(candidate: Candidate | None, program: str | None) -> dict[str, Value]:
    """The values of a candidate by name, as the user knows them.

    Args:
        candidate: The candidate; None is the default configuration.
        program: Text of the external program that it is of.

    Raises:
        InvalidValueError: the text is of no external program, or a value none of its own.
    """
    parameters = parameters_of_text(program or "")
    if candidate is None:
        return {it.name: it.default for it in parameters if it.default is not None}
    columns = candidate.config
    names = [parameter.name for parameter in parameters]
    if set(names) != set(columns):
        raise InvalidValueError(
            f"the record has values of {', '.join(columns)}, and its program is tuned by "
            f"{', '.join(names)}"
        )
    return {it.name: it.decode(columns[it.name]) for it in parameters}


def recorded_configuration(record: Record) -> dict[str, Value] | None:
    """The values that a record of an external program stands for; None for any other record."""
    if not record.candidate.sketch.workload.external or record.program is None:
        return None
    return configuration_of(record.scheduled, record.program)
