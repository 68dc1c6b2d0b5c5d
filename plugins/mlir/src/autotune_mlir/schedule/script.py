"""Writing a script of the transform dialect, an operation at a time.

Operations of the program are found by attributes and not by handles that are passed on: tiling and
fusing replace operations, and their copies keep the attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import define, field

__all__ = ["MAIN", "Script", "Tag", "module_of"]

MAIN = "__transform_main"
"""The sequence that `mlir-opt --transform-interpreter` applies."""

_ANY = "!transform.any_op"


Tag = tuple[str, str]
"""Kind and name of an attribute that operations of the program are found by.

The kind is ``stage`` for what computes a stage, ``init`` for what initialises its reduction,
``pack`` for what copies an operand, and the like; the name is the stage, or ``STAGE.OPERAND``.
"""


@define
class Script:
    """Lines of a ``transform.named_sequence``."""

    lines: list[str] = field(factory=list)
    _count: int = 0

    def handle(self) -> str:
        """A fresh name."""
        self._count += 1
        return f"%{self._count}"

    def add(self, line: str) -> None:
        """Append an operation."""
        self.lines.append(f"    {line}")

    def apply(self, operation: str, operands: Sequence[str], results: int = 1) -> list[str]:
        """Append an operation whose operands and results are all handles.

        Args:
            operation: Name and attributes, with ``{}`` in place of each operand.
            operands: Their handles.
            results: How many results it has.
        """
        made = [self.handle() for _ in range(results)]
        types = ", ".join([_ANY] * len(operands))
        outcome = ", ".join([_ANY] * results)
        if results == 0:
            self.add(f"{operation.format(*operands)} : {types}")
        else:
            outcome = f"({outcome})" if results > 1 else outcome
            self.add(f"{', '.join(made)} = {operation.format(*operands)} : ({types}) -> {outcome}")
        return made

    def match(self, kind: str, name: str) -> str:
        """All operations with an attribute."""
        attribute = f'autotune.{kind} = "{name}"'
        pattern = f"transform.structured.match attributes {{{{{attribute}}}}} in {{}}"
        return self.apply(pattern, ["%root"])[0]

    def function(self) -> str:
        """The function."""
        return self.match_kind("func.func")

    def match_kind(self, kind: str, inside: str = "%root") -> str:
        """All operations of a kind."""
        return self.apply(f'transform.structured.match ops{{{{["{kind}"]}}}} in {{}}', [inside])[0]

    def tile_parallel(self, target: str, sizes: Sequence[int]) -> str:
        """Tile into one ``scf.forall`` over all dimensions with a size; returns the loop."""
        text = f"transform.structured.tile_using_forall {{}} tile_sizes {list(sizes)}"
        return self.apply(text, [target], 2)[1]

    def tile(self, target: str, sizes: Sequence[int]) -> list[str]:
        """Tile into one ``scf.for`` for every size; returns the operation and the loops."""
        text = f"transform.structured.tile_using_for {{}} tile_sizes {list(sizes)}"
        return self.apply(text, [target], 1 + sum(size > 0 for size in sizes))

    def tile_with_producers(self, target: str, sizes: Sequence[int]) -> list[str]:
        """Tile as :meth:`tile`, and compute what the operation reads inside the loops."""
        text = f"transform.structured.fuse {{}} tile_sizes {list(sizes)} {{{{apply_cleanup}}}}"
        return self.apply(text, [target], 1 + sum(size > 0 for size in sizes))

    def fuse_into(self, producer: str, loop: str) -> str:
        """Compute a producer inside a loop that reads it; returns it there."""
        text = "transform.structured.fuse_into_containing_op {} into {}"
        return self.apply(text, [producer, loop], 2)[0]

    def split_reduction(self, target: str, sizes: Sequence[int]) -> list[str]:
        """Reduce into partial results, as many as the product of the reduced dimensions' sizes.

        Returns:
            What initialises the partial results, what computes them, what reduces them, and the
            outermost loop over dimensions with a size.
        """
        text = f"transform.structured.tile_reduction_using_for {{}} by tile_sizes = {list(sizes)}"
        return self.apply(text, [target], 4)

    def peel(self, loop: str) -> str:
        """Take the last, incomplete iteration out of a loop; returns the loop that is left."""
        kind = '!transform.op<"scf.for">'
        cast, left, last = (self.handle() for _ in range(3))
        self.add(f"{cast} = transform.cast {loop} : {_ANY} to {kind}")
        self.add(f"{left}, {last} = transform.loop.peel {cast} : ({kind}) -> ({_ANY}, {_ANY})")
        return left

    @contextmanager
    def each(self, handle: str) -> Iterator[str]:
        """Do what is written inside to each of several operations."""
        one = self.handle()
        self.add(f"transform.foreach {handle} : {_ANY} {{")
        self.add(f"^bb0({one}: {_ANY}):")
        yield one
        self.add("}")

    def producer(self, reader: str, operand: int) -> str:
        """Return the producer of an operand of an operation."""
        return self.apply(f"transform.get_producer_of_operand {{}}[{operand}]", [reader])[0]

    def together(self, handles: Sequence[str]) -> str:
        """Return a handle of what several are of."""
        if len(handles) == 1:
            return handles[0]
        text = f"transform.merge_handles deduplicate {', '.join(handles)} : {_ANY}"
        merged = self.handle()
        self.add(f"{merged} = {text}")
        return merged

    def merge(self, around: str) -> None:
        """Merge equal operations inside of an operation."""
        self.add(f"transform.apply_cse to {around} : {_ANY}")

    def drop_unused(self) -> None:
        """Drop operations whose results are unused."""
        self.add(f"transform.apply_dce to {self.function()} : {_ANY}")

    def assume_inside(self) -> None:
        """Drop the choice between a tile that pads and one that is nothing but margin.

        Tiles of a ``tensor.pad`` come with this choice. A tile that is nothing but margin copies
        an empty part of the tensor, which is right, too. What is left of the choice are casts,
        through which a reader of the tile would not be followed; they are simplified away. Other
        patterns would take a result that is put into tiles and taken out of them, of extents that
        are computed, for what was put in.
        """
        choices = self.match_kind("scf.if")
        self.add(f"transform.scf.take_assumed_branch {choices} take_else_branch : ({_ANY}) -> ()")
        function = self.function()
        self.patterns(function, ["linalg.tiling_canonicalization"])
        self.merge(function)

    def vectorize(self, target: str, options: str = "") -> None:
        """Turn an operation into operations on vectors of its whole size.

        Elements that its body extracts, at indices of its own, become vectors as well.
        """
        text = f"transform.structured.vectorize {{}}{options} {{{{vectorize_nd_extract}}}}"
        self.apply(text, [target], 0)

    def annotate(self, target: str, kind: str, name: str) -> None:
        """Give operations an attribute that they are found by."""
        value = self.handle()
        self.add(f'{value} = transform.param.constant "{name}" -> !transform.any_param')
        self.add(
            f'transform.annotate {target} "autotune.{kind}" = {value} : '
            f"{_ANY}, !transform.any_param"
        )

    def patterns(self, function: str, names: Sequence[str]) -> None:
        """Apply rewriting patterns until nothing changes."""
        inner = " ".join(f"transform.apply_patterns.{name}" for name in names)
        self.add(f"transform.apply_patterns to {function} {{ {inner} }} : {_ANY}")

    def clean(self, function: str, *more: str) -> None:
        """Canonicalise and drop what is computed twice."""
        self.patterns(function, ["canonicalization", *more])
        self.merge(function)


def module_of(sequences: Mapping[str, Script]) -> str:
    """A module with named sequences, and with one that applies them one after the other.

    Args:
        sequences: By name, in order.
    """
    main = Script()
    for name in sequences:
        main.add(f"transform.include @{name} failures(propagate) (%root) : ({_ANY}) -> ()")
    named = {MAIN: main, **sequences}
    texts = [_sequence(name, script) for name, script in named.items()]
    body = "\n".join(texts)
    return f"module attributes {{transform.with_named_sequence}} {{\n{body}\n}}\n"


def _sequence(name: str, script: Script) -> str:
    body = "\n".join([*script.lines, "    transform.yield"])
    root = f"%root: {_ANY} {{transform.readonly}}"
    return f"  transform.named_sequence @{name}({root}) {{\n{body}\n  }}"
