"""From the nodes of torch's graphs to values of a graph; some nodes run graphs.

Which operators draw random numbers, torch says itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from attrs import field, frozen
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload, one_line
from autotune.networks.graph import Value, input_value, loop, reshape, select
from autotune.networks.graph.graph import named_after
from autotune.networks.readers.torch.call import Call, Item, Result
from autotune.networks.readers.torch.operators import OPERATORS
from autotune.networks.readers.torch.operators.complex_pairs import (
    Pair,
    complex_operator,
    is_complex,
)
from autotune.networks.readers.torch.program import stored_value, type_name

__all__ = ["GraphReader", "described", "first_drawing"]


# Operators that say something about their arguments, and compute nothing.
_SAYS = ("_assert_", "sym_constrain_range")
_MOST_EXPANSIONS = 12


@frozen(eq=False)
class GraphReader:
    """Reads the graph of a module of ``torch.fx``, and those inside it.

    Attributes:
        module: The module.
        depth: How many operators expanded into one another led here.
    """

    module: GraphModule
    depth: int = 0
    _items: dict[Node, Item] = field(factory=dict, init=False)
    _aliases: dict[Node, Node] = field(factory=dict, init=False)

    def outputs(self, inputs: Sequence[Item]) -> Item:
        """Outputs of the graph, in the form in which it returns them.

        Args:
            inputs: What its placeholders are, in order.

        Raises:
            UnsupportedWorkload: a node cannot be read; names it.
            InvalidValueError: a constant is not what a node may get.
        """
        left = iter(inputs)
        needed = _needed(self.module.graph)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._items[node] = next(left)
            elif node.op == "output":
                return self._read(node.args[0])
            elif node in needed:
                self._items[node] = self._result(node)
        raise InvalidValueError("a graph returns nothing")

    def _result(self, node: Node) -> Item:
        # Nodes of an operator that was expanded have names that nobody knows.
        name = (
            str(getattr(node.target, "__name__", node.target)) if self.depth else described(node)
        )
        try:
            with named_after("" if self.depth else node.name):
                found = self._computed(node)
        except (InvalidValueError, UnsupportedWorkload) as error:
            raise type(error)(f"{name}: {error}") from error
        except AutotuneError as error:
            raise UnsupportedWorkload(f"{name}: {error}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise UnsupportedWorkload(
                f"{name}: this form of it is not supported ({one_line(str(error))})"
            ) from error
        return found.named(node.name) if isinstance(found, Value) else found

    def _computed(self, node: Node) -> Item:
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        if node.op != "call_function":
            raise UnsupportedWorkload(f"nodes of kind {node.op} are not supported")
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        if isinstance(node.target, torch._ops.OpOverload):
            return self._called(node, args, kwargs)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._of_graphs(node, args, kwargs)
        if node.target is operator.getitem:
            return _part(node, *args)
        if any(isinstance(it, Value) for it in args):
            raise UnsupportedWorkload("it computes a number from a tensor")
        return node.target(*args, **kwargs)

    def _attribute(self, path: str) -> Item:
        owner, _, name = path.rpartition(".")
        held = getattr(self.module.get_submodule(owner), name)
        return stored_value(held, name) if isinstance(held, torch.Tensor) else held

    def _read(self, item: Any) -> Any:
        """Value that an argument of a node stands for."""
        if isinstance(item, Node):
            return self._items[self._root(item)]
        if isinstance(item, (list, tuple)):
            return [self._read(it) for it in item]
        if isinstance(item, dict):
            return {key: self._read(it) for key, it in item.items()}
        if isinstance(item, slice):
            return slice(*(self._read(it) for it in (item.start, item.stop, item.step)))
        return item

    def _root(self, node: Node) -> Node:
        while node in self._aliases:
            node = self._aliases[node]
        return node

    def _called(self, node: Node, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Item:
        target: Any = node.target
        name = target._schema.name.split("::")[-1]
        if any(map(name.startswith, _SAYS)):
            return None
        if draws(node):
            raise UnsupportedWorkload(
                "it draws random numbers, and a network computes the same in every call; call "
                "eval() on the model, or let it take them as an input"
            )
        call = _call(node, name, args, kwargs)
        found = self._operator(call, node)
        if isinstance(found, Value) or found is None:
            _check(found, call)
        written = _written(node)
        if written is not None:
            self._items[self._root(written)] = found
            self._aliases[node] = written
        return found

    def _operator(self, call: Call, node: Node) -> Item:
        if is_complex(call):
            rule = complex_operator(call.kind)
            return self._expanded(node, call) if rule is None else rule(call)
        functional = call.kind
        if functional not in OPERATORS and _written(node) is not None:
            functional = functional.removesuffix("_")
        if functional in OPERATORS and node.target.namespace in ("aten", "prims"):
            found = OPERATORS[functional](call if functional == call.kind else _renamed(call))
            if found is not NotImplemented:
                return found
        return self._expanded(node, call)

    def _expanded(self, node: Node, call: Call) -> Item:
        """Graph of a node in terms of other operators."""
        named = is_complex(call) and call.kind in OPERATORS
        if named or self.depth >= _MOST_EXPANSIONS:
            of_what = " of complex numbers" if named else ""
            raise UnsupportedWorkload(f"the operator{of_what} is not supported")
        body = expanded(node.target, _examples(node.args), _examples(node.kwargs))
        given = _leaves((self._read(node.args), self._read(node.kwargs)))
        values = [it for it in given if isinstance(it, (Value, Pair))]
        return GraphReader(body, self.depth + 1).outputs(values)

    def _of_graphs(self, node: Node, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Item:
        name = getattr(node.target, "name", lambda: str(node.target))()
        if name not in HIGHER_ORDER:
            raise UnsupportedWorkload("the operator is not supported")

        def run(module: Any, inputs: Sequence[Item]) -> Item:
            return GraphReader(module, self.depth).outputs(inputs)

        return HIGHER_ORDER[name](run, args, kwargs)


def _part(node: Node, whole: Any, place: Any) -> Item:
    """A result of an operator that has several."""
    if isinstance(whole, list) and isinstance(place, int) and place >= len(whole):
        raise UnsupportedWorkload(f"result {place} of {described(node.args[0])} is not computed")
    return whole[place]


def _needed(graph: Graph) -> set[Node]:
    """The nodes that the output depends on, and those that write."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found or _written(node) is not None:
            found.add(node)
            found.update(node.all_input_nodes)
    return found


