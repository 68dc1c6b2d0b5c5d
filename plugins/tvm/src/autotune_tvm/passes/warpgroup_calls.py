"""A warpgroup's products as statements of TVM: what is shared, begun, and waited for.

The functions are those of :mod:`autotune.lower.instructions.warpgroups`. Where nothing is fetched
ahead they follow one another; :mod:`autotune_tvm.passes.pipeline_fetches` takes them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize
from tvm.tirx import BufferRegion
from tvm.tirx.op import tvm_storage_sync

from autotune.lower.instructions.warpgroups import (
    SHARE,
    WAIT,
    WarpgroupTile,
    end_name,
    function_name,
    function_source,
    shared_source,
)
from autotune_tvm.passes.statements import at, region_at, with_fields

__all__ = ["Products", "find_products", "products", "share", "wait"]


def share() -> Any:
    """Products behind the next barrier may read what the thread has written."""
    return _called(SHARE, shared_source())


def wait() -> Any:
    """Wait until all products of the warpgroup have ended, so that their factors may change.

    Their sums are not to be read before :attr:`Products.end`.
    """
    return _called(WAIT, shared_source())


def products(tile: WarpgroupTile, sums: Any, factors: Sequence[Any]) -> Any:
    """All products of a tile, from what threads have stored to sums that may be read.

    Args:
        tile: The tile.
        sums: The buffer of the thread's results.
        factors: What the function takes of both factors.
    """
    own = sums.access_ptr("rw")
    begin = _called(function_name(tile), function_source(tile), own, *factors)
    end = _called(end_name(tile), shared_source(), own)
    barrier = tirx.Evaluate(tvm_storage_sync("shared"))
    # TVM puts a barrier around stores that follow, and knows nothing of calls that round.
    freed = [barrier] if tile.call.rounds_when_fetched else []
    return tirx.SeqStmt([share(), barrier, begin, end, *freed])


@frozen(eq=False)
class Products:
    """Result of :func:`products`, in a block of a schedule.

    Attributes:
        realize: The block with its place.
        begin: The statement that begins the products.
        end: The one that waits for them, after which sums may be read.
    """

    realize: Any
    begin: Any
    end: Any

    def begun(self) -> Any:
        """The block as one that only begins the products."""
        block = with_fields(self.realize.block, body=self.begin)
        return SBlockRealize(self.realize.iter_values, self.realize.predicate, block)

    def ended(self, loop: Any) -> Any:
        """A block behind the loop over variable ``loop`` that waits for the products."""
        block = self.realize.block
        own = [item.var for item in block.iter_vars]
        first = [tirx.const(0, str(loop.ty.dtype))]
        values = [at(value, [loop], first) for value in self.realize.iter_values]
        name, _, source = self.end.value.args
        (written,) = block.writes
        (match,) = (it for it in block.match_buffers if it.source.source.same_as(written.source))
        region = region_at(match.source, own, values)
        sums = tirx.decl_buffer(
            match.buffer.shape,
            str(match.buffer.dtype),
            str(match.buffer.name),
            scope=str(match.buffer.scope()),
            offset_factor=1,
        )
        body = _called(str(name.value), str(source.value), sums.access_ptr("rw"))
        touched = BufferRegion(region.source, region.region)
        made = SBlock(
            [],
            [touched],
            [touched],
            f"{block.name_hint}_end",
            body,
            None,
            [],
            [MatchBufferRegion(sums, touched)],
        )
        return SBlockRealize([], True, made)


def find_products(node: Any) -> Products | None:
    """The products that a statement is a block of; None where it is something else."""
    if not isinstance(node, SBlockRealize) or not isinstance(node.block.body, tirx.SeqStmt):
        return None
    first, *others = node.block.body.seq
    if not isinstance(first, tirx.Evaluate) or not _is_call_of(first.value, SHARE):
        return None
    _, begin, end, *_ = others
    return Products(node, begin, end)


def _is_call_of(value: Any, name: str) -> bool:
    found = next(iter(getattr(value, "args", ())), None)
    return str(getattr(found, "value", "")) == name


def _called(name: str, source: str, *arguments: Any) -> Any:
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=source))
