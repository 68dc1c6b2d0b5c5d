"""Recurrent nodes of ONNX as the products and elementwise operators that they stand for.

``LSTM``, ``GRU`` and ``RNN`` are unrolled over their sequence, whose length is known. What the
inputs contribute to the gates is one product for all steps; a step has a product with the state
before it. The formulas and the order of gates are those of ONNX's operator specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune_tvm.networks.sources.onnx_nodes import KnownTensors, NodeWriter, replace_nodes

__all__ = ["unroll_recurrent"]

_LEAST_OPSET = 10
"""Slices take their bounds as inputs since."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_USUAL_ACTIVATIONS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
# Those that are operators of ONNX with the same parameters, and whether they take alpha and beta.
_ACTIVATIONS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "Softsign": (),
    "Softplus": (),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
# Of these activations, those of the gates and of what is new, inputs are clipped.
_CLIPPED = 2
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

Activation = Callable[[str], str]


def unroll_recurrent(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """A model without recurrent nodes; the same one where it has none.

    Args:
        model: The ``ModelProto``; it is not changed.
        shapes: The lengths of the axes of each input, by its name.

    Raises:
        UnsupportedWorkload: a node has no known sequence length, or a form that is not unrolled;
            names it.
    """

    def unroll(node: Any, known: KnownTensors, writer: NodeWriter) -> bool:
        _Unrolled(node, known, writer).write()
        return True

    return replace_nodes(model, shapes, _GATES, "unrolled", unroll)


@frozen
class _Weights:
    """One direction of a node: names of tensors.

    Attributes:
        inputs: ``[inputs, gates * hidden]``.
        states: ``[hidden, gates * hidden]``.
        bias: ``[gates * hidden]`` of inputs and states each; None for zeros.
        peepholes: ``[hidden]`` each, of the gates in, out and forget; None where there are none.
        activations: Those of the gates, of what is new, and of what is given out.
    """

    inputs: str
    states: str
    bias: tuple[str, str] | None
    peepholes: tuple[str, str, str] | None
    activations: Sequence[Activation]


class _Unrolled:
    """Writes one node."""

    def __init__(
        self,
        node: Any,
        known: KnownTensors,
        writer: NodeWriter,
    ) -> None:
        from onnx import helper

        self._node = node
        self._kind = str(node.op_type)
        self._opset = known.opset
        self._constants = known.constants
        self._writer = writer
        self._attributes = {it.name: helper.get_attribute_value(it) for it in node.attribute}
        self._gates = _GATES[self._kind]
        shape, element = known.types.get(node.input[0], ((), 0))
        weights = known.types.get(node.input[2], ((0,), 0))[0]
        self._hidden = int(self._attributes.get("hidden_size", 0) or weights[-1])
        if len(shape) != 3 or not all(shape) or not self._hidden:
            raise self._refused("the length of its sequence is known only when it runs")
        if known.opset < _LEAST_OPSET:
            raise self._refused(f"it is of opset {known.opset}; export the model with a later one")
        self._type = helper.tensor_dtype_to_np_dtype(element)
        self._is_batch_first = bool(self._attributes.get("layout", 0))
        batch_first = self._is_batch_first
        self._batch, self._steps = shape[:2] if batch_first else (shape[1], shape[0])
        direction = self._attributes.get("direction", b"forward").decode()
        if direction not in _DIRECTIONS:
            raise self._refused(f"direction {direction!r} is none of {', '.join(_DIRECTIONS)}")
        self._reversed = _DIRECTIONS[direction]
        self._check_lengths()

    def write(self) -> None:
        """Write nodes whose outputs have the names of this one's."""
        writer, data = self._writer, self._node.input[0]
        if self._is_batch_first:
            data = writer.transpose(data, (1, 0, 2))
        states = [self._first_states(number) for number in range(_STATES[self._kind])]
        outputs: list[list[str]] = []
        last: list[list[str]] = [[] for _ in states]
        for direction, is_reversed in enumerate(self._reversed):
            first = [None if state is None else state[direction] for state in states]
            found, final = self._direction(data, self._weights(direction), first, is_reversed)
            outputs.append(found)
            for named, state in zip(last, final, strict=True):
                named.append(state)
        self._give_out(outputs, last)

    def _give_out(self, outputs: Sequence[Sequence[str]], last: Sequence[Sequence[str]]) -> None:
        """Name the outputs that are read: those of all steps, ``[steps, directions, batch,
        hidden]``, and the last states, ``[directions, batch, hidden]``."""
        size = (self._batch, self._hidden)
        names = [*self._node.output, "", ""]
        if names[0]:
            sides = [self._joined(steps, 0, (1, 1, *size)) for steps in outputs]
            whole = (self._steps, 1, *size)
            self._give(names[0], self._joined(sides, 1, whole), (2, 0, 1, 3))
        for name, states in zip(names[1:], last, strict=False):
            if name:
                self._give(name, self._joined(states, 0, (1, *size)), (1, 0, 2))

    def _joined(self, parts: Sequence[str], axis: int, shape: Sequence[int]) -> str:
        """Tensors along an axis, each in a shape."""
        each = [self._writer.reshape(it, shape) for it in parts]
        return self._writer.op("Concat", *each, axis=axis) if len(each) > 1 else each[0]

    def _give(self, name: str, data: str, batch_first: Sequence[int]) -> None:
        """Let a tensor be an output, its axes in the node's order."""
        ordered = self._writer.transpose(data, batch_first) if self._is_batch_first else data
        self._writer.rename(ordered, name)

    def _direction(
        self, data: str, weights: _Weights, first: Sequence[str | None], is_reversed: bool
    ) -> tuple[list[str], Sequence[str]]:
        """The outputs of all steps in the order of the sequence, and the states after the last."""
        writer, width = self._writer, self._gates * self._hidden
        given = writer.op("MatMul", data, weights.inputs)
        bias = weights.bias
        if bias is not None:
            # What a GRU adds behind its reset gate stays with the states.
            apart = self._kind == "GRU" and self._resets_last
            given = writer.op("Add", given, bias[0] if apart else writer.add(*bias))
        steps = [""] * self._steps
        states: Sequence[str | None] = first
        order = range(self._steps)
        for step in reversed(order) if is_reversed else order:
            # The place is read: with bounds of its own each step would be another task.
            place = writer.constant(np.array([step], np.int64))
            one = writer.op("Gather", given, place, axis=0)
            one = writer.reshape(one, (self._batch, width))
            states = _CELLS[self._kind](self, one, states, weights)
            steps[step] = str(states[0])
        return steps, list(map(str, states))

    def _rnn(self, given: str, states: Sequence[str | None], weights: _Weights) -> Sequence[str]:
        writer, (before,) = self._writer, states
        total = given
        if before is not None:
            total = writer.op("Add", given, writer.op("MatMul", before, weights.states))
        return (weights.activations[0](total),)

    def _lstm(self, given: str, states: Sequence[str | None], weights: _Weights) -> Sequence[str]:
        writer, (before, cell) = self._writer, states
        total = given
        if before is not None:
            total = writer.op("Add", given, writer.op("MatMul", before, weights.states))
        of_gate, of_new, of_cell = weights.activations
        into, out, forget, new = self._split(total)
        look = weights.peepholes
        if look is not None and cell is not None:
            into = writer.op("Add", into, writer.op("Mul", look[0], cell))
            forget = writer.op("Add", forget, writer.op("Mul", look[2], cell))
        opened = of_gate(into)
        kept = writer.op("Mul", opened, of_new(new))
        if cell is not None:
            if self._attributes.get("input_forget", 0):
                left = writer.op("Sub", writer.constant(np.array(1, self._type)), opened)
            else:
                left = of_gate(forget)
            kept = writer.op("Add", writer.op("Mul", left, cell), kept)
        if look is not None:
            out = writer.op("Add", out, writer.op("Mul", look[1], kept))
        return writer.op("Mul", of_gate(out), of_cell(kept)), kept

    def _gru(self, given: str, states: Sequence[str | None], weights: _Weights) -> Sequence[str]:
        writer, (before,) = self._writer, states
        of_gate, of_new = weights.activations
        update, reset, new = self._split(given)
        if self._resets_last:
            of_state = self._state_part(before, weights)
            if of_state is not None:
                update = writer.op("Add", update, of_state[0])
                gate = of_gate(writer.op("Add", reset, of_state[1]))
                new = writer.op("Add", new, writer.op("Mul", gate, of_state[2]))
        elif before is not None:
            two, whole = 2 * self._hidden, 3 * self._hidden
            product = writer.op("MatMul", before, writer.slice(weights.states, 1, 0, two))
            of_state = self._split(product, 2)
            update = writer.op("Add", update, of_state[0])
            gate = of_gate(writer.op("Add", reset, of_state[1]))
            left = writer.op("Mul", gate, before)
            product = writer.op("MatMul", left, writer.slice(weights.states, 1, two, whole))
            new = writer.op("Add", new, product)
        kept, fresh = of_gate(update), of_new(new)
        if before is None:
            return (writer.op("Sub", fresh, writer.op("Mul", kept, fresh)),)
        change = writer.op("Mul", kept, writer.op("Sub", before, fresh))
        return (writer.op("Add", fresh, change),)

    def _state_part(self, before: str | None, weights: _Weights) -> list[str] | None:
        """What the state adds to each gate, biases included; None for nothing."""
        writer = self._writer
        total = None if before is None else writer.op("MatMul", before, weights.states)
        if weights.bias is not None:
            bias = writer.reshape(weights.bias[1], (1, -1))
            total = bias if total is None else writer.op("Add", total, bias)
        return None if total is None else self._split(total)

    def _split(self, data: str, parts: int | None = None) -> list[str]:
        """The gates, side by side in ``[batch, gates * hidden]``."""
        size = self._hidden
        count = self._gates if parts is None else parts
        return [self._writer.slice(data, 1, at * size, (at + 1) * size) for at in range(count)]

    @property
    def _resets_last(self) -> bool:
        """Whether a GRU's reset gate is applied after the product with the state."""
        return bool(self._attributes.get("linear_before_reset", 0))

    def _weights(self, direction: int) -> _Weights:
        writer, node = self._writer, self._node
        width = self._gates * self._hidden
        inputs, states = (
            writer.transpose(self._part(node.input[at], direction, (width, -1)), (1, 0))
            for at in (1, 2)
        )
        bias = peepholes = None
        if name := self._input(3):
            both = self._part(name, direction, (2 * width,))
            bias = writer.slice(both, 0, 0, width), writer.slice(both, 0, width, 2 * width)
        if self._kind == "LSTM" and (name := self._input(7)):
            size = self._hidden
            every = self._part(name, direction, (3 * size,))
            into, out, forget = (
                writer.slice(every, 0, at * size, (at + 1) * size) for at in range(3)
            )
            peepholes = into, out, forget
        return _Weights(inputs, states, bias, peepholes, self._activations(direction))

    def _part(self, name: str, direction: int, shape: Sequence[int]) -> str:
        """One direction of a tensor whose first axis is directions."""
        return self._writer.reshape(
            self._writer.slice(name, 0, direction, direction + 1), tuple(shape)
        )

    def _first_states(self, number: int) -> list[str] | None:
        """The first state of each direction, ``[batch, hidden]``; None for zeros."""
        name = self._input(5 + number)
        if not name:
            return None
        writer = self._writer
        if self._is_batch_first:
            name = writer.transpose(name, (1, 0, 2))
        shape = (self._batch, self._hidden)
        return [self._part(name, direction, shape) for direction in range(len(self._reversed))]

    def _input(self, position: int) -> str:
        """The name of an optional input; "" where it is left out."""
        given = self._node.input
        return str(given[position]) if position < len(given) else ""

    def _check_lengths(self) -> None:
        name = self._input(4)
        known = self._constants.get(name)
        if name and (known is None or (known != self._steps).any()):
            raise self._refused(
                "its sequences have lengths of their own; export the model without sequence_lens"
            )

    def _activations(self, direction: int) -> list[Activation]:
        usual = _USUAL_ACTIVATIONS[self._kind]
        named = [it.decode() for it in self._attributes.get("activations", ())]
        whole = named or [*usual] * len(self._reversed)
        constants = {
            key: list(self._attributes.get(f"activation_{key}", ())) for key in ("alpha", "beta")
        }
        made = []
        for place, name in enumerate(whole):
            known = next((it for it in _ACTIVATIONS if it.lower() == name.lower()), None)
            if known is None:
                raise self._refused(f"activation {name!r} is none of {', '.join(_ACTIVATIONS)}")
            given = {
                key: float(constants[key].pop(0)) for key in _ACTIVATIONS[known] if constants[key]
            }
            # As in ONNX Runtime, what the cell gives out is not clipped.
            clips = place % len(usual) < _CLIPPED
            made.append(self._activation(known, given, clips))
        first = direction * len(usual)
        return made[first : first + len(usual)]

    def _activation(self, kind: str, constants: Mapping[str, float], clips: bool) -> Activation:
        writer, most = self._writer, self._attributes.get("clip") if clips else None

        def apply(data: str) -> str:
            if most is not None:
                data = self._clipped(data, float(most))
            return writer.op(kind, data, **constants)

        return apply

    def _clipped(self, data: str, most: float) -> str:
        writer = self._writer
        if self._opset < 11:
            return writer.op("Clip", data, min=-most, max=most)
        bounds = [writer.constant(np.array(it, self._type)) for it in (-most, most)]
        return writer.op("Clip", data, *bounds)

    def _refused(self, why: str) -> UnsupportedWorkload:
        name = self._node.name or self._node.output[0]
        return UnsupportedWorkload(f"node {name!r} ({self._kind}): {why}")


_CELLS: Mapping[str, Callable[..., Sequence[str]]] = {
    "LSTM": _Unrolled._lstm,
    "GRU": _Unrolled._gru,
    "RNN": _Unrolled._rnn,
}
