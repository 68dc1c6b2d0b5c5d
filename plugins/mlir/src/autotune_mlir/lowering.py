"""The passes between a scheduled program and LLVM's dialect."""

from __future__ import annotations

from autotune_mlir.bindings import Distribution

__all__ = [
    "DEFAULT_SCHEDULE",
    "PRINTED",
    "bufferization",
    "fusion",
    "loops",
    "lowering",
    "placement",
    "simplification",
]

DEFAULT_SCHEDULE = "MLIR's default pipeline"
"""What users of MLIR have without a schedule: its passes fuse elementwise operations, and, for
several threads, make loops parallel that carry nothing, which OpenMP then runs."""

PRINTED = "builtin.module(convert-scf-to-cf,convert-to-llvm)"
"""From a printed program to LLVM's dialect, as ``PassManager.parse`` takes it."""

_FUSION = ("func.func(linalg-fuse-elementwise-ops)",)

# Before bufferization, or what hoisting leaves behind is bufferized into copies between buffers
# with strides, for which there is no function to call.
_CLEANUP = ("canonicalize", "cse")
_BUFFERS = (
    "eliminate-empty-tensors",
    "empty-tensor-to-alloc-tensor",
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map buffer-alignment=64 "
    "allow-return-allocs-from-loops={loops}}",
)
_PLACES = (
    "func.func(buffer-hoisting,promote-buffers-to-stack{max-alloc-size-in-bytes=4096},"
    "buffer-loop-hoisting)",
    "buffer-deallocation-pipeline",
)
_LOOPS = (
    "func.func(lower-vector-mask,lower-vector-multi-reduction)",
    "func.func(convert-vector-to-scf{full-unroll=true})",
)

_BFLOAT16 = (
    "func.func(arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})",
    "func.func(arith-expand{include-bf16=true})",
)


def fusion() -> str:
    """Elementwise operations as one where they can be, as ``PassManager.parse`` takes it."""
    return f"builtin.module({','.join(_FUSION)})"


def simplification(by_default: bool = False) -> str:
    """Passes that precede bufferization, as ``PassManager.parse`` takes them.

    Args:
        by_default: Whether elementwise operations are fused; see :data:`DEFAULT_SCHEDULE`.
    """
    return f"builtin.module({','.join((*(_FUSION if by_default else ()), *_CLEANUP))})"


def bufferization(by_default: bool = False) -> str:
    """From tensors to buffers, as ``PassManager.parse`` takes it.

    Args:
        by_default: Whether loops are the program's own, and may allocate what they hand on: those
            of a schedule must not.
    """
    buffers = [text.replace("{loops}", str(by_default).lower()) for text in _BUFFERS]
    return f"builtin.module({','.join(buffers)})"


def placement(threads: int) -> str:
    """From buffers to buffers at their places, as ``PassManager.parse`` takes it.

    A parallel loop is the scope of what its body puts on the stack, and an ordinary loop is not:
    there every iteration would take more of it until the function returns. What is to become an
    ordinary loop therefore does so before buffers get their places, which are then outside it.

    Args:
        threads: On how many threads parallel loops run; with one they are ordinary loops.
    """
    loops = ("func.func(scf-forall-to-for)",) if threads == 1 else ()
    return f"builtin.module({','.join((*loops, *_PLACES, *_CLEANUP))})"


def loops(threads: int, by_default: bool = False) -> str:
    """From buffers to loops, parallel ones of OpenMP, as ``PassManager.parse`` takes it.

    Args:
        threads: On how many threads parallel loops run; with one there are none any more.
        by_default: Whether operations become parallel loops; see :data:`DEFAULT_SCHEDULE`.
    """
    kind = "parallel-loops" if by_default and threads > 1 else "loops"
    passes = (f"func.func(convert-linalg-to-{kind})", *_LOOPS, *_parallel(threads))
    return f"builtin.module({','.join(passes)})"


def lowering(distribution: Distribution, threads: int, bfloat16: bool = False) -> str:
    """From loops to LLVM's dialect, as ``PassManager.parse`` takes it.

    LLVM's own conversion to bfloat16 is a call of a function for each element where the processor
    has no instruction for it, and takes denormals for zeros where it has. So MLIR computes in
    float32 and writes conversions as arithmetic on bits.

    Args:
        distribution: Of the bindings: releases of LLVM differ in the names of options.
        threads: On how many threads parallel loops run.
        bfloat16: Whether the program has numbers of that type.
    """
    passes = (
        "expand-strided-metadata",
        "lower-affine",
        *(_BFLOAT16 if bfloat16 else ()),
        *(("convert-openmp-to-llvm",) if threads > 1 else ()),
        "convert-scf-to-cf",
        f"convert-vector-to-llvm{{{distribution.x86_option}=true}}",
        # As log(1 + x) it would be zero for what vanishes beside 1: the library has a function.
        "convert-math-to-llvm{approximate-log1p=false}",
        "convert-math-to-libm",
        "finalize-memref-to-llvm",
        "convert-func-to-llvm",
        "convert-arith-to-llvm",
        "convert-index-to-llvm",
        "convert-cf-to-llvm",
        "convert-ub-to-llvm",
        "reconcile-unrealized-casts",
        # Programs that are one program get one text, and LLVM has less to read.
        *_CLEANUP,
    )
    return f"builtin.module({','.join(passes)})"


def _parallel(threads: int) -> tuple[str, ...]:
    if threads == 1:
        return ()
    return (
        "func.func(scf-forall-to-parallel)",
        f"convert-scf-to-openmp{{num-threads={threads}}}",
    )