def _written(node: Node) -> Node | None:
    """The first operand of a node that writes into it."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    for argument, given in zip(node.target._schema.arguments, node.args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return given if isinstance(given, Node) else None
    return None


def _call(node: Node, name: str, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Call:
    target: Any = node.target
    wanted = target._schema.arguments
    given = {it.name: it.default_value for it in wanted if it.has_default_value()}
    ordered = {it.name: value for it, value in zip(wanted, args, strict=False)}
    found = {**ordered, **kwargs}
    arguments = {it.name: _plain(found.get(it.name, given.get(it.name))) for it in wanted}
    results = node.meta.get("val")
    first = next((it for it in node.all_input_nodes), None)
    value = None if first is None else first.meta.get("val")
    strides = tuple(value.stride()) if isinstance(value, torch.Tensor) else ()
    each = results if isinstance(results, (list, tuple)) else [results]
    return Call(name, target._overloadname, arguments, tuple(map(_result_of, each)), strides)


def _renamed(call: Call) -> Call:
    """The call of the operator that an operator in place is named after."""
    name = call.kind.removesuffix("_")
    return Call(name, call.overload, call.arguments, call.results, call.strides)


def _plain(item: Any) -> Any:
    """An argument without objects of torch."""
    if isinstance(item, torch.dtype):
        return str(item).removeprefix("torch.")
    if isinstance(item, (list, tuple)):
        return [_plain(it) for it in item]
    if isinstance(item, torch.SymInt):
        raise UnsupportedWorkload("it depends on a number that is known when it runs only")
    return item


def _result_of(value: Any) -> Result | None:
    if not isinstance(value, torch.Tensor):
        return None
    for axis in value.shape:
        if not isinstance(axis, int):
            raise UnsupportedWorkload(
                "its result has a shape that depends on data, and a network's are fixed; choose "
                "by torch.where, or by a number of elements that is known"
            )
    if value.is_complex():
        return Result(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return Result(tuple(value.shape), type_name(value.dtype))


def _check(found: Value | None, call: Call) -> None:
    """Compare with what torch says: what differs would be computed as something else."""
    wanted = call.results[0] if call.results else None
    if found is None or wanted is None:
        return
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        raise UnsupportedWorkload(
            f"this form of it is not supported (it is read as {found.dtype}{list(found.shape)}, "
            f"and not {wanted.dtype}{list(wanted.shape)})"
        )


def _examples(item: Any) -> Any:
    """Examples of arguments as torch has them."""
    return torch.fx.node.map_arg(item, lambda node: node.meta["val"])


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, (list, tuple)):
        for it in item:
            yield from _leaves(it)
    elif isinstance(item, dict):
        for it in item.values():
            yield from _leaves(it)
    else:
        yield item


def described(node: Node) -> str:
    """A node's name, operator, and the module that it is in."""
    name = getattr(node.target, "__name__", str(node.target))
    stack = node.meta.get("nn_module_stack") or {}
    path = [path for path, _ in stack.values() if path][-1:]
    inside = f" in {path[0]!r}" if path else ""
    return f"node {node.name!r} ({name}{inside})"


