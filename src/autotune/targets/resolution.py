"""Resolution of a user's text to a target."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.text_files import read_text_file
from autotune.targets.cuda_detection import detect_cuda, is_cuda_name
from autotune.targets.detection import detect_cpu
from autotune.targets.gpus import GPUS
from autotune.targets.presets import gpu_hint, preset, preset_names
from autotune.targets.target import Target
from autotune.targets.tf32 import TF32_SUFFIX, with_tf32

__all__ = ["CORE_NAMES", "name_of_tvm_target", "resolve"]

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


_TAG = re.compile(r"nvidia/(?!.*\.json$)(.+)")
_VENDOR = re.compile(r"^(?:nvidia/)?(?:nvidia-|tesla-|jetson-agx-)?")
_ATTRIBUTE = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?")
_GPU_OF_MODEL = {gpu.name.replace("-", ""): gpu for gpu in GPUS}
# What the preset describes is one of several modules.
_MODULES = {"orin64gb": "orin"}
# LLVM's other names of processors.
_PROCESSORS = {
    "core-avx2": "haswell",
    "corei7-avx": "sandybridge",
    "skx": "skylake-avx512",
}


def name_of_tvm_target(text: str) -> str | None:
    """Returns the name of the target that TVM's text means; None where it is none of TVM's.

    A kind alone, such as `cuda`, is none: it means the same here.

    Raises:
        UnknownNameError: There is no such kind of target, or no GPU of that model.
        InvalidValueError: An attribute is not read, lacks its value, or contradicts another.
    """
    tag = _TAG.fullmatch(text)
    if tag is not None:
        return _gpu(text)
    if text == "llvm":
        return "cpu"
    if text.startswith("{"):
        kind, attributes = _from_json(text)
    elif " " in text.strip():
        kind, *words = text.split()
        if not words[0].startswith("-"):
            return None
        attributes = _from_words(text, words)
    else:
        return None
    if kind not in _KINDS:
        raise UnknownNameError("kind of target", kind, _KINDS)
    allowed, named = _KINDS[kind]
    for name in attributes:
        if name not in allowed:
            raise InvalidValueError(
                f"target {text!r}: its attribute {name!r} is not read; allowed: "
                f"{', '.join(allowed)}. A JSON file can describe any machine."
            )
    return named(text, attributes)


def _from_words(text: str, words: list[str]) -> dict[str, str]:
    """Attributes of a text: `-name=value`, `--name=value` or `-name value`."""
    found: dict[str, str] = {}
    pending = ""
    for word in words:
        match = _ATTRIBUTE.fullmatch(word)
        if pending and match is None:
            found[pending], pending = word, ""
        elif pending or match is None:
            raise InvalidValueError(f"target {text!r}: {pending or word!r} is no -name=value")
        elif match[2] is None:
            pending = match[1]
        else:
            found[match[1]] = match[2]
    if pending:
        raise InvalidValueError(f"target {text!r}: {pending!r} is no -name=value")
    return found


def _from_json(text: str) -> tuple[str, dict[str, str]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"target {text!r} is not JSON: {error}") from error
    if not isinstance(data.get("kind"), str):
        raise InvalidValueError(f'target {text!r} lacks its kind, as in {{"kind": "llvm"}}')
    return data.pop("kind"), {name: str(value) for name, value in data.items()}


def _cuda(text: str, attributes: Mapping[str, str]) -> str:
    model, architecture = attributes.get("model"), attributes.get("arch")
    if model is not None and model != "unknown":
        name = _gpu(model)
        own = next(gpu.architecture for gpu in GPUS if gpu.name == name)
        if architecture not in (None, own):
            raise InvalidValueError(
                f"target {text!r}: {name} is {own}, not {architecture}; leave out arch"
            )
        return name
    if architecture is None:
        return "cuda"
    fitting = [gpu.name for gpu in GPUS if gpu.architecture == architecture]
    others = f", or one of {', '.join(fitting)}" if fitting else f". {gpu_hint()}"
    raise InvalidValueError(
        f"target {text!r}: {architecture} does not tell which GPU it is; give 'cuda' for the one "
        f"in this machine{others}"
    )


def _gpu(model: str) -> str:
    """Returns the preset of a GPU by the name that TVM has for it."""
    plain = _VENDOR.sub("", model.casefold()).replace("-", "")
    found = _GPU_OF_MODEL.get(_MODULES.get(plain, plain))
    if found is None:
        raise UnknownNameError("model of GPU", model, [gpu.name for gpu in GPUS])
    return found.name


def _llvm(text: str, attributes: Mapping[str, str]) -> str:
    processor, cores = attributes.get("mcpu"), attributes.get("num-cores")
    if cores is not None and not re.fullmatch(r"[1-9]\d{0,3}", cores):
        raise InvalidValueError(f"target {text!r}: num-cores must be 1 to 9999, not {cores!r}")
    if attributes.get("device", "cpu") != "cpu":
        raise InvalidValueError(f"target {text!r}: its device can only be cpu")
    if processor in (None, "native"):
        if cores is not None:
            raise InvalidValueError(
                f"target {text!r}: cores of this machine are chosen by threads (--threads {cores})"
            )
        return "cpu"
    name = _PROCESSORS.get(str(processor), str(processor))
    return name if cores is None else f"{name}-{cores}core"


_KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[str, Mapping[str, str]], str]]] = {
    "cuda": (("model", "arch"), _cuda),
    "llvm": (("mcpu", "num-cores", "device"), _llvm),
}
"""What is read of each kind of target, and what turns it into a name."""
