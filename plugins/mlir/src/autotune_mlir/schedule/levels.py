"""Loops around one stage, with the producers computed inside them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from autotune.ir.workloads import Axis
from autotune_mlir.schedule.lanes import extracts, reads_part
from autotune_mlir.schedule.padding import assume_inside, is_padding
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "Loops",
    "copy_name",
    "inlined_behind",
    "is_extracted",
    "parallel_sizes",
    "sizes_of",
    "tiled_loops",
]


@define
class Loops:
    """The loops of one stage, made from the outermost to the innermost.

    Stages that are inlined into it get copies of their own in its outermost loop, which follow it
    into the others: in vectors they are computed in registers. Loops that several stages share
    are made before.

    Attributes:
        script: Where to write.
        plan: The schedule.
        name: The stage.
    """

    script: Script
    plan: Plan
    name: str
    _inlined: list[str] = field(init=False)
    _paddings: list[str] = field(init=False)
    _has_copies: bool = field(init=False, default=False)
    _innermost: str | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        stages, workload = self.plan.stages, self.plan.workload
        inlined = inlined_behind(self.plan, self.name)
        self._paddings = [name for name in inlined if is_padding(stages[name].stage, workload)]
        self._inlined = [name for name in inlined if name not in self._paddings]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of the operation, in the order of its dimensions."""
        stage = self.plan.stages[self.name].stage
        return (*stage.spatial_axes, *stage.reduce_axes)

    def share(
        self, sizes: Sequence[int], loop: str, followers: Sequence[str], *, parallel: bool = False
    ) -> None:
        """Make loops around several stages.

        Args:
            sizes: A tile size for each dimension of the stage's operation; 0 leaves it whole.
            loop: Name of the innermost loop.
            followers: Attributes of what moves into the loops, each after what reads it.
            parallel: Whether it is one loop for all cores, over all dimensions.
        """
        self._make(sizes, loop, parallel=parallel)
        self._read_directly()
        for follower in followers:
            self._fuse(follower)

    def add(self, sizes: Sequence[int], loop: str, *, parallel: bool = False) -> None:
        """Make loops around the stage alone; see :meth:`share`."""
        self._make(sizes, loop, parallel=parallel)
        self._follow()

    def enter(self, made: str, loop: str) -> None:
        """Continue inside of an existing loop around the stage alone.

        Args:
            made: Its handle.
            loop: Its name.
        """
        self._name(made, loop)
        self._follow()

    def finish(self) -> None:
        """Pad what is padded in the innermost loop: tiles of padding cannot be tiled again."""
        if self._innermost is None or not self._paddings:
            return
        self._read_directly()
        self._copy(self._paddings, has_copies=False)
        assume_inside(self.script)

    def _make(self, sizes: Sequence[int], loop: str, *, parallel: bool) -> None:
        target = self.script.match(tag("stage", self.name))
        if parallel:
            made = self.script.tile_parallel(target, sizes)
        else:
            made = self.script.tile(target, sizes)[-1]
        self._name(made, loop)

    def _name(self, made: str, loop: str) -> None:
        self._innermost = f"{self.name}.{loop}"
        self.script.annotate(made, "loop", self._innermost)

    def _follow(self) -> None:
        if not self._inlined:
            return
        if not self._has_copies:
            self._read_directly()
        self._copy(self._inlined, has_copies=self._has_copies)
        self._has_copies = True

    def _copy(self, names: Sequence[str], *, has_copies: bool) -> None:
        for name in names:
            copy = copy_name(name, self.name)
            if not has_copies and self._is_read_in_parts(name):
                # By stages that were copied after the loop was made.
                self._read_directly()
            fused = self._fuse(tag("stage", copy if has_copies else name))
            self.script.annotate(fused, "stage", copy)
        # What was inlined must not be read by what it was inlined for.
        self.script.drop_unused()

    def _is_read_in_parts(self, name: str) -> bool:
        workload = self.plan.workload
        return any(reads_part(it, name, workload) for it in workload.consumers(name))

    def _read_directly(self) -> None:
        """Have the loop read slices of stages, and not slices of slices."""
        self.script.patterns(
            self.script.match_kind("func.func"), ["tensor.merge_consecutive_insert_extract_slice"]
        )

    def _fuse(self, follower: str) -> str:
        assert self._innermost is not None
        around = tag("loop", self._innermost)
        fused = self.script.fuse_apart(self.script.match(follower), self.script.match(around))
        # What is read twice is there twice.
        self.script.merge(self.script.match(around))
        return fused


def copy_name(inlined: str, consumer: str) -> str:
    """The stage, in attributes, of the copy of an inlined stage in a consumer's loops."""
    return f"{inlined}>{consumer}"


def inlined_behind(plan: Plan, name: str) -> list[str]:
    """Inlined stages that are computed inside a stage that reads them, each after its readers.

    They are read directly or through each other. A stage of which single elements are read, at
    indices that are computed or may be outside, is not among them: it is computed before.
    """
    found: list[str] = []
    for stage in reversed(plan.workload.stages):
        users = plan.workload.consumers(stage.name)
        if not plan.stages[stage.name].inlined or is_extracted(plan, stage.name):
            continue
        if any(user.name in (name, *found) for user in users):
            found.append(stage.name)
    return found


def is_extracted(plan: Plan, name: str) -> bool:
    """Tell if single elements of a stage are read, so that it is computed as a whole before."""
    workload = plan.workload
    return any(extracts(user, name, workload) for user in workload.consumers(name))


def sizes_of(own: StagePlan, *loops: str) -> list[int]:
    """Tile sizes for loops of different axes of a stage: 0 where they do not tile."""
    names = [axis.name for axis in (*own.stage.spatial_axes, *own.stage.reduce_axes)]
    sizes = dict.fromkeys(names, 0)
    for loop in loops:
        sizes[own.axis_of(loop)] = own.tile_inside(loop)
    return list(sizes.values())


def parallel_sizes(own: StagePlan) -> list[int]:
    """Tile sizes for the loops that run on all cores, or nothing if these are one iteration."""
    if all(own.extent(loop) == 1 for loop in own.parallel):
        return []
    return sizes_of(own, *own.parallel)


def tiled_loops(own: StagePlan) -> list[str]:
    """Loops that run on one core, without those of one iteration and without the lanes."""
    return [
        loop
        for loop in own.order
        if loop not in own.parallel and loop != own.vector and own.extent(loop) > 1
    ]
