"""A sketch: everything about a schedule except the numbers."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches.constraints import Constraint, constraint_from_json, constraint_to_json
from autotune.sketches.params import Param, param_from_json, param_to_json
from autotune.sketches.steps import Step, step_from_json, step_to_json


@frozen
class Sketch:
    """Steps over a workload with parameters and constraints; the structure is fixed."""

    name: str
    workload: Workload
    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...]
    steps: tuple[Step, ...]

    @cached_property
    def param_names(self) -> tuple[str, ...]:
        """Names of the columns of a configuration matrix."""
        return tuple(param.name for param in self.params)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over workload and steps, equal in every process.

        Name, domains and constraints are left out: they say which configurations are looked
        at, not what program a configuration means.
        """
        content = {
            "workload": self.workload.digest,
            "params": list(self.param_names),
            "steps": [step_to_json(step) for step in self.steps],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the workload, which is stored beside it."""
        return {
            "name": self.name,
            "params": [param_to_json(param) for param in self.params],
            "constraints": [constraint_to_json(item) for item in self.constraints],
            "steps": [step_to_json(step) for step in self.steps],
        }

    @staticmethod
    def from_json(data: dict[str, Any], workload: Workload) -> Sketch:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a sketch.
        """
        try:
            return Sketch(
                data["name"],
                workload,
                tuple(param_from_json(item) for item in data["params"]),
                tuple(constraint_from_json(item) for item in data["constraints"]),
                tuple(step_from_json(item) for item in data["steps"]),
            )
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"not a sketch: {error!r}") from error
