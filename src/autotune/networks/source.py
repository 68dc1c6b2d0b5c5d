"""Source of a model, as a person names it: a function that makes one, or a file."""

from __future__ import annotations

import importlib
import math
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.errors import (
    InvalidValueError,
    UnsupportedTarget,
    near_attributes,
    near_matches,
)
from autotune.networks.asked_inputs import AskedInputs
from autotune.networks.frontend import Frontend
from autotune.networks.zoo import create
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.installing import install_distributions
from autotune.plugins.known_names import IN_REPOSITORY
from autotune.plugins.manager import manager
from autotune.process.child import describe
from autotune.targets import Target

__all__ = [
    "Source",
    "as_inputs",
    "as_path",
    "backends_of_frontends",
    "find_frontend",
    "formats",
    "read_network",
    "read_source",
    "text_of",
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
        found: object = importlib.import_module(module)
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


def read_network(name: str, sizes: Mapping[str, int]) -> Source:
    """A network that the package builds.

    Args:
        name: One of :func:`autotune.networks.zoo.names`.
        sizes: Those that are not the published ones.

    Raises:
        AutotuneError: there is no such network or size, or torch is not installed.
    """
    module, inputs = create(name, **sizes)
    return Source(module, inputs, name)


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
