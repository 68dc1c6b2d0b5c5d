"""TVM's passes from a scheduled program to kernels, with asynchronous copies among them."""

from __future__ import annotations

from typing import Any

__all__ = ["kernel_pipeline"]


def kernel_pipeline() -> Any:
    """The passes of TVM's default pipeline, and :func:`~autotune_tvm.passes.async_copies`.

    These have to see vectors, and go before the pass that puts barriers around stores to shared
    memory: in the midst of a pipeline that TVM has as one pass.
    """
    import tvm
    from tvm import s_tir, tirx

    from autotune_tvm.passes import async_copies

    def asynchronous(module: Any, _: Any) -> Any:
        return async_copies(module)

    copies = tvm.transform.module_pass(asynchronous, opt_level=0, name="AsyncCopies")
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
