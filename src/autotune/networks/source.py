"""Source of a model, a function or a file, with what is asked of its inputs and precision."""

from __future__ import annotations

import copy
import inspect
import math
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from autotune.errors import (
    InvalidValueError,
    UnknownNameError,
    UnsupportedTarget,
    near_attributes,
    near_matches,
)
from autotune.networks.fixed_inputs import AskedInputs, DeclaredInput, fix_inputs
from autotune.networks.frontend import Frontend
from autotune.plugins import Context
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.installing import install_distributions
from autotune.plugins.known_names import IN_REPOSITORY
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.process.child import describe
from autotune.runtime.arrays import as_numpy, numpy_type
from autotune.targets import Target

__all__ = [
    "Source",
    "as_inputs",
    "as_path",
    "backends_of_frontends",
    "check_network",
    "check_precision",
    "find_frontend",
    "formats",
    "in_precision",
    "read_network",
    "read_source",
    "text_of",
    "with_inputs",
]


@frozen(eq=False)
class Source:
    """A model as it was given.

    Attributes:
        model: An object or the path of a file, for a frontend.
        example_inputs: What the model is called with; None where the model says it.
        text: What a person calls it, for messages.
        wide: What the model computed before it was converted to half precision, of inputs in
            order; None where it was not converted.
        asked: What a person says of its inputs, for the frontend.
        baked: Values of inputs that are not among the examples, by name.
    """

    model: object
    example_inputs: tuple[object, ...] | None
    text: str
    wide: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None
    asked: AskedInputs = field(factory=AskedInputs)
    baked: Mapping[str, Any] = field(factory=dict)

    @property
    def key(self) -> str:
        """Key that tells it from others without reading it: a name, and what is known of its size.

        Two that have the same key may differ, and the same network may be given in two ways.
        """
        if isinstance(self.model, Path):
            size = self.model.stat().st_size if self.model.is_file() else 0
            lengths = "".join(f", {name} {value}" for name, value in self.asked.dims.items())
            return f"{self.model.name} of {size} bytes{lengths}"
        shapes = [list(getattr(it, "shape", ())) for it in self.example_inputs or ()]
        # Of torch: a class or a function says little of how many layers there are.
        parameters: Any = getattr(self.model, "parameters", tuple)
        sizes = [math.prod(parameter.shape) for parameter in parameters()]
        return f"{self.text} of inputs {shapes}, {len(sizes)} parameters of {sum(sizes)} elements"


def formats(frontend: str | None = None) -> tuple[str, ...]:
    """Endings of the names of files that frontends read.

    Args:
        frontend: Name of one of them; None for all that are installed.

    Raises:
        UnknownNameError: there is none of this name.
    """
    frontends = _frontends(frontend)
    return tuple(dict.fromkeys(it for each in frontends for it in each.formats))


def _frontends(name: str | None) -> list[Frontend]:
    names: Sequence[str] = [name] if name is not None else manager().names("frontend")
    return [create_held_part("frontend", each) for each in names]


def read_source(text: str, frontend: str | None = None) -> Source:
    """The model that a person names.

    Args:
        text: ``package.module:function``, where the function returns a model and its example
            inputs, or only a model; or the path of a file.
        frontend: Name of the frontend that is to read it; None for any.

    Raises:
        InvalidValueError: there is no such file or function, or the function fails.
        UnknownNameError: there is no frontend of this name.
    """
    module, colon, attribute = text.partition(":")
    if os.path.exists(text):
        known = formats(frontend)
        if not os.path.isfile(text):
            raise InvalidValueError(f"{text!r} is no file; name {_listed(known)}")
        if known and Path(text).suffix not in known:
            raise InvalidValueError(
                f"{text!r} is no model: by its name it is not {_listed(known)}; name another "
                "file, or a function that makes a model, package.module:function"
            )
        return Source(Path(text), None, text)
    if colon and all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return _called(text)
    advice = "name a file, or a function that makes a model, package.module:function"
    if Path(text).suffix:
        matches = near_matches(Path(text).name, _files_beside(Path(text), formats(frontend)))
        advice = f"did you mean {' or '.join(map(repr, matches))}?" if matches else advice
    raise InvalidValueError(f"there is no file {text!r}; {advice}")


