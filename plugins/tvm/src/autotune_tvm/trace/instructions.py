"""The form in which a trace of TVM is data: which instructions it may hold, and what they decide.

An instruction is a list ``[kind, inputs, attributes, results]``, as in TVM's own JSON of a trace,
except that ``GetSBlock`` names a block by the position of its stage, or as ``"root"``. Only kinds
are accepted that TVM's schedule rules for CPUs use: none runs anything but a schedule primitive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

from autotune.errors import InvalidValueError

__all__ = [
    "ANNOTATIONS",
    "CATEGORICAL",
    "LOCATION",
    "LOOKUP",
    "ROOT",
    "TILE",
    "decided",
    "read_instructions",
    "sampled",
]

TILE = "SamplePerfectTile"
CATEGORICAL = "SampleCategorical"
LOCATION = "SampleComputeLocation"
LOOKUP = "GetSBlock"
ROOT = "root"
"""Name of the block around all others."""

KINDS = frozenset(
    {
        LOOKUP,
        TILE,
        CATEGORICAL,
        LOCATION,
        "AddUnitLoop",
        "Annotate",
        "CacheRead",
        "CacheWrite",
        "ComputeAt",
        "ComputeInline",
        "DecomposeReduction",
        "Fuse",
        "GetChildBlocks",
        "GetConsumers",
        "GetLoops",
        "GetProducers",
        "RFactor",
        "Reorder",
        "ReverseComputeAt",
        "ReverseComputeInline",
        "Split",
        "Unannotate",
    }
)
ANNOTATIONS = "meta_schedule."
"""Prefix of their keys: any other may be one that the compiler acts on."""
_MOST_INSTRUCTIONS = 4096
_MOST_TEXT = 1 << 20
_DEEPEST = 4
_LARGEST = 1 << 40


@lru_cache(maxsize=256)
def read_instructions(text: str, stages: int) -> tuple[Sequence[Any], ...]:
    """Read the text of a trace.

    Args:
        text: A JSON list of instructions.
        stages: How many stages it may look up.

    Raises:
        InvalidValueError: it is something else; names the instruction.
    """
    if len(text) > _MOST_TEXT:
        raise InvalidValueError(f"a trace has at most {_MOST_TEXT} characters, not {len(text)}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"a trace is a JSON list of instructions: {error}") from error
    if not isinstance(data, list) or len(data) > _MOST_INSTRUCTIONS:
        raise InvalidValueError(
            f"a trace is a list of at most {_MOST_INSTRUCTIONS} instructions, not {text[:80]}"
        )
    for number, instruction in enumerate(data):
        reason = _problem(instruction, stages)
        if reason:
            raise InvalidValueError(f"instruction {number} of the trace {reason}")
    return tuple(data)


def _problem(instruction: Any, stages: int) -> str:
    """Describe the fault of an instruction; "" for nothing."""
    if not isinstance(instruction, list) or len(instruction) != 4:
        return "is no list of a kind, inputs, attributes and results"
    kind, inputs, attributes, results = instruction
    if not isinstance(kind, str) or kind not in KINDS:
        listed = ", ".join(sorted(KINDS))
        return f"is {str(kind)[:40]!r}, of no kind that a trace may have ({listed})"
    if not all(isinstance(part, list) for part in (inputs, attributes, results)):
        return "has inputs, attributes or results that are no lists"
    if not all(isinstance(name, str) for name in results):
        return "has results without names"
    if not all(map(_is_plain, (*inputs, *attributes))):
        return "holds something else than names, numbers and lists of them"
    check = _CHECKS.get(kind)
    return "" if check is None else check(attributes, stages)


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list):
        return depth < _DEEPEST and all(_is_plain(item, depth + 1) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _check_lookup(attributes: list[Any], stages: int) -> str:
    if len(attributes) != 2 or attributes[1] != "main":
        return "looks up no block of the function 'main'"
    name = attributes[0]
    if name == ROOT or (_is_whole(name) and 0 <= name < stages):
        return ""
    return f"looks up neither one of {stages} stages nor {ROOT!r}"


def _check_annotation(attributes: list[Any], _stages: int) -> str:
    key = attributes[0] if attributes else None
    if isinstance(key, str) and key.startswith(ANNOTATIONS):
        return ""
    return f"annotates something else than {ANNOTATIONS}*"


def _check_tile(attributes: list[Any], _stages: int) -> str:
    if len(attributes) == 2 and all(map(_is_whole, attributes)) and 1 <= attributes[0] <= 16:
        return ""
    return "is no tile of at most 16 loops"


def _check_choice(attributes: list[Any], _stages: int) -> str:
    choices = attributes[0] if len(attributes) == 2 else None
    if isinstance(choices, list) and choices and all(map(_is_whole, choices)):
        return "" if len(set(choices)) == len(choices) else "has a choice twice"
    return "is no choice among whole numbers"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


_CHECKS: Mapping[str, Any] = MappingProxyType(
    {
        LOOKUP: _check_lookup,
        "Annotate": _check_annotation,
        "Unannotate": _check_annotation,
        TILE: _check_tile,
        CATEGORICAL: _check_choice,
    }
)


def sampled(instructions: Sequence[Sequence[Any]]) -> Iterator[tuple[int, str, int]]:
    """Position, kind and number of values of every instruction that decides something."""
    for position, (kind, _, attributes, _) in enumerate(instructions):
        if kind == TILE:
            yield position, kind, attributes[0]
        elif kind in (CATEGORICAL, LOCATION):
            yield position, kind, 1


def decided(instructions: Sequence[Sequence[Any]], values: Sequence[int]) -> list[list[Any]]:
    """Decisions as TVM takes them: pairs of the position of an instruction and what it decides.

    Args:
        instructions: Those of a trace.
        values: For a tile its factors, the outermost first; for a choice the number chosen; for
            a location the position of the loop, -1 for outside of all loops, -2 for inlined.

    Raises:
        InvalidValueError: a value is none that may be chosen.
    """
    rest = list(values)
    found: list[list[Any]] = []
    for position, kind, count in sampled(instructions):
        own, rest = rest[:count], rest[count:]
        if kind == TILE:
            if len(own) < count or min(own) < 1 or prod(own) > _LARGEST:
                raise InvalidValueError(f"{own} are not the factors of {count} loops")
            found.append([position, own])
        elif kind == CATEGORICAL:
            choices = instructions[position][2][0]
            if own[0] not in choices:
                listed = ", ".join(map(str, choices))
                raise InvalidValueError(f"{own[0]} is none of the choices {listed}")
            found.append([position, choices.index(own[0])])
        else:
            found.append([position, own[0]])
    return found
