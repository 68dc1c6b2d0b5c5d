"""TVM's passes from a scheduled program to kernels, with some of this package among them."""

from __future__ import annotations

from typing import Any

__all__ = ["kernel_pipeline"]


def kernel_pipeline() -> Any:
    """The passes of TVM's default pipeline, which TVM has as one pass, and two in their midst.

    Before the pass that puts barriers around stores to shared memory go
    :func:`~autotune_tvm.passes.async_copies`, which has to see vectors, and
    :func:`~autotune_tvm.passes.sync_rows`, which adds to these barriers.
    """
    import tvm
    from tvm import s_tir, tirx

    from autotune_tvm.passes import async_copies, sync_rows

    def asynchronous(module: Any, _: Any) -> Any:
        return async_copies(module)

    def synchronized(module: Any, _: Any) -> Any:
        return sync_rows(module)

    copies = tvm.transform.module_pass(asynchronous, opt_level=0, name="AsyncCopies")
    rows = tvm.transform.module_pass(synchronized, opt_level=0, name="SyncRows")
    of_schedules, of_loops = s_tir.transform, tirx.transform
    return tvm.transform.Sequential(
        [
            of_schedules.CanonicalizeLoop(),
            of_schedules.LowerCrossThreadReduction(),
            of_schedules.LowerInitBlock(),
            of_schedules.PlanAndUpdateBufferAllocationLocation(),
            of_schedules.ConvertBlocksToOpaque(),
            of_schedules.LiftThreadBinding(),
            of_schedules.ManifestSharedMemoryLocalStage(),
            of_schedules.CompactBufferAllocation(),
            of_schedules.LowerAutoCopy(),
            of_schedules.UnifyThreadBinding(),
            of_schedules.LowerMatchBuffer(),
            of_schedules.StmtSimplify(),
            of_schedules.InjectPermutedLayout(),
            of_schedules.AnnotateIrregularLoop(),
            of_schedules.InjectSoftwarePipeline(),
            of_schedules.TransformMmaBufferLayout(),
            of_schedules.LowerOpaqueBlock(),
            of_loops.FlattenBuffer(),
            of_loops.BF16ComputeLegalize(),
            of_loops.NarrowDataType(32),
            of_schedules.LoopPartition(),
            of_loops.VectorizeLoop(),
            of_schedules.InjectVirtualThread(),
            of_schedules.InjectDoubleBuffer(),
            of_loops.StorageRewrite(),
            of_schedules.HoistIfThenElse(),
            of_loops.UnrollLoop(),
            of_schedules.RenormalizeSplitPattern(),
            of_loops.StmtSimplify(),
            of_loops.RemoveNoOp(),
            of_schedules.RewriteUnsafeSelect(),
            of_loops.CommonSubexprElim(),
            of_loops.FP8ComputeLegalize(),
            of_schedules.VerifyVTCMLimit(),
            of_schedules.LowerVtcmAlloc(),
            of_loops.VerifyMemory(),
            of_loops.AnnotateEntryFunc(),
            copies,
            rows,
            of_schedules.ThreadSync("shared"),
            of_schedules.ThreadSync("shared.dyn"),
            of_schedules.ThreadSync("warp"),
            of_schedules.InferFragment(),
            of_schedules.LowerThreadAllreduce(),
            of_schedules.MergeSharedMemoryAllocations(),
            of_loops.SplitHostDevice(),
            of_loops.MakePackedAPI(),
            of_loops.FP8StorageLegalize(),
            of_loops.BF16StorageLegalize(),
        ]
    )
