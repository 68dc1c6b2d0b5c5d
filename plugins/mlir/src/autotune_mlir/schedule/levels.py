"""Loops around one stage, with the producers computed inside them, and what these pad."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from autotune.ir.expressions import AffineForm, Load, affine_form
from autotune.ir.workloads import Axis, Stage, Workload, padding_of_stage
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "Loops",
    "assume_inside",
    "copy_name",
    "extracts",
    "inlined_behind",
    "is_extracted",
    "is_padding",
    "is_shifted",
    "pad_stage",
    "parallel_sizes",
    "reads_boxes",
    "sizes_of",
    "split_padding",
    "tiled_loops",
    "vectorize_padding",
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


def extracts(stage: Stage, tensor: str, workload: Workload) -> bool:
    """Tell if a stage reads a tensor element by element: there is no part of it that it needs."""
    return any(gather.tensor == tensor for gather in stage.gathers) or any(
        _is_extracted(stage, load, workload) for load in stage.loads if load.tensor == tensor
    )


def reads_boxes(stage: Stage, workload: Workload) -> bool:
    """Return whether the operands of a stage can be read by vectors.

    The part that a tile reads of each of them is then a box; other reads are element by element.
    """
    return all(
        _is_extracted(stage, load, workload) or _is_box(stage, forms)
        for load, forms in ((load, _forms(load)) for load in stage.loads)
        if forms is not None
    )


def reads_part(stage: Stage, tensor: str, workload: Workload) -> bool:
    """Return whether a stage reads a part of a tensor, of which nothing else is needed for it."""
    shape = workload.tensors[tensor].shape
    for load in stage.loads:
        forms = _forms(load) if load.tensor == tensor else None
        for form, extent in zip(forms or (), shape, strict=forms is not None):
            if form.bounds(stage.extents) != (0, extent - 1):
                return True
    return False


def _is_extracted(stage: Stage, load: Load, workload: Workload) -> bool:
    forms = _forms(load)
    if forms is None:
        return True
    for form, extent in zip(forms, workload.tensors[load.tensor].shape, strict=True):
        low, high = form.bounds(stage.extents)
        if low < 0 or high >= extent or min(form.coefficients.values(), default=1) < 0:
            return True
    # MLIR makes no vectors of an operand with more dimensions than there are axes.
    is_part = _is_box(stage, forms) and len(forms) <= len(stage.axes)
    return not stage.reduce_axes and not is_part


def _is_box(stage: Stage, forms: list[AffineForm]) -> bool:
    """Return whether every index is one axis or none, and no axis is the index twice."""
    return all(list(form.coefficients.values()) in ([], [1]) for form in forms) and all(
        sum(axis.name in form.coefficients for form in forms) <= 1 for axis in stage.axes
    )


def _forms(load: Load) -> list[AffineForm] | None:
    """The indices of a load; None where one is not affine."""
    forms = [affine_form(index) for index in load.indices]
    known = [form for form in forms if form is not None]
    return known if len(known) == len(forms) else None


def is_padding(stage: Stage, workload: Workload) -> bool:
    """Return whether a stage is a ``tensor.pad`` in the program."""
    return padding_of_stage(stage, workload) is not None


def is_shifted(stage: Stage, workload: Workload) -> bool:
    """Return whether a stage pads with a margin in front of the innermost dimension.

    It is computed in single elements: what a vector loads is not shifted.
    """
    padding = padding_of_stage(stage, workload)
    return padding is not None and padding.low[-1] > 0


def pad_stage(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a stage that pads, in parallel where the stage is.

    Args:
        script: Where to write.
        plan: The schedule.
        own: The stage. Its loops are in the order of its axes.
    """
    axes = [axis.name for axis in own.stage.spatial_axes]
    parallel = [0] * len(axes)
    for loop in own.parallel:
        parallel[axes.index(own.axis_of(loop))] = own.tile_inside(loop)
    if any(parallel):
        script.tile_parallel(script.match(tag("stage", own.stage.name)), parallel)
        assume_inside(script)
    split_padding(script, plan, own)


def split_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a tile that is padded, around vectors of its innermost dimension."""
    script.tile(script.match(tag("stage", own.stage.name)), _vector_sizes(plan, own))
    assume_inside(script)


def vectorize_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Turn what is padded into a load of which the lanes in the margins are masked."""
    sizes = _vector_sizes(plan, own)
    script.vectorize(script.match(tag("stage", own.stage.name)), f" vector_sizes {sizes}")


def _vector_sizes(plan: Plan, own: StagePlan) -> list[int]:
    """Extents of what is one vector: a part of the innermost dimension."""
    lanes = 1 if is_shifted(own.stage, plan.workload) else _lanes(plan, own)
    return [*[1] * (len(own.stage.spatial_axes) - 1), lanes]


def _lanes(plan: Plan, own: StagePlan) -> int:
    """Lanes of a stage that pads: its own, or those of the copy that it is computed in."""
    if own.vector is not None:
        return own.extent(own.vector)
    for stage in plan.stages.values():
        for packed in stage.packed:
            if own.inlined and packed.operand == own.stage.name:
                return packed.lanes
    return 1


def assume_inside(script: Script) -> None:
    """Drop the choice between a tile that pads and one that is nothing but margin.

    Tiles of a ``tensor.pad`` come with this choice. A tile that is nothing but margin copies an
    empty part of the tensor, which is right, too. What is left of the choice are casts, through
    which a reader of the tile would not be followed; they are simplified away. Other patterns
    would take a result that is put into tiles and taken out of them, of extents that are computed,
    for what was put in.
    """
    choices = script.match_kind("scf.if")
    script.add(
        f"transform.scf.take_assumed_branch {choices} take_else_branch : (!transform.any_op) -> ()"
    )
    function = script.match_kind("func.func")
    script.patterns(function, ["linalg.tiling_canonicalization"])
    script.merge(function)
