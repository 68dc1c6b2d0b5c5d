"""Operations become tasks: what is computed of a value, where that is computed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod

from attrs import define, evolve, field

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Stage, Tensor, Workload
from autotune.ir.workloads.composing import Part, composed
from autotune.networks.graph import Graph, Node, Requirement, Value, rewritten
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import spatial
from autotune.networks.passes.views import keeps_rows
from autotune.networks.passes.workload_forms import (
    Form,
    form_of,
    is_gathered_from,
    reads_each_once,
    reads_in_place,
    reads_in_rows,
    reshaped_indices,
    scheduled_as_one,
    with_bodies,
)
from autotune.spaces.rules.inline import nodes_if_inlined
from autotune.targets import Target

__all__ = ["Flow", "fuse"]

_MOST_INPUTS = 16
_MOST_NODES = 512
_MOST_NAMES = 4


def fuse(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Make one workload of those that are computed in one loop nest.

    Elementwise operations are computed in the tile of the reduction before them, reductions of
    rows with all that is made of these rows, and what only such a reduction reads inside of it;
    other operations on elements that follow each other are one. Nothing that is returned, or read
    by something else as well, is computed twice.

    Args:
        graph: A network.
        machine: What it is for.
    """
    before = _count(graph)
    changed, _ = with_bodies(graph, lambda one: _fused(one, machine))
    after = _count(changed)
    return changed, f"{before} programs, {after} left" if after != before else ""


def _count(graph: Graph) -> int:
    return sum(isinstance(node.operation, Workload) for node, _ in graph.runs)


def _fused(graph: Graph, machine: Target) -> tuple[Graph, int]:
    composer = _Composer(machine)
    groups = _Grouping(graph, composer).groups()
    ends = {id(group[-1]): group for group in groups if len(group) > 1}
    given: dict[int, tuple[Value, ...]] = {}

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        given[id(node)] = operands
        group = ends.get(id(node))
        return None if group is None else composer.joined(group, given)

    return (rewritten(graph, change, loops=False) if ends else graph), len(ends)


def _workload_of(node: Node) -> Workload:
    """Workload of a node; of a reshape, where its elements come from."""
    if isinstance(node.operation, Workload):
        return node.operation
    return _reshape(node.operands[0].shape, *node.results[0])


@lru_cache(maxsize=1024)
def _reshape(before: tuple[int, ...], shape: tuple[int, ...], dtype: str) -> Workload:
    """Sources of the elements of a reshape."""
    axes = spatial(shape)
    extents = {axis.name: axis.extent for axis in axes}
    indices = reshaped_indices([var(axis.name) for axis in axes], shape, before, extents)
    stage = Stage(Tensor("y", shape, dtype), axes, Load("x", indices))
    return Workload("reshape", (Tensor("x", before, dtype),), (stage,), ("y",))


