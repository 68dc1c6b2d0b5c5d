"""Complex numbers as pairs of real ones.

A complex tensor becomes a real one with a last axis of two: real parts and imaginary parts, as in
``torch.view_as_real``. What rotary embeddings do is so expressed: products, sums, conjugates,
polar forms, and views.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

__all__ = ["first_inexpressible", "is_complex", "with_pairs"]


@frozen(eq=False)
class _Pair:
    """A complex tensor.

    Attributes:
        value: Of the shape of the complex one, and a last axis of two.
    """

    value: Any

    @property
    def real(self) -> Any:
        """The real parts."""
        return self.value.select(-1, 0)

    @property
    def imaginary(self) -> Any:
        """The imaginary parts."""
        return self.value.select(-1, 1)

    @property
    def axes(self) -> int:
        """How many the complex tensor has."""
        return int(self.value.dim()) - 1

    def axis(self, dim: int) -> int:
        """An axis of the complex tensor, counted from the beginning."""
        return dim + self.axes if dim < 0 else dim


def is_complex(node: Any) -> bool:
    """Whether a node of torch's graph computes complex numbers, one of several at least."""
    import torch

    values = node.meta.get("val")
    each = values if isinstance(values, (tuple, list)) else (values,)
    return any(isinstance(it, torch.Tensor) and it.is_complex() for it in each)


def first_inexpressible(program: Any) -> Any:
    """The first node of an exported program that has no form in pairs; None where all have one."""
    import torch

    known = _rules(torch.ops.aten)
    weights = set(program.graph_signature.inputs_to_buffers)
    weights |= set(program.graph_signature.inputs_to_parameters)
    weights |= set(program.graph_signature.inputs_to_lifted_tensor_constants)
    for node in program.graph.nodes:
        of_complex = is_complex(node) or any(map(is_complex, node.all_input_nodes))
        is_known = node.target in known or node.target is operator.getitem or node.name in weights
        if of_complex and not is_known and node.op != "output":
            return node
    (output,) = program.graph.find_nodes(op="output")
    return next(filter(is_complex, output.all_input_nodes), None)


def with_pairs(program: Any) -> Any:
    """An exported program with the same inputs and outputs that has no complex numbers.

    Args:
        program: The ``ExportedProgram``, of which :func:`first_inexpressible` is None.
    """
    import torch

    module = program.module()
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    run = _interpreter(module, _made_real(module))

    def forward(*inputs: Any) -> Any:
        return tuple(run(*inputs))

    names = [inspect.Parameter(str(it.name), _POSITIONAL) for it in placeholders]
    forward.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    whole = torch.nn.Module()
    # As a part, so that its weights are weights of the whole.
    whole.network = module
    whole.forward = forward
    inputs = tuple(_example(node.meta.get("val")) for node in placeholders)
    with torch.no_grad():
        return torch.export.export(whole, inputs)


