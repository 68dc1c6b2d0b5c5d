"""Loops around one stage, with what is computed inside them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from autotune.backends import InvalidSchedule
from autotune.expressions import affine_form
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["Loops", "copy_name", "inlined_behind", "parallel_sizes", "sizes_of", "tiled_loops"]


@define
class Loops:
    """The loops of one stage, made from the outermost to the innermost.

    Stages that are inlined into it get copies of their own in its outermost loop, which follow it
    into the others: in vectors they are computed in registers.

    Attributes:
        script: Where to write.
        plan: The schedule.
        name: The stage.
    """

    script: Script
    plan: Plan
    name: str
    _inlined: list[str] = field(init=False)
    _has_copies: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._inlined = inlined_behind(self.plan, self.name)

    def carry(
        self, sizes: Sequence[int], loop: str, followers: Sequence[str], *, parallel: bool = False
    ) -> None:
        """Make loops that several stages share.

        Args:
            sizes: A tile size for each dimension of the stage's operation; 0 leaves it whole.
            loop: Name of the innermost loop.
            followers: Attributes of what moves into the loops, each after what reads it.
            parallel: Whether it is one loop for all cores, over all dimensions.
        """
        target = self.script.match(tag("stage", self.name))
        if parallel:
            made = self.script.tile_parallel(target, sizes)
        else:
            made = self.script.tile(target, sizes)[-1]
        self.script.annotate(made, "loop", f"{self.name}.{loop}")
        if followers or (self._inlined and not self._has_copies):
            # A part of a stage that is read is a slice, of which the loop reads a slice.
            self.script.patterns(
                self.script.match_kind("func.func"),
                ["tensor.merge_consecutive_insert_extract_slice"],
            )
        for follower in followers:
            self._fuse(follower, loop)

    def add(self, sizes: Sequence[int], loop: str, *, parallel: bool = False) -> None:
        """Make loops of the stage alone, as :meth:`carry` does, and have its copies follow."""
        self.carry(sizes, loop, (), parallel=parallel)
        self.enter(loop)

    def enter(self, loop: str) -> None:
        """Have the copies of what is inlined follow into a loop that is there."""
        for name in self._inlined:
            copy = copy_name(name, self.name)
            fused = self._fuse(tag("stage", copy if self._has_copies else name), loop)
            self.script.annotate(fused, "stage", copy)
            self.script.merge()
        self._has_copies = True

    def _fuse(self, follower: str, loop: str) -> str:
        around = self.script.match(tag("loop", f"{self.name}.{loop}"))
        fused = self.script.fuse_apart(self.script.match(follower), around)
        # What is read twice is there twice.
        self.script.merge()
        return fused


def copy_name(inlined: str, consumer: str) -> str:
    """The stage, in attributes, of the copy of an inlined stage in a consumer's loops."""
    return f"{inlined}>{consumer}"


def inlined_behind(plan: Plan, name: str) -> list[str]:
    """Inlined stages that a stage reads, directly or through others, each after its readers.

    Raises:
        InvalidSchedule: one is read at indices that are not affine.
    """
    found: list[str] = []
    for stage in reversed(plan.workload.stages):
        readers = {user.name for user in plan.workload.consumers(stage.name)}
        readers &= {name, *found}
        if not plan.stages[stage.name].inlined or not readers:
            continue
        for reader in readers:
            _check_reads(plan.stages[reader], stage.name)
        found.append(stage.name)
    return found


def _check_reads(reader: StagePlan, read: str) -> None:
    for load in reader.stage.loads:
        if load.tensor == read and None in [affine_form(index) for index in load.indices]:
            raise InvalidSchedule(
                f"stage {read!r} cannot be computed inside {reader.stage.name!r}, "
                "which reads it at indices that are not affine"
            )


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