@cache
def _others() -> Mapping[Any, Any]:
    """Decompositions of torch for operators that are not read as they are."""
    return {
        target: rule
        for target, rule in torch._decomp.decomposition_table.items()
        if isinstance(target, OpOverload) and target._schema.name.split("::")[-1] not in OPERATORS
    }


def _decompositions(target: Any) -> dict[Any, Any]:
    """Add to those that of an operator itself, where torch has one."""
    table = torch._decomp.decomposition_table
    return {**_others(), **({target: table[target]} if target in table else {})}


def expanded(target: Any, args: Any, kwargs: Any) -> GraphModule:
    """The graph of a call; its inputs are the tensors among the arguments, in order.

    Args:
        target: The operator.
        args: Its arguments, with tensors as torch traces with them.
        kwargs: Those by name.

    Raises:
        UnsupportedWorkload: torch has nothing to say of it.
    """
    leaves, form = tree_flatten((list(args), dict(kwargs)))
    # Numbers of other types are other calls, even where they are equal.
    return _expansion(target, tuple((type(it), _described_leaf(it)) for it in leaves), form)


@frozen
class _Layout:
    """A tensor that a call is traced with."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def _described_leaf(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return _Layout(tuple(leaf.shape), leaf.stride(), leaf.dtype)


@lru_cache(maxsize=256)
def _expansion(target: Any, leaves: tuple[tuple[type, Any], ...], form: Any) -> GraphModule:
    """Expand as :func:`expanded`: a network has calls of one form many times."""
    layouts = [leaf for _, leaf in leaves if isinstance(leaf, _Layout)]

    def call(*tensors: torch.Tensor) -> Any:
        left = iter(tensors)
        given = [next(left) if isinstance(it, _Layout) else it for _, it in leaves]
        called, named = tree_unflatten(given, form)
        return target(*called, **named)

    with FakeTensorMode(allow_non_fake_inputs=True):
        fakes = [torch.empty_strided(it.shape, it.strides, dtype=it.dtype) for it in layouts]
    try:
        with torch.no_grad():
            found = make_fx(
                torch.func.functionalize(call), _decompositions(target), tracing_mode="fake"
            )(*fakes)
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"the operator is not supported ({one_line(str(error))})"
        ) from error
    calls = [node for node in found.graph.nodes if node.op == "call_function"]
    if any(node.target is target for node in calls):
        raise UnsupportedWorkload("the operator is not supported")
    return found


_MOST_TRIPS = 1 << 12

Run = Callable[[Any, Sequence[Item]], Item]
"""From a graph and what it is given to what it returns."""


def _inside(skipped: int) -> Callable[[Run, Sequence[Item], Mapping[str, Item]], Item]:
    """A graph that is run as it is, behind so many arguments and the graph itself."""

    def rule(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
        return run(args[skipped], args[skipped + 1 :])

    return rule


def _cond(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """Both cases, of which one is chosen."""
    condition, yes, no, operands = args
    if isinstance(condition, Value) and condition.constant is not None:
        condition = bool(condition.constant.reshape(-1)[0])
    if not isinstance(condition, Value):
        return run(yes if condition else no, operands)
    sides = [run(it, operands) for it in (yes, no)]
    truth = reshape(condition, ())
    return [_chosen(truth, one, other) for one, other in zip(*sides, strict=True)]


def _chosen(truth: Value, one: Item, other: Item) -> Item:
    if one is None and other is None:
        return None
    return select(truth, one, other)


def _scan(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """A step along the first axis of some tensors."""
    body, states, slices, *more = args
    fixed = more[-1] if more else []

    def step(
        old: Sequence[Value], each: Sequence[Value], known: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        found = list(run(body, [*old, *each, *known]))
        return found[: len(old)], found[len(old) :]

    last, kept = loop(step, slices[0].shape[0], states, slices, fixed)
    return [*last, *kept]


def _while(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """A loop of as many steps as its condition says of constants, such as a counter."""
    condition, body, states, *more = args
    fixed = more[-1] if more else []
    trips = _trips(run, condition, body, states, fixed)

    def step(
        old: Sequence[Value], _slices: Sequence[Value], known: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        return list(run(body, [*old, *known])), []

    return list(loop(step, trips, states, fixed=fixed)[0]) if trips else list(states)


def _trips(
    run: Run, condition: Item, body: Item, states: Sequence[Value], fixed: Sequence[Value]
) -> int:
    """Number of a loop's trips, found from those of its states that are constant."""
    for trips in range(_MOST_TRIPS + 1):
        (goes_on,) = _listed(run(condition, [*states, *fixed]))
        if isinstance(goes_on, Value):
            if goes_on.constant is None:
                raise UnsupportedWorkload(
                    "how often it runs is known when it runs only; use a loop of a fixed number "
                    "of steps"
                )
            goes_on = bool(goes_on.constant.reshape(-1)[0])
        if not goes_on:
            return trips
        after = _listed(run(body, [*states, *fixed]))
        states = [
            it if it.constant is not None else input_value("state", it.shape, it.dtype)
            for it in after
        ]
    raise UnsupportedWorkload(f"it runs more than {_MOST_TRIPS} times")