def _files_beside(path: Path, known: Sequence[str]) -> list[str]:
    try:
        return [it.name for it in path.parent.iterdir() if it.suffix in known and it.is_file()]
    except OSError:
        return []


def _listed(known: Sequence[str]) -> str:
    """Kinds of files that can be read: ``a .pt2, .onnx or .mlir file``."""
    first, last = ", ".join(known[:-1]), "".join(known[-1:])
    return f"a {' or '.join(filter(None, [first, last])) or 'model'} file"


def imported_function(text: str, purpose: str) -> Callable[..., object]:
    """The function that an import string names, ``package.module:function``.

    As with ``python -m``, a module of the current folder can be named.

    Args:
        text: The import string.
        purpose: What the function does, to be said where something else is named.

    Raises:
        InvalidValueError: the module cannot be imported, or has no such function.
    """
    module, _, attribute = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module)
    except (Exception, SystemExit) as error:  # whatever a person's module raises
        raise InvalidValueError(
            f"{text}: {module!r} cannot be imported: {describe(error)}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            matches = near_attributes(found, part)
            hint = f"; did you mean {' or '.join(map(repr, matches))}?" if matches else ""
            raise InvalidValueError(f"{text}: {module!r} has no {attribute!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidValueError(
            f"{text} is of type {type(found).__name__}; name a function that {purpose}"
        )
    return found


def _called(text: str) -> Source:
    """Return what the function returns that an import string names.

    Random weights are the same in every process.
    """
    found = imported_function(text, "returns a model and its example inputs")
    _seed()
    was_seeded = "torch" in sys.modules
    try:
        made = found()
        if not was_seeded and "torch" in sys.modules:
            # The function itself imports torch, which had no seed then.
            _seed()
            made = found()
    except (Exception, SystemExit) as error:
        raise InvalidValueError(f"{text} failed: {describe(error)}") from error
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    return Source(as_path(model), as_inputs(inputs), text)


def _seed() -> None:
    np.random.seed(0)
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def check_network(name: str) -> None:
    """Check that a plugin builds a network of this name, importing nothing.

    Raises:
        UnknownNameError: none does; says what to install where no network is.
    """
    known = manager().names("network")
    if name not in known:
        zoo = IN_REPOSITORY["zoo"]["network"]
        # A name that is misspelt leads to the plugin, too.
        meant = name if known else next(iter(near_matches(name, zoo)), zoo[0])
        raise UnknownNameError("network", name, known, manager().where_it_may_be("network", meant))


def read_network(name: str, sizes: Mapping[str, int]) -> Source:
    """A network that a plugin builds.

    Args:
        name: As of :func:`check_network`.
        sizes: Those that are not the published ones.

    Raises:
        AutotuneError: there is no such network or size.
    """
    check_network(name)
    made: Source = create_part("network", name, Context(options=sizes))
    return made


def as_path(model: object) -> object:
    """A path where a file is named by a text; what is no text as it is."""
    return Path(model) if isinstance(model, str) else model


def text_of(model: object) -> str:
    """Name of a model for messages: the path of a file, else the name of its class."""
    return str(model) if isinstance(model, str | Path) else type(model).__name__


def as_inputs(given: object) -> tuple[object, ...] | None:
    """Example inputs as a tuple, where one of them may stand for itself."""
    if given is None or isinstance(given, tuple):
        return given
    return tuple(given) if isinstance(given, list) else (given,)


def backends_of_frontends(name: str | None, target: Target) -> tuple[str, ...]:
    """Backends of what reads models for a target: the frontend of this name, or all of them.

    Returns:
        Their names; "" for a frontend whose backend depends on the model.

    Raises:
        UnknownNameError: there is no frontend of this name.
    """
    return tuple(dict.fromkeys(frontend.backend_for(target) for frontend in _frontends(name)))


def find_frontend(source: Source, name: str | None, target: Target) -> Frontend:
    """The frontend that reads a source for a target: that of a name, or the first that does.

    Raises:
        UnknownNameError: there is none of this name.
        UnsupportedTarget: those that read such sources make no networks for the target.
        InvalidValueError: it does not read such sources, or no frontend does.
    """
    frontends = _frontends(name)
    fitting = [it for it in frontends if it.accepts(source.model)]
    for frontend in fitting:
        if frontend.builds_for(target):
            return frontend
    if fitting:
        names = " and ".join(repr(it.name) for it in fitting)
        raise UnsupportedTarget(
            f"{source.text} is read by frontend {names}, which makes no networks for target "
            f"{target.name!r}{_missing(frontends)}"
        )
    kind = type(source.model)
    what = (
        repr(source.text)
        if isinstance(source.model, Path)
        else f"{source.text}: {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    )
    known = "; ".join(f"{it.name}: {', '.join(it.sources)}" for it in frontends)
    raise InvalidValueError(
        f"{what} is no model that can be read. What can be read: {known}{_missing(frontends)}"
    )


def _missing(frontends: Sequence[Frontend]) -> str:
    """Way of getting frontends of this repository that are not installed; "" where all are."""
    names = [it.name for it in frontends]
    others = {
        f"autotune-{folder}": parts["frontend"][0]
        for folder, parts in IN_REPOSITORY.items()
        if "frontend" in parts and not {*parts["frontend"]} & {*names}
    }
    if not others:
        return ""
    return f"; {', '.join(others.values())} can be installed: {install_distributions(*others)}"


def with_inputs(source: Source, asked: AskedInputs) -> Source:
    """A model and what is asked of its inputs.

    The example inputs of a module of torch are changed here: its inputs are the parameters of its
    ``forward`` that are tensors. What is asked of another model is for its frontend.

    Raises:
        UnknownNameError: a module has no such input, or a name for an axis.
        InvalidValueError: a shape or an array is not one of the input.
    """
    forward = getattr(source.model, "forward", None)
    is_module = callable(forward) and not isinstance(source.model, Path)
    if not (asked and is_module and source.example_inputs is not None):
        return evolve(source, asked=asked)
    names = _names(forward, len(source.example_inputs))
    pairs = list(zip(names, source.example_inputs, strict=True))
    numbers = _numbers(pairs, asked)
    asked = evolve(asked, inputs={k: it for k, it in asked.inputs.items() if k not in numbers})
    examples = {name: as_numpy(value) for name, value in pairs if hasattr(value, "shape")}
    declared = [
        DeclaredInput(name, ("",) * value.ndim, str(value.dtype), value)
        for name, value in examples.items()
    ]
    fixed = fix_inputs(declared, asked, None, source.text)
    if fixed.constants:
        name = next(iter(fixed.constants))
        raise InvalidValueError(
            f"input {name!r} of {source.text} is a tensor, and no value is baked into a module: "
            "let the function that makes the model return a number for it"
        )
    found = dict(zip(fixed.shapes, fixed.examples or (), strict=True))
    changed = tuple(
        _like(value, found[name]) if name in asked.inputs else numbers.get(name, value)
        for name, value in pairs
    )
    return evolve(source, example_inputs=changed)


def _numbers(pairs: Sequence[tuple[str, object]], asked: AskedInputs) -> dict[str, object]:
    """Inputs that are plain numbers, such as a rate, and what is asked for them."""
    found: dict[str, object] = {}
    for name, value in pairs:
        number = asked.inputs.get(name)
        if number is not None and isinstance(value, (bool, int, float)):
            if type(number) is not type(value):
                raise InvalidValueError(
                    f"input {name!r} is a number of type {type(value).__name__}, not {number!r}"
                )
            found[name] = number
    return found


def _names(forward: Any, count: int) -> list[str]:
    """Names of the positional inputs of a function; those of ``*inputs`` are numbered."""
    kinds = inspect.Parameter
    found: list[str] = []
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.kind == kinds.VAR_POSITIONAL:
            found += [f"{name}_{number}" for number in range(count - len(found))]
        elif parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            found.append(name)
    return found[:count] + [f"input_{number}" for number in range(len(found), count)]


def _like(example: Any, array: Any) -> Any:
    """An array as its example is: a tensor of torch on the same device, or an array."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(example, torch.Tensor):
        return array
    if str(array.dtype) == "bfloat16":
        bits = torch.from_numpy(np.array(array.view(np.int16)))
        return bits.view(torch.bfloat16).to(example.device)
    return torch.from_numpy(np.array(array)).to(example.device)


PRECISIONS = ("float16", "bfloat16")
"""Types that a module of float32 is converted to."""


def check_precision(precision: str | None) -> str | None:
    """A precision that networks are converted to; None for the model's own.

    Raises:
        UnknownNameError: there is no such precision.
    """
    if precision is not None and precision not in PRECISIONS:
        raise UnknownNameError("precision", precision, PRECISIONS)
    return precision


def in_precision(source: Source, precision: str | None) -> Source:
    """A module of torch with the floating-point weights and inputs of another precision.

    Args:
        source: A module and its example inputs; it stays as it is.
        precision: One of :data:`PRECISIONS`; None for the model's own.

    Returns:
        The converted module, whose outputs are compared with those of the module as it was on the
        inputs as they were rounded (:attr:`Source.wide`).

    Raises:
        UnknownNameError: there is no such precision.
        InvalidValueError: the source is no module of torch, or has no example inputs.
    """
    if check_precision(precision) is None:
        return source
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(source.model, torch.nn.Module):
        what = source.text if isinstance(source.model, Path) else type(source.model).__name__
        raise InvalidValueError(
            f"{what} cannot be converted to {precision}: only a module of torch can; convert the "
            "model itself, and give that without a precision"
        )
    if source.example_inputs is None:
        raise InvalidValueError(f"{source.text} has no example inputs")
    kind = getattr(torch, str(precision))
    with torch.no_grad():
        module = copy.deepcopy(source.model).to(kind)
    tree: Any = torch.utils._pytree
    inputs = tree.tree_map(lambda it: _rounded(it, kind, precision), source.example_inputs)
    return evolve(
        source,
        model=module,
        example_inputs=inputs,
        text=f"{source.text} in {precision}",
        wide=_wide(torch, source),
    )


def _rounded(value: Any, kind: Any, precision: str | None) -> Any:
    if isinstance(value, np.ndarray):
        is_float = value.dtype in (np.float32, np.float64)
        return value.astype(numpy_type(str(precision))) if is_float else value
    is_float = hasattr(value, "is_floating_point") and value.is_floating_point()
    return value.to(kind) if is_float else value


def _wide(torch: Any, source: Source) -> Callable[[Sequence[Any]], tuple[NDArray[Any], ...]]:
    """Outputs of the module as it was, of inputs that may be of half precision."""
    tree: Any = torch.utils._pytree
    leaves, structure = tree.tree_flatten(source.example_inputs)
    module: Any = source.model

    def run(inputs: Sequence[Any]) -> tuple[NDArray[Any], ...]:
        tensors: Any = import_module("autotune.networks.readers.torch.program")
        left = iter(inputs)
        given = [_as_example(torch, next(left), it) if _is_array(it) else it for it in leaves]
        with torch.no_grad(), tensors.kept(module.buffers()):
            found = module(*tree.tree_unflatten(given, structure))
            parts = [it for it in tree.tree_leaves(found) if _is_array(it)]
            return tuple(np.array(as_numpy(it)) for it in parts)

    return run


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape")


def _as_example(torch: Any, value: Any, example: Any) -> Any:
    """An input as the module takes it: of the type, and where the example is."""
    array = as_numpy(value)
    wide = array.astype(as_numpy(example).dtype)
    return torch.from_numpy(wide).to(getattr(example, "device", "cpu"))