_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _example(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.zeros(tuple(map(int, value.shape)), dtype=value.dtype)


def _made_real(module: Any) -> frozenset[str]:
    """Replace complex weights of a module by pairs; returns their names."""
    import torch

    found = set()
    for node in module.graph.find_nodes(op="get_attr"):
        path, _, name = str(node.target).rpartition(".")
        owner = module.get_submodule(path)
        held = getattr(owner, name)
        if isinstance(held, torch.Tensor) and held.is_complex():
            delattr(owner, name)
            owner.register_buffer(name, torch.view_as_real(held.detach().resolve_conj()).clone())
            found.add(str(node.target))
    return frozenset(found)


def _interpreter(module: Any, pairs: frozenset[str]) -> Callable[..., Sequence[Any]]:
    """Calls a module's graph on flat inputs, with pairs in place of complex tensors."""
    import torch

    rules = _rules(torch.ops.aten)

    class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            self._is_of_complex = is_complex(n) or any(map(is_complex, n.all_input_nodes))
            return super().run_node(n)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            value = super().get_attr(target, args, kwargs)
            return _Pair(value) if target in pairs else value

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if self._is_of_complex and target in rules:
                return rules[target](*args, **kwargs)
            return super().call_function(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            # Checks of the inputs, which the new program makes again.
            return None

    def run(*inputs: Any) -> Sequence[Any]:
        found: Sequence[Any] = Interpreter(module).run(*inputs, enable_io_processing=False)
        return found

    return run


@lru_cache(maxsize=1)
def _rules(aten: Any) -> Mapping[Any, Callable[..., Any]]:
    """What each operator does to pairs."""
    return {
        aten.view_as_complex.default: _Pair,
        aten.view_as_real.default: lambda x: x.value,
        aten.complex.default: _from_parts,
        aten.polar.default: _polar,
        aten.real.default: lambda x: x.real,
        aten.imag.default: lambda x: x.imaginary,
        aten.abs.default: _magnitude,
        aten.angle.default: lambda x: x.imaginary.atan2(x.real),
        aten.conj.default: _conjugate,
        aten._conj.default: _conjugate,
        aten.conj_physical.default: _conjugate,
        aten.neg.default: lambda x: _Pair(-x.value),
        aten.add.Tensor: _add,
        aten.sub.Tensor: _subtract,
        aten.rsub.Scalar: lambda x, y: _subtract(y, x),
        aten.mul.Tensor: _multiply,
        aten.mul.Scalar: _multiply,
        aten.div.Tensor: _divide,
        aten.exp.default: lambda x: _polar(x.real.exp(), x.imaginary),
        **dict.fromkeys(_same(aten), _unchanged),
        **dict.fromkeys((aten.to.dtype, aten.to.device, aten._to_copy.default), _converted),
        # What is asserted of a type is so by the operators that take it.
        aten._assert_tensor_metadata.default: lambda *_given, **_named: None,
        **_views(aten),
    }


def _same(aten: Any) -> Sequence[Any]:
    names = "clone contiguous detach alias resolve_conj resolve_neg lift_fresh_copy"
    return [getattr(aten, name).default for name in names.split()]


def _unchanged(x: Any, **_given: Any) -> Any:
    return x


def _converted(x: _Pair, *args: Any, **given: Any) -> Any:
    """In another type, of which a real one takes the real parts; all is on the CPU."""
    import torch

    dtypes = [it for it in (*args, *given.values()) if isinstance(it, torch.dtype)]
    if not dtypes:
        return x
    (dtype,) = dtypes
    return _Pair(x.value.to(dtype.to_real())) if dtype.is_complex else x.real.to(dtype)


def _views(aten: Any) -> Mapping[Any, Callable[..., Any]]:
    """Operators that move elements, in which the last axis stays the last."""

    def shaped(x: _Pair, size: Sequence[int], **_given: Any) -> _Pair:
        return _Pair(x.value.reshape(*size, 2))

    def along(name: str) -> Callable[..., Any]:
        """Of one axis, which is the argument after the tensor."""

        def rule(x: _Pair, dim: int = 0, *args: Any) -> _Pair:
            return _Pair(getattr(x.value, name)(x.axis(dim), *args))

        return rule

    def permuted(x: _Pair, dims: Sequence[int]) -> _Pair:
        return _Pair(x.value.permute(*map(x.axis, dims), x.axes))

    def sliced(x: _Pair, dim: int = 0, *args: Any) -> _Pair:
        return _Pair(aten.slice.Tensor(x.value, x.axis(dim), *args))

    def joined(parts: Sequence[_Pair], dim: int = 0) -> _Pair:
        import torch

        return _Pair(torch.cat([it.value for it in parts], parts[0].axis(dim)))

    return {
        **dict.fromkeys(
            (aten.view.default, aten.reshape.default, aten._unsafe_view.default), shaped
        ),
        aten.expand.default: lambda x, size, **_given: _Pair(x.value.expand(*size, 2)),
        aten.repeat.default: lambda x, size: _Pair(x.value.repeat(*size, 1)),
        # The new axis is counted among those that there are then.
        aten.unsqueeze.default: lambda x, dim: _Pair(
            x.value.unsqueeze(dim + x.axes + 1 if dim < 0 else dim)
        ),
        aten.squeeze.dim: along("squeeze"),
        aten.select.int: along("select"),
        aten.index_select.default: along("index_select"),
        aten.slice.Tensor: sliced,
        aten.permute.default: permuted,
        aten.transpose.int: lambda x, one, other: _Pair(
            x.value.transpose(x.axis(one), x.axis(other))
        ),
        aten.t.default: lambda x: _Pair(x.value.transpose(0, 1)) if x.axes == 2 else x,
        aten.flatten.using_ints: lambda x, start=0, end=-1: _Pair(
            x.value.flatten(x.axis(start), x.axis(end))
        ),
        aten.index.Tensor: lambda x, indices: _Pair(aten.index.Tensor(x.value, indices)),
        aten.cat.default: joined,
    }


def _from_parts(real: Any, imaginary: Any) -> _Pair:
    import torch

    return _Pair(torch.stack(torch.broadcast_tensors(real, imaginary), -1))


def _polar(magnitude: Any, angle: Any) -> _Pair:
    return _from_parts(magnitude * angle.cos(), magnitude * angle.sin())


def _magnitude(x: _Pair) -> Any:
    return (x.real * x.real + x.imaginary * x.imaginary).sqrt()


def _conjugate(x: _Pair) -> _Pair:
    return _from_parts(x.real, -x.imaginary)


def _as_pair(x: Any) -> _Pair:
    """A tensor or a number as a complex one."""
    import torch

    if isinstance(x, _Pair):
        return x
    if not isinstance(x, torch.Tensor):
        x, y = torch.tensor(float(x.real)), torch.tensor(float(x.imag))
        return _from_parts(x, y)
    return _from_parts(x, torch.zeros_like(x))


def _is_real(x: Any) -> bool:
    return not isinstance(x, (_Pair, complex))


def _add(x: Any, y: Any, *, alpha: Any = 1) -> _Pair:
    one, other = _as_pair(x), _as_pair(y)
    return _from_parts(one.real + alpha * other.real, one.imaginary + alpha * other.imaginary)


def _subtract(x: Any, y: Any, *, alpha: Any = 1) -> _Pair:
    return _add(x, y, alpha=-alpha)


def _multiply(x: Any, y: Any) -> _Pair:
    if _is_real(x):
        x, y = y, x
    one = _as_pair(x)
    if _is_real(y):
        return _from_parts(one.real * y, one.imaginary * y)
    other = _as_pair(y)
    (a, b), (c, d) = (one.real, one.imaginary), (other.real, other.imaginary)
    return _from_parts(a * c - b * d, a * d + b * c)


def _divide(x: Any, y: Any) -> _Pair:
    one = _as_pair(x)
    if _is_real(y):
        return _from_parts(one.real / y, one.imaginary / y)
    other = _as_pair(y)
    square = other.real * other.real + other.imaginary * other.imaginary
    product = _multiply(one, _conjugate(other))
    return _from_parts(product.real / square, product.imaginary / square)