def _listed(found: Item) -> list[Item]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


HIGHER_ORDER: Mapping[str, Callable[[Run, Sequence[Item], Mapping[str, Item]], Item]] = {
    "wrap_with_set_grad_enabled": _inside(1),
    "wrap_with_autocast": _inside(4),
    "cond": _cond,
    "scan": _scan,
    "while_loop": _while,
}


_IN_TRAINING = ("train", "training")
_PROBABILITIES = ("dropout_p", "dropout", "p")


def draws(node: Any) -> bool:
    """Tell if a call of an operator draws random numbers.

    Operators that do are tagged as such by torch, those of third parties too. Some draw only in
    training, or where something is dropped.
    """
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = _arguments_of(node)
    if any(given.get(name) is False for name in _IN_TRAINING):
        return False
    never = [given[name] == 0 for name in _PROBABILITIES if given.get(name) is not None]
    return not (never and all(never))


def first_drawing(module: GraphModule) -> Any:
    """The first node of a graph, or of one inside it, that draws random numbers; else None."""
    return next(filter(_draws_anywhere, _calls(module)), None)


def _draws_anywhere(node: Any) -> bool:
    if isinstance(node.target, OpOverload):
        return draws(node)
    # An operator of operators, such as one that keeps the state of a generator.
    tag = torch.Tag.nondeterministic_seeded
    return any(isinstance(it, OpOverload) and tag in it.tags for it in node.args)


def _calls(module: GraphModule) -> Iterator[Any]:
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from (node for node in part.graph.nodes if node.op == "call_function")


def _arguments_of(node: Any) -> dict[str, Any]:
    """Arguments of a call by name, with its operator's defaults where nothing is given."""
    assert isinstance(node.target, OpOverload)
    wanted = node.target._schema.arguments
    found = {it.name: it.default_value for it in wanted if it.has_default_value()}
    found |= {it.name: value for it, value in zip(wanted, node.args, strict=False)}
    return found | dict(node.kwargs)