@define(eq=False)
class _Composer:
    """Makes workloads of groups; of groups that are alike but for what they read, one for all.

    Attributes:
        machine: What they are for.
        made: By parts, whose operands are numbered: the workload of a group, None where it would
            not be one loop nest, and the numbers of what it reads.
    """

    machine: Target
    made: dict[Hashable, tuple[Workload | None, tuple[Hashable, ...]]] = field(factory=dict)

    def composed(
        self, group: Sequence[Node], given: dict[int, tuple[Value, ...]] | None = None
    ) -> tuple[Workload | None, tuple[Value, ...]]:
        """The workload of a group, None where it would not be one loop nest, and what it reads.

        Args:
            group: Nodes, each behind those that it reads.
            given: By node what it reads in place of its operands.
        """
        parts, read = _parts(group, given)
        if parts not in self.made:
            whole, numbers = composed(_name(group), parts)
            self.made[parts] = scheduled_as_one(whole, self.machine), numbers
        workload, numbers = self.made[parts]
        return workload, tuple(read[number] for number in numbers)

    def joined(
        self, group: Sequence[Node], given: dict[int, tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """The results of a group as one node."""
        workload, operands = self.composed(group, given)
        assert workload is not None
        place = {value.key: number for number, value in enumerate(operands)}
        checks: dict[Requirement, None] = {}
        for node in group:
            for it in node.requirements:
                number = place[given[id(node)][it.operand].key]
                checks[evolve(it, operand=number)] = None
        name = "+".join(dict.fromkeys(it.name for it in group if it.name))
        return results_of(Node(workload, operands, group[-1].results, tuple(checks), name))


def _parts(
    group: Sequence[Node], given: dict[int, tuple[Value, ...]] | None
) -> tuple[tuple[Part, ...], dict[Hashable, Value]]:
    """The parts of a group, whose operands are numbered, and what it reads by number."""
    numbers: dict[Hashable, int] = {}
    values: dict[Hashable, Value] = {}
    own = {id(node) for node in group}
    parts = []
    for node in group:
        read = node.operands if given is None else given[id(node)]
        reads, constants = [], set()
        for old, new in zip(node.operands, read, strict=True):
            value = old if old.node is not None and id(old.node) in own else new
            number = numbers.setdefault(value.key, len(numbers))
            values[number] = value
            reads.append(number)
            if value.constant is not None:
                constants.add(number)
        writes = numbers.setdefault((id(node), 0), len(numbers))
        parts.append(Part(_workload_of(node), tuple(reads), writes, frozenset(constants)))
    return tuple(parts), values


def _name(group: Sequence[Node]) -> str:
    names = [it.operation.name for it in group if isinstance(it.operation, Workload)]
    more = f"+{len(names) - _MOST_NAMES}" if len(names) > _MOST_NAMES else ""
    return "+".join(names[:_MOST_NAMES]) + more


class _Grouping:
    """Finds groups of nodes: each has one result that others read."""

    def __init__(self, graph: Graph, composer: _Composer) -> None:
        self.flow = Flow(graph)
        self.composer = composer
        self.group_of: dict[int, int] = {}
        self._forms: dict[int, Form] = {}
        self.members: dict[int, list[int]] = {}

    def groups(self) -> list[list[Node]]:
        """The groups, their nodes in order."""
        places = range(len(self.flow.nodes))
        usable = [it for it in places if self._is_usable(it)]
        for number in usable:
            if self._form(number).is_anchor and number not in self.group_of:
                self._extend(number)
        for first in [*self.members]:
            self._hand_over(first)
        for first in [*self.members]:
            self._prepend(first)
        for number in usable:
            if self._form(number).is_pointwise:
                self._merge(number)
        return [[self.flow.nodes[it] for it in sorted(them)] for them in self.members.values()]

    def _is_usable(self, number: int) -> bool:
        node = self.flow.nodes[number]
        operation = node.operation
        return isinstance(operation, Workload) and len(node.results) == 1

    def _workload(self, number: int) -> Workload:
        return _workload_of(self.flow.nodes[number])

    def _form(self, number: int) -> Form:
        if number not in self._forms:
            self._forms[number] = form_of(self._workload(number))
        return self._forms[number]

    def _nodes(self, numbers: Sequence[int]) -> list[Node]:
        return [self.flow.nodes[it] for it in sorted(numbers)]

    def _add(self, group: int, numbers: Sequence[int]) -> None:
        self.members[group] = sorted({*self.members.get(group, []), *numbers})
        for number in numbers:
            self.group_of[number] = group

    def _inner_reads(self, number: int, within: set[int]) -> list[tuple[int, str]]:
        """Reads of a node of others in a group: operand, and the input that it is."""
        node, inputs = self.flow.nodes[number], self._workload(number).inputs
        return [
            (at, inputs[at].name)
            for at, it in enumerate(node.operands)
            if it.node is not None and self.flow.place[id(it.node)] in within
        ]

    def _is_checked(self, number: int, within: set[int]) -> bool:
        """Return whether a node's operands have to be checked that would be computed within it."""
        checked = {it.operand for it in self.flow.nodes[number].requirements}
        return any(at in checked for at, _ in self._inner_reads(number, within))

    def _gathers(self, number: int, within: set[int]) -> bool:
        """Return whether a node reads others of a group where data says."""
        operation = self._workload(number)
        names = [name for _, name in self._inner_reads(number, within)]
        return any(is_gathered_from(operation, name) for name in names)

    def _extend(self, anchor: int) -> None:
        """Make a group of a reduction and what is computed of it."""
        self._add(anchor, [anchor])
        end: int | None = anchor
        while end is not None:
            meeting = self.flow.meeting(end)
            if meeting is None or not self._follows(anchor, end, meeting):
                return
            self._add(anchor, [*self.flow.between(end, meeting), meeting])
            end = meeting

    def _follows(self, anchor: int, end: int, meeting: int) -> bool:
        new = [*self.flow.between(end, meeting), meeting]
        if not all(self._is_usable(it) and it not in self.group_of for it in new):
            return False
        within = {*self.members[anchor], *new}
        if any(self._is_checked(it, within) or self._gathers(it, within) for it in new):
            return False
        in_place = all(
            self._form(it).is_pointwise
            and self.flow.nodes[it].results[0][0] == self.flow.nodes[end].results[0][0]
            and all(
                reads_in_place(self._workload(it), name)
                for _, name in self._inner_reads(it, within)
            )
            for it in new
        )
        if not in_place and any(self._form(it).is_product for it in within):
            return False
        if not in_place and not all(
            self._form(it).is_pointwise or self._form(it).is_anchor for it in new
        ):
            return False
        return self._fits(within)

    def _fits(self, numbers: set[int]) -> bool:
        workload, inputs = self.composer.composed(self._nodes([*numbers]))
        return len(inputs) <= _MOST_INPUTS and workload is not None

    def _hand_over(self, group: int) -> None:
        """Leave to what reads a group what makes more bytes of the fewest that it has computed.

        Numbers that are rounded to bytes are stored as these, and made numbers again where they
        are read.
        """
        tail, readers = self._widening(group), self.flow.readers[self.members[group][-1]]
        others = {self.group_of.get(it) for it in readers} - {group}
        if not tail or len(others) != 1 or (other := others.pop()) is None:
            return
        for number in tail:
            del self.group_of[number]
        kept, before = self.members[group], self.members[other]
        self.members[group] = [it for it in kept if it not in tail]
        for number in reversed(tail):
            if not self._precedes(number, other):
                self.members[other] = before
                self._add(group, tail)
                for it in before:
                    self.group_of[it] = other
                return
            self._add(other, [number])

    def _widening(self, group: int) -> list[int]:
        """The last operations of a group, where their operand is of the fewest bytes in it."""
        members = self.members[group]
        number, tail = members[-1], list[int]()
        while self._form(number).is_pointwise and len(tail) < _MOST_NAMES:
            tail.insert(0, number)
            reads = self._inner_reads(number, {*members})
            if len(reads) != 1:
                return []
            source = self.flow.nodes[number].operands[reads[0][0]]
            assert source.node is not None
            number = self.flow.place[id(source.node)]
            if len({*self.flow.readers[number]}) != 1:
                return []
            if _bytes(source.node) < _bytes(self.flow.nodes[members[-1]]):
                return tail
        return []

    def _prepend(self, group: int) -> None:
        """Add to a group what only it reads."""
        waiting = list(self.members[group])
        while waiting:
            number = waiting.pop()
            for source in dict.fromkeys(self.flow.sources(number)):
                if self._precedes(source, group):
                    self._add(group, [source])
                    waiting.append(source)

    def _precedes(self, source: int, group: int) -> bool:
        flow = self.flow
        if source in self.group_of or not self._is_usable(source) or flow.is_returned(source):
            return False
        members = {*self.members[group]}
        if not self._form(source).is_pointwise or not {*flow.readers[source]} <= members:
            return False
        within = {*members, source}
        readers = flow.readers[source]
        if any(self._is_checked(it, {source}) or self._gathers(it, {source}) for it in readers):
            return False
        size = _size(flow.nodes[source])
        for reader in readers:
            operation = self._workload(reader)
            reads = self._inner_reads(reader, {source})
            once = all(reads_each_once(operation, name, size) for _, name in reads)
            if self._form(reader).is_product or not once:
                return False
        operation = self._workload(source)
        if not all(reads_in_rows(operation, it.name) for it in operation.inputs):
            return False
        return self._fits(within)

    def _merge(self, number: int) -> None:
        """Make one of elementwise operations up to where the readers of a node meet."""
        new, end = [number], number
        while end == number or self.flow.nodes[end].is_reshape:
            meeting = self.flow.meeting(end)
            if meeting is None:
                return
            new += [*self.flow.between(end, meeting), meeting]
            end = meeting
        own = {self.group_of[it] for it in new if it in self.group_of}
        whole = sorted({*new, *(it for group in own for it in self.members[group])})
        if own and len(whole) == len(self.members[min(own)]):
            return
        if not all(self._is_movable(it) for it in whole):
            return
        if not self._is_cheap_to_join(whole):
            return
        for group in own:
            del self.members[group]
        self._add(whole[0], whole)

    def _is_movable(self, number: int) -> bool:
        """Return whether a node is elementwise, or a reshape that may be between such ones."""
        node = self.flow.nodes[number]
        if node.is_reshape:
            return keeps_rows(node.operands[0].shape, node.results[0][0])
        return self._is_usable(number) and self._form(number).is_pointwise

    def _is_cheap_to_join(self, whole: Sequence[int]) -> bool:
        within = {*whole}
        for reader in whole:
            if self._is_checked(reader, within) or self._gathers(reader, within):
                return False
            node, operation = self.flow.nodes[reader], self._workload(reader)
            for at, name in self._inner_reads(reader, within):
                source = node.operands[at].node
                assert source is not None
                number = self.flow.place[id(source)]
                if self._form(number).is_expensive and not reads_each_once(
                    operation, name, _size(source)
                ):
                    return False
        workload, inputs = self.composer.composed(self._nodes(whole))
        assert workload is not None
        return len(inputs) <= _MOST_INPUTS and nodes_if_inlined(workload) <= _MOST_NODES


def _bytes(node: Node) -> int:
    return _size(node) * element_type(node.results[0][1]).bytes


def _size(node: Node) -> int:
    shape, _ = node.results[0]
    return prod(shape)


class Flow:
    """Readers of the nodes of a graph, and where these readers meet.

    Nodes are numbers, in the order in which they run.

    Args:
        graph: A graph; bodies of its loops are not looked into.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: Sequence[Node] = graph.nodes
        self.place = {id(node): number for number, node in enumerate(self.nodes)}
        self._returned = {id(it.node) for it in graph.outputs.values() if it.node is not None}
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for number in range(len(self.nodes)):
            for source in dict.fromkeys(self.sources(number)):
                self.readers[source].append(number)
        self._meet: list[int] = [len(self.nodes)] * len(self.nodes)
        self._depth = [0] * (len(self.nodes) + 1)
        for number in reversed(range(len(self.nodes))):
            found = self._common(number)
            self._meet[number] = found
            self._depth[number] = self._depth[found] + 1

    def sources(self, number: int) -> list[int]:
        """The nodes that a node reads from, by operand; inputs and constants left out."""
        return [
            self.place[id(it.node)] for it in self.nodes[number].operands if it.node is not None
        ]

    def is_returned(self, number: int) -> bool:
        """Return whether the graph returns a result of a node."""
        return id(self.nodes[number]) in self._returned

    def meeting(self, number: int) -> int | None:
        """The first node through which all goes that is computed from a node; None: there is none.

        Of what the graph returns there is none either.
        """
        found = self._meet[number]
        return found if found < len(self.nodes) else None

    def between(self, number: int, meeting: int) -> list[int]:
        """The nodes on the way from a node to where its readers meet, in order."""
        found: set[int] = set()
        waiting = [it for it in self.readers[number] if it != meeting]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += [it for it in self.readers[here] if it != meeting]
        return sorted(found)

    def _common(self, number: int) -> int:
        exit_, readers = len(self.nodes), self.readers[number]
        if self.is_returned(number) or not readers:
            return exit_
        found = readers[0]
        for other in readers[1:]:
            while found != other:
                if self._depth[found] >= self._depth[other]:
                    found = exit_ if found == exit_ else self._meet[found]
                else:
                    other = self._meet[other]
        return found
