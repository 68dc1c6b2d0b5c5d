"""Resolution of a user's text to a target."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.text_files import read_text_file
from autotune.targets.cuda_detection import detect_cuda, is_cuda_name
from autotune.targets.detection import detect_cpu
from autotune.targets.presets import gpu_hint, preset, preset_names
from autotune.targets.target import Target
from autotune.targets.tf32 import TF32_SUFFIX, with_tf32
from autotune.targets.tvm_names import name_of_tvm_target

__all__ = ["CORE_NAMES", "resolve"]

CORE_NAMES = ("cpu", "cuda", *preset_names())
"""Names of targets that no plugin may register."""


def resolve(spec: Target | str | os.PathLike[str], others: Iterable[str] = ()) -> Target:
    """Returns the target that a specification means.

    Args:
        spec: `"cpu"` for this machine's CPU, `"cuda"` or `"cuda:N"` for its first or another GPU,
            the name of a preset, one of these followed by `"-tf32"` for a GPU that may round
            factors of float32 products to TF32, one of these as TVM writes it
            (`"llvm -mcpu=cascadelake"`), the path of a JSON file that holds `Target.to_json()`,
            or a target, which is returned as it is.
        others: Further names that are allowed, for the message.

    Raises:
        UnknownNameError: It is none of these.
        InvalidValueError: The file cannot be read, or holds no target.
        UnsupportedTarget: It cannot be detected here.
    """
    if isinstance(spec, Target):
        return spec
    if isinstance(spec, str) and spec.endswith(TF32_SUFFIX):
        return with_tf32(resolve(spec.removesuffix(TF32_SUFFIX), others))
    if spec == "cpu":
        return detect_cpu()
    if isinstance(spec, str) and is_cuda_name(spec):
        return detect_cuda(spec)
    if not isinstance(spec, (str, os.PathLike)):
        raise InvalidValueError(
            f"a target is 'cpu', 'cuda', a preset, a path or a Target, not {type(spec).__name__}"
        )
    if isinstance(spec, str) and (name := name_of_tvm_target(spec)) is not None:
        return resolve(name, others)
    path = Path(spec)
    if isinstance(spec, os.PathLike) or path.suffix == ".json" or os.sep in spec:
        return _read(path)
    try:
        return preset(spec)
    except UnknownNameError:
        raise UnknownNameError(
            "target",
            spec,
            (*CORE_NAMES, *others),
            f"{gpu_hint()} A path of a JSON file ends in '.json'.",
        ) from None


def _read(path: Path) -> Target:
    try:
        return Target.from_json(json.loads(read_text_file(path)))
    except OSError as error:
        raise InvalidValueError(
            f"cannot read the target file {str(path)!r}: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{str(path)!r} is not a JSON file: {error}") from error
    except AutotuneError as error:
        raise InvalidValueError(f"{str(path)!r} does not hold a target: {error}") from error
