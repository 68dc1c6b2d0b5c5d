"""Record filters as SQL."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from autotune.store.database import RecordFilter
from autotune.store.sqlite.interned import KEY_EQUALS, key_values

__all__ = ["RANK", "TIMED_HERE", "Condition", "baselines_of", "condition_of", "fastest_of_each"]

# A filter is a condition on the rows of `records`. The plus signs keep SQLite from using the
# index of such a column: rows are read in the order of their numbers, page by page. Only a
# candidate has so few records that its index is better than any order.
_NAMED = (
    "sketch_id IN (SELECT sketches.id FROM sketches JOIN workloads "
    "ON workloads.id = workload_id WHERE workloads.name = ?)"
)
# Few rows have these; the fastest that lacks them is among the first of the index.
# A row of others may have no JSON at all.
_GIVEN = "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.{}') END"
_IMPORTED = _GIVEN.format("imported")
_BEATEN = _GIVEN.format("beaten_by")
TIMED_HERE = f"{_IMPORTED} IS NULL"
"""The condition on rows of ``records`` that were timed here, and not imported."""

RANK = f"{_IMPORTED} IS NOT NULL, {_BEATEN} IS NOT NULL, latency, id"
"""What orders rows of valid records, the best first."""


@frozen
class Condition:
    """A WHERE clause, and the values of its placeholders."""

    text: str
    values: tuple[Any, ...]


def condition_of(where: RecordFilter) -> Condition:
    """The condition on rows of ``records``."""
    given = {
        "candidate = ?": where.candidate,
        "+workload = ?": where.workload,
        "run_id = ?" if where.candidate is None else "+run_id = ?": where.run_id,
        "+status = ?": where.status,
        _NAMED: where.workload_name,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    keys = _keys(where)
    texts = [*parts, *_origin(where), *([f"+key_id IN ({keys.text})"] if keys.values else [])]
    return Condition(" AND ".join(texts) or "TRUE", (*parts.values(), *keys.values))


def _origin(where: RecordFilter) -> list[str]:
    if where.imported is None:
        return []
    return [f"{_IMPORTED} IS NOT NULL" if where.imported else TIMED_HERE]


def baselines_of(where: RecordFilter) -> Condition:
    """The condition on rows of ``baselines``; what is said of candidates is left out."""
    given = {
        "workload = ?": where.workload,
        "+run_id = ?": where.run_id,
        "workload IN (SELECT digest FROM workloads WHERE name = ?)": where.workload_name,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    keys = _keys(where)
    texts = [*parts, *([f"key_id IN ({keys.text})"] if keys.values else [])]
    return Condition(" AND ".join(texts) or "TRUE", (*parts.values(), *keys.values))


def fastest_of_each(where: RecordFilter) -> Condition:
    """A query for the numbers of the fastest records of each workload under each key.

    Those that were timed here come first, and of these those that nobody has beaten. Only records
    of a run or of a candidate are read through; otherwise the index has each of them first. Where
    a workload has no such record under a key, the number is NULL.
    """
    if where.run_id is not None or where.candidate is not None:
        condition = condition_of(where)
        text = (
            "SELECT id FROM (SELECT id, row_number() OVER "
            f"(PARTITION BY workload, key_id ORDER BY {RANK}) AS place "
            f"FROM records WHERE status = 'ok' AND {condition.text}) WHERE place = 1"
        )
        return Condition(text, condition.values)
    named = "" if where.workload_name is None else f"AND {_NAMED} "
    names = () if where.workload_name is None else (where.workload_name,)
    if where.workload is not None:
        workloads = Condition("SELECT ? AS digest", (where.workload,))
    elif where.workload_name is not None:
        workloads = Condition("SELECT DISTINCT digest FROM workloads WHERE name = ?", names)
    else:
        workloads = Condition("SELECT DISTINCT digest FROM workloads", ())
    keys = _keys(where)
    wishes = (f"{TIMED_HERE} AND {_BEATEN} IS NULL", TIMED_HERE, "TRUE")
    origin = "".join(f"AND {text} " for text in _origin(where))
    tried = [
        "(SELECT id FROM records WHERE workload = wanted.digest AND key_id = wanted_keys.id "
        f"AND status = 'ok' {named}{origin}AND {wish} ORDER BY latency, id LIMIT 1)"
        for wish in wishes
    ]
    text = (
        f"SELECT coalesce({', '.join(tried)}) "
        f"FROM ({workloads.text}) AS wanted, ({keys.text}) AS wanted_keys"
    )
    return Condition(text, (*names * len(tried), *workloads.values, *keys.values))


def _keys(where: RecordFilter) -> Condition:
    """A query for the numbers of the measure keys that a filter allows."""
    given = {
        "target = ?": where.target,
        "backend = ?": where.backend,
        "threads = ?": where.threads,
        "protocol = ?": where.protocol,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    texts, values = list(parts), tuple(parts.values())
    if where.key is not None:
        texts.append(KEY_EQUALS)
        values += key_values(where.key)
    text = f"SELECT id FROM measure_keys WHERE {' AND '.join(texts) or 'TRUE'}"
    return Condition(text, values)
