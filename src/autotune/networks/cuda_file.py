"""A network for a CUDA device in one file: machine code, weights, and the order of its calls.

The file is a zip archive of JSON and plain arrays. Running it needs the driver, and no compiler.
Its kernels are machine code: as with a shared library, open files that you trust.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import CudaProgram
from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.networks.cuda_network import CudaNetwork
from autotune.networks.cuda_plan import DeviceCallPlan, DevicePlan
from autotune.networks.frontend import NetworkTensor
from autotune.targets import Target

__all__ = ["CUDA_FILE_VERSION", "cuda_network", "open_cuda_network"]

CUDA_FILE_VERSION = 1
"""Grows when files of before can no longer be read."""

_SCHEMA = "autotune.cuda_network"
_PLAN, _CONSTANTS = "network.json", "constants"
# A zip file holds dates; equal networks have equal files.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REMARK = (
    "it runs on {target} with the driver alone: "
    "autotune.networks.cuda_file.open_cuda_network(PATH)"
)


def cuda_network(plan: DevicePlan, target: Target) -> CudaNetwork:
    """A network that can be called, and saved as :func:`open_cuda_network` reads it.

    Args:
        plan: What is computed.
        target: The device that it is for.
    """
    return CudaNetwork(plan, target, partial(_write, plan, target))


def open_cuda_network(path: Path | str) -> CudaNetwork:
    """A network that :meth:`CudaNetwork.save` wrote; the device is opened by the first call.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read(_PLAN))
            if data["schema"] != _SCHEMA or data["version"] != CUDA_FILE_VERSION:
                raise InvalidValueError(
                    f"it is {data['schema']!r} of version {data['version']!r}, and not "
                    f"{_SCHEMA!r} of version {CUDA_FILE_VERSION}"
                )
            target = Target.from_json(data["target"])
            plan = _plan(data, partial(_constant, archive))
    except (AutotuneError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        why = one_line(str(error) or type(error).__name__)
        raise InvalidValueError(
            f"{str(path)!r} is no network for a CUDA device that can be read: {why}"
        ) from error
    if target.kind != "cuda":
        raise InvalidValueError(f"{str(path)!r} is for a target of kind {target.kind!r}")
    return cuda_network(plan, target)


def _write(plan: DevicePlan, target: Target, path: Path) -> tuple[str, ...]:
    """Write a network; returns what it needs where it runs."""
    data = {
        "schema": _SCHEMA,
        "version": CUDA_FILE_VERSION,
        "target": target.to_json(),
        "programs": {name: program.to_json() for name, program in plan.programs.items()},
        "calls": [{"task": it.task, "arguments": dict(it.arguments)} for it in plan.calls],
        "sizes": dict(plan.sizes),
        "constants": {name: array.nbytes for name, array in plan.constants.items()},
        "inputs": _described(plan.inputs, plan.input_values),
        "outputs": _described(plan.outputs, plan.output_values),
    }
    try:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_PLAN, _EPOCH), json.dumps(data))
            for name, array in plan.constants.items():
                entry = zipfile.ZipInfo(f"{_CONSTANTS}/{name}", _EPOCH)
                archive.writestr(entry, np.ascontiguousarray(array).tobytes())
    except OSError as error:
        raise InvalidValueError(f"{str(path)!r} cannot be written: {error}") from error
    return (_REMARK.format(target=target.name),)


def _described(tensors: Any, values: Any) -> list[dict[str, Any]]:
    return [
        {"name": it.name, "shape": list(it.shape), "dtype": it.dtype, "value": value}
        for it, value in zip(tensors, values, strict=True)
    ]


def _plan(data: Mapping[str, Any], constant: Any) -> DevicePlan:
    inputs, outputs = (list(map(_tensor, data[key])) for key in ("inputs", "outputs"))
    return DevicePlan(
        {str(name): CudaProgram.from_json(it) for name, it in data["programs"].items()},
        [
            DeviceCallPlan(
                str(call["task"]), {str(k): str(v) for k, v in call["arguments"].items()}
            )
            for call in data["calls"]
        ],
        {str(name): _whole(size, 1) for name, size in data["sizes"].items()},
        {str(name): constant(name, _whole(size, 0)) for name, size in data["constants"].items()},
        *_apart(inputs),
        *_apart(outputs),
    )


def _apart(
    described: list[tuple[NetworkTensor, str]],
) -> tuple[list[NetworkTensor], list[str]]:
    """Tensors and their values, apart."""
    return [tensor for tensor, _ in described], [value for _, value in described]


def _tensor(data: Mapping[str, Any]) -> tuple[NetworkTensor, str]:
    shape = tuple(_whole(extent, 0) for extent in data["shape"])
    tensor = NetworkTensor(str(data["name"]), shape, str(data["dtype"]))
    np.dtype(tensor.dtype)
    return tensor, str(data["value"])


def _constant(archive: zipfile.ZipFile, name: str, size: int) -> NDArray[Any]:
    content = archive.read(f"{_CONSTANTS}/{name}")
    if len(content) != size:
        raise ValueError(f"constant {name!r} has {len(content)} bytes, and not {size}")
    return np.frombuffer(content, np.uint8)


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**48:
        raise ValueError(f"{value!r} is no size")
    return value
