"""Targets as TVM writes them, read as the names that they have here.

`cuda -model=a100`, `llvm -mcpu=cascadelake -num-cores=8` and the tag `nvidia/nvidia-a100`
are the presets `a100`, `cascadelake-8core` and `a100`; the JSON form of newer versions,
`{"kind": "llvm", "mcpu": "cascadelake"}`, is read, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.targets.gpus import GPUS
from autotune.targets.presets import gpu_hint

__all__ = ["name_of_tvm_target"]

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
