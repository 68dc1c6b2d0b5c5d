"""Workloads, machines and backends by what the rules make of them: names, steps and domains."""

from __future__ import annotations

import pytest
from attrs import evolve
from divided_reductions import shared_factor
from indexed_workloads import embedding_bag, gathered_product
from made_workloads import root_mean_square, two_products
from row_norms import layer_norm, rms_norm, with_small_cache
from rule_sketches import (
    EVERY_PACKING,
    NOT_BLOCKED,
    ROW_FUSIONS,
    TARGET,
    check_facts,
    lacking,
    of_kind,
    sketches,
)
from scanned import scan, scanned_between
from split_reductions import norm, reduction, weighted_sums
from transposes import transpose, transposed_pair
from written import written

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.sketches import (
    ChunkReduction,
    FuseConsumer,
    Prefetch,
    Sketch,
    SoftwarePipeline,
    SplitReduction,
    Stream,
)
from autotune.targets import Target, preset
from autotune.targets.target import Cache

CPU, A100, H100, AVX2 = TARGET, preset("a100"), preset("h100"), preset("avx2")
SMALL = with_small_cache(CPU)
# 256 rows of 64 floats are as large as this cache.
CACHE = evolve(CPU, caches=(Cache(1, 1 << 10, False), Cache(2, 1 << 16, True)))
NO_CACHE = evolve(CPU, caches=())
LITTLE = evolve(A100, shared_memory_bytes=512 + 5 * 4 * (128 + 2))
ONE, TWO = CPU.with_cores(1), CPU.with_cores(2)
PACKED, PLAIN, FUSED = map(" ".join, (EVERY_PACKING, NOT_BLOCKED, ROW_FUSIONS))
ROOTS = "packed-root packed-root-rows packed-panel-outer"
LANES = "split-reduction split-reduction-wide"
CHUNKED = f"{LANES} " + " ".join(
    f"split-reduction-{it}{wide}" for it in ("chunks", "small-chunks") for wide in ("", "-wide")
)
NARROW = "row-fusion row-fusion-narrow block-fusion block-fusion-narrow"
PARTS = "direct split-columns-chunks split-columns-small-chunks"
TURNED = "shared shared-transposed"
ROWS_ON_GPUS = "row-fusion-kept row-fusion-recomputed"
CENTRED_ROWS = "M[i:32; k:48] += X[i, k]", "Y[i:32, j:48] = X[i, j] - M[i]"
CENTRED_COLUMNS = "M[j:48; k:32] += X[k, j]", "Y[i:32, j:48] = X[i, j] - M[j]"
CENTRED = written("X[32, 48]", *CENTRED_ROWS)
REUSED = written(
    "A[32, 20], B[20, 48]",
    "C[i:32, j:48; k:20] += A[i, k] * B[k, j]",
    "S[i:32; k:48] += C[i, k]",
    "Y[i:32, j:48] = C[i, j] * S[i]",
)
LARGEST = written(
    "X[64, 256]",
    "M[i:64; k:256] max= X[i, k]",
    "P[i:64; k:256]: int32 min= k if X[i, k] == M[i] else 256",
)
EXPONENTIALS = written(
    "X[64, 32], W[32, 64]",
    "E[i:64, k:32] = exp(X[i, k])",
    "C[i:64, j:64; k:32] += E[i, k] * W[k, j]",
)
QUOTIENTS = written("X[8, 7]", "S[; k:56] += X[k // 7, k % 7]")
APART = written("X[8, 7]", "V[k:56] = X[k // 7, k % 7]", "S[; k:56] += V[k]")
GATHERED = written("X[10], I[64]: int64", "G[i:64] = X[I[i]]", "S[; k:64] += G[k]")
TO_A_ROW = written("X[32, k]", "Y[; k] += X[0, k]", k=48)
BIASED = conv2d(h=5, w=6, ci=4, co=20, pad=1, bias=1, relu=1)


def _named(value: object) -> str:
    if isinstance(value, (Workload, Target)):
        return value.name
    return value if isinstance(value, str) and len(value) < 30 else ""


@pytest.mark.parametrize(
    ("workload", "target", "names"),
    [
        (gemm(m=37, n=53, k=29), CPU, PACKED),
        (gemm(m=64, n=64, k=64), CPU, PACKED),
        (gemm(m=37, n=53, k=8), CPU, PLAIN),  # too little depth to be worth packing
        (gemm(m=1, n=64, k=64), CPU, "direct"),  # no rows: nothing is used twice
        (batch_matmul(b=2, m=33, n=40, k=50), CPU, PACKED),
        (dense(m=37, n=48, k=20), CPU, " ".join(EVERY_PACKING[3:])),  # not contiguous along n
        (conv2d(h=9, w=9, ci=4, co=40, pad=1, bias=1, relu=1), CPU, PACKED),
        (conv2d(h=9, w=9, ci=4, co=40), CPU, PACKED),
        (depthwise_conv2d(h=9, w=9, c=19), CPU, PLAIN),
        (embedding_bag(), CPU, PLAIN),
        (gathered_product(), CPU, "packed-root packed-panel"),
        (softmax(m=5, n=7), CPU, "row-fusion row-fusion-recompute"),  # blocks of rows divide
        (softmax(m=64, n=256), CPU, FUSED),
        (CENTRED, CPU, NARROW),  # there is nothing to keep or to compute again
        (elementwise(m=5, n=7), CPU, "plain"),
        (elementwise(m=64, n=48), CPU, "plain"),
        (transpose(64, 48), CPU, "plain transposed-tiles transposed-copies"),
        (transpose(64, 8), CPU, "plain transposed-tiles"),
        (transpose(64, 24), CPU, "plain transposed-tiles"),
        (transpose(64, 37), CPU, "plain"),  # axes without useful divisors
        (transpose(37, 48), CPU, "plain"),
        (transpose(3, 5), CPU, "plain"),
        # A constant is packed before the first call, and worth it although it is used once.
        (gemm(m=32, n=48, k=32).with_constants("B"), AVX2, f"{PLAIN} {ROOTS}"),
        (gemm(m=32, n=48, k=32), AVX2, PACKED),
        (gemm(m=32, n=48, k=32).with_constants("A"), AVX2, PACKED),
        (dense(m=1, n=48, k=32), AVX2, "direct"),
        (dense(m=1, n=48, k=32).with_constants("W"), AVX2, "packed-root"),
        (dense(m=8, n=48, k=8).with_constants("W"), AVX2, ROOTS),
        # What several batches share is packed as a whole.
        (shared_factor(batches=8, copies=4, rows=13, columns=47), preset("avx512"), ROOTS),
        (TO_A_ROW, CPU, "split-reduction split-reduction-chunks split-reduction-small-chunks"),
        (norm(1, 64, 256), CPU, CHUNKED),
        (norm(1, 64, 256), ONE, LANES),
        (reduction((512, 64), (1,)), CPU, LANES),  # results enough for all cores
        (reduction((4, 3000), (1,)), CPU, CHUNKED),
        (weighted_sums(4, 3000, by="k"), CPU, CHUNKED),
        (weighted_sums(4, 3000, by="i"), CPU, CHUNKED),
        (reduction((31, 37), (0, 1)), CPU, "split-reduction"),
        # Two cores: 16 vectors of 16 lanes are too few for both, 32 are not.
        (reduction((4096, 256), (0,)), TWO, "direct split-columns-chunks"),
        (reduction((4096, 512), (0,)), TWO, "direct"),
        (reduction((600, 40), (0,)), CPU, PARTS),
        (gemm(m=1, n=32, k=64), CPU, "direct"),  # reductions with reuse are tiled
        (depthwise_conv2d(h=8, w=8, c=16), CPU, PLAIN),
        # A reduction does not divide operands that are read by quotients; later stages do.
        (QUOTIENTS, ONE, "serial"),
        (APART, ONE, "split-reduction"),
        (gemm(m=512, n=512, k=512), A100, f"{TURNED} split-reduction"),
        (gemm(m=1024, n=1024, k=1024), A100, TURNED),
        (gemm(m=1, n=1000, k=2048), A100, f"shared cross-thread {LANES}"),
        (gemm(m=1, n=1, k=4096), A100, "cross-thread"),
        (gemm(m=37, n=53, k=29), A100, f"{TURNED} direct"),
        (gemm(m=8, n=64, k=1024), A100, f"{TURNED} cross-thread split-reduction"),
        (gemm(m=64, n=16, k=1024), A100, f"{TURNED} cross-thread"),  # too few for a warp
        (
            two_products(8, 1024),
            A100,
            "shared+shared shared-transposed+shared-transposed cross-thread+cross-thread",
        ),
        (batch_matmul(b=12, m=128, n=128, k=64), A100, f"{TURNED} direct"),
        (dense(m=64, n=1000, k=2048), A100, f"{TURNED} {LANES}"),
        (conv2d(h=56, w=56, ci=64, co=64, pad=1), A100, "shared split-reduction"),
        (
            conv2d(h=56, w=56, ci=64, co=128, pad=1, stride=2, bias=1, relu=1),
            A100,
            "shared split-reduction",
        ),
        (depthwise_conv2d(h=112, w=112, c=32, pad=1), A100, "shared direct"),
        (softmax(m=512, n=512), A100, ROWS_ON_GPUS),
        (softmax(m=8, n=50000), A100, "row-fusion-recomputed"),
        # A row of 49120 bytes, with what compilers add to it, passes 48 KiB.
        (softmax(m=3, n=12280), A100, "row-fusion-recomputed"),
        (softmax(m=3, n=12000), A100, ROWS_ON_GPUS),
        (elementwise(m=1024, n=1024), A100, "plain"),
        (elementwise(m=1, n=1), A100, "plain"),
    ],
    ids=_named,
)
def test_names(workload: Workload, target: Target, names: str) -> None:
    made = sketches(workload, target=target)
    assert [sketch.name for sketch in made] == names.split()
    assert len(made) <= 12


@pytest.mark.parametrize(
    ("workload", "target", "missing", "names"),
    [
        (norm(2, 24, 64), CPU, "split_reduction", "direct"),
        (norm(2, 24, 64), CPU, "chunk_reduction", LANES),
        (norm(1, 64, 256), CPU, "chunk_reduction", LANES),
        (reduction((600, 40), (0,)), CPU, "chunk_reduction", "direct"),
        (gemm(m=37, n=53, k=29), CPU, "pack", "direct"),
        (gemm(m=7, n=20, k=16), CPU, "pad_extent", PACKED),
        # The padded input of a convolution, its bias and its relu become loop nests.
        (BIASED, CPU, "inline", PACKED),
        (softmax(m=8, n=64), CPU, "fuse_producer", "direct+direct"),
        (gemm(m=64, n=64, k=128), A100, "shared_layout", "shared"),
        (gemm(m=8, n=64, k=1024), A100, "chunk_reduction", f"{TURNED} cross-thread"),
    ],
    ids=_named,
)
def test_names_where_a_step_is_missing(
    workload: Workload, target: Target, missing: str, names: str
) -> None:
    made = sketches(workload, lacking(missing), target)
    assert [sketch.name for sketch in made] == names.split()


@pytest.mark.parametrize("missing", ["parallel", "vectorize", "unroll"])
def test_how_loops_are_run_may_be_missing(missing: str) -> None:
    for workload in (gemm(m=7, n=20, k=16), softmax(m=4, n=32), elementwise(m=4, n=6)):
        names = [sketch.name for sketch in sketches(workload, lacking(missing))]
        assert names == [sketch.name for sketch in sketches(workload)]


PAGE = "Y.i.1 = 16 32 64 128 256"
THREADS = "C.i.2*C.j.2"
LATE = "row-fusion-pipelined"


@pytest.mark.parametrize(
    ("workload", "target", "name", "facts"),
    [
        (transpose(64, 48), CPU, "transposed-tiles", "order Y i.0 j.0 j.1 i.1 j.2"),
        (transpose(64, 48), CPU, "transposed-copies", "pack Y X j.1 - - 16"),
        (transpose(48, 512), CPU, "transposed-tiles", "Y.i.1 = 4 8 16 32 64 128 256"),
        (transpose(48, 512), CPU, "transposed-copies", PAGE),
        (transposed_pair(64, 48), CPU, "transposed-copies", "fuse_producer P Y j.1 16, !inline"),
        # Cores share the outer axes that are enough.
        (elementwise(m=64, n=48), CPU, "plain", "parallel Y i.0"),
        (elementwise(m=63, n=48), CPU, "plain", "parallel Y i.0 j.0"),
        (softmax(m=64, n=256), CPU, "row-fusion", "vectorize E j.1, vectorize Y j.1"),
        (softmax(m=64, n=256), CPU, "row-fusion", "E.j.1 = 4 8 16 32, Y.j.1 = 4 8 16 32"),
        (softmax(m=3, n=197), CPU, "", "Y.j.1 = 16 32"),  # vectors that do not divide it
        (softmax(m=3, n=192), CPU, "", "!cover"),
        (softmax(m=3, n=13), CPU, "", "!cover"),
        (softmax(m=3, n=197), CPU, "", "without cover, !cover"),
        (softmax(m=24, n=64), CPU, "block-fusion", "Y.i.1 = 2 4 8"),
        (CENTRED, CPU, "", "fuse_producer: M M_partial"),
        (written("X[32, 48]", *CENTRED_COLUMNS), CPU, "", "!fuse_producer"),
        (written("X[32, 48]", *CENTRED_ROWS, outputs="M Y"), CPU, "", "!fuse_producer M"),
        # Reductions with reuse are tiled before the rows, and what has no rows is computed before.
        (REUSED, CPU, "", "fuse_producer: S S_partial, accumulate: C"),
        (root_mean_square(8, 64), CPU, "row-fusion", "fuse_producer: R S S_partial, inline: V"),
        (root_mean_square(8, 64), CPU, "row-fusion-recompute", "fuse_producer: S S_partial"),
        (LARGEST, CPU, "", "split_reduction: M P"),  # the place of the largest element has lanes
        (softmax(m=6, n=64), CPU, "block-fusion", "tile Y i 3 2"),
        (reduction((24, 64), (0, 1), first="exp"), CPU, "", "inline P"),
        (GATHERED, CPU, "", "!inline"),
        (cumsum(m=64, n=256, axis=0), CPU, "", "order Y j.0 i.0 j.1 j.2, parallel Y j.0"),
        (cumsum(m=64, n=256, axis=0), CPU, "", "vectorize Y j.2"),
        (cumsum(m=64, n=256), CPU, "", "order Y i.0 j.0 i.1, parallel Y i.0, unroll Y i.1"),
        # Few long rows are scanned in parts, if something divides them and parts are long.
        (cumsum(m=1, n=1 << 20), CPU, "chunked-scan", "chunk_scan Y 64"),
        (scan((1 << 20,), 0), CPU, "chunked-scan", "chunk_scan Y 64"),
        (cumsum(m=2, n=768), CPU, "chunked-scan", "chunk_scan Y 3"),
        (cumsum(m=1, n=1009), CPU, "", "!chunk_scan"),
        (cumsum(m=1, n=400), CPU, "", "!chunk_scan"),
        (cumsum(m=16, n=1 << 20), CPU, "", "!chunk_scan"),
        (cumsum(m=1 << 20, n=1, axis=0), CPU, "", "!chunk_scan"),
        (scanned_between((16, 32), 0), CPU, "", "!inline"),  # computed before and after
        (gemm(m=7, n=20, k=16), CPU, "", "without pad_extent, !pad_extent, C.i.extent = -"),
        (BIASED, CPU, "", "without pad_extent, !pad_extent, Y.ho.extent = -"),
        # A row is written while the first stage along the next one is computed, if no cache holds
        # results, rows are many and of whole vectors, and the backend has the steps.
        (softmax(m=48, n=64), SMALL, LATE, "software_pipeline Y i.1 M_partial"),
        (softmax(m=48, n=64), SMALL, LATE, "Y.i.1 = 16 24 48"),
        (rms_norm(48, 64), SMALL, LATE, "software_pipeline Y i.1 S_partial"),
        (layer_norm(48, 64), SMALL, LATE, "software_pipeline Y i.1 T_partial"),
        (layer_norm(48, 64), SMALL, "row-fusion-wide-pipelined", "Y.i.1 = 16 24 48"),
        (softmax(m=3, n=64), SMALL, "", "!software_pipeline"),
        (softmax(m=15, n=128), SMALL, "", "!software_pipeline"),
        (softmax(m=48, n=60), SMALL, "", "!software_pipeline"),
        (gemm(m=64, n=64, k=4), SMALL, "", "!software_pipeline"),
        (softmax(m=48, n=64), CPU, "", "!software_pipeline"),
        (softmax(m=48, n=64), SMALL, "", "without software_pipeline, !software_pipeline"),
        (softmax(m=48, n=64), SMALL, "", "without stream, !software_pipeline, !stream"),
        # Results that no cache holds may be written past the caches, but no sums, nor rows that
        # end inside a line, nor where no cache is known.
        (elementwise(m=256, n=64), CACHE, "", "Y.stream = 0 1"),
        (softmax(m=256, n=64), CACHE, "row-fusion", "Y.stream = 0 1"),
        (softmax(m=256, n=64), CACHE, "block-fusion", "Y.stream = 0 1"),
        (elementwise(m=255, n=64), CACHE, "", "!stream"),
        (softmax(m=255, n=64), CACHE, "", "!stream"),
        (gemm(m=256, n=64, k=8), CACHE, "", "!stream"),
        (elementwise(m=300, n=63), CACHE, "", "!stream"),
        (elementwise(m=256, n=64), NO_CACHE, "", "!stream"),
        (gemm(m=512, n=256, k=128), A100, "shared", "bind C i.0 j.0 block"),
        (gemm(m=512, n=256, k=128), A100, "shared", "bind C i.1 j.1 vthread"),
        (gemm(m=512, n=256, k=128), A100, "shared", "bind C i.2 j.2 thread"),
        (
            gemm(m=512, n=256, k=128),
            A100,
            "shared",
            "order C i.0 j.0 i.1 j.1 i.2 j.2 k.0 k.1 i.3 j.3 k.2 i.4 j.4, unroll_limit C C.unroll"
            f", fetch C A k.0 {THREADS} C.A.lanes, fetch C B k.0 {THREADS} C.B.lanes",
        ),
        # All threads of a warp that read B read the same row of it.
        (gemm(m=512, n=256, k=128), A100, "shared", "shared_layout C A 0 1 C.A.pad"),
        (gemm(m=64, n=64, k=64), A100, "shared-transposed", "shared_layout C A 1 0 C.A.pad"),
        (
            dense(m=64, n=64, k=64),
            A100,
            "shared-transposed",
            "shared_layout Y X 1 0 Y.X.pad, shared_layout Y W 1 0 Y.W.pad",
        ),
        (
            batch_matmul(b=4, m=64, n=64, k=64),
            A100,
            "shared-transposed",
            "shared_layout C A 0 2 1 C.A.pad, shared_layout C B 0 1 2 C.B.pad",
        ),
        (gemm(m=64, n=64, k=128), A100, "", "without shared_layout, C.A.pad = -, C.B.pad = -"),
        (gemm(m=64, n=64, k=64), A100, "", "without unroll_limit, !unroll_limit, C.unroll = -"),
        (gemm(m=64, n=64, k=64), A100, "shared", "C.A.pad = 0 4"),
        (gemm(m=64, n=64, k=64, dtype="float64"), A100, "shared", "C.A.pad = 0 2"),
        (gemm(m=64, n=64, k=64, dtype="int8"), A100, "shared", "C.A.pad = 0 16"),
        (gemm(m=64, n=64, k=64, dtype="float16"), A100, "shared", "C.A.pad = 0 8"),
        # Lanes that are stored one by one have indices of their own, of which a vector has four.
        (
            gemm(m=64, n=64, k=64, dtype="int8"),
            A100,
            "shared-transposed",
            "C.A.lanes = 1 2 4, C.B.lanes = 1 2 4 8 16",
        ),
        (
            dense(m=128, n=768, k=3072),
            H100,
            "split-reduction-wide",
            "chunk_reduction Y k 16, bind Y_partial k_chunk.0 i.0 j.0 block, bind Y i.0 j.0 block",
        ),
        (conv2d(h=16, w=16, ci=4, co=32, pad=1), A100, "", "inline P"),
        # What is expensive is not computed by every reader.
        (EXPONENTIALS, A100, "shared", "inline E"),
        (EXPONENTIALS, A100, "direct", "!inline"),
        (dense(m=64, n=128, k=256), A100, "shared", "!accumulate"),
        (
            dense(m=37, n=1000, k=64),
            A100,
            "shared",
            "pad_extent Y i Y.i.extent, pad_extent Y j Y.j.extent",
        ),
        (dense(m=37, n=1000, k=64), A100, "shared", "Y.i.extent = 37 38 40"),
        (dense(m=37, n=1000, k=64), A100, "shared", "Y.j.extent = 1000 1008 1024"),
        (dense(m=37, n=1000, k=64), A100, "direct", "!pad_extent"),
        (
            softmax(m=64, n=1000),
            A100,
            "row-fusion-kept",
            "fuse_producer S Y i.0 1, fuse_producer E Y i.0 1, fuse_producer M Y i.0 1",
        ),
        (written("X[5000]", "S[; k:5000] += X[k]"), A100, "", "bind S k.1 thread"),
        (softmax(m=96, n=128), A100, "", "Y.i.1 = 1 2 4 8"),
        (softmax(m=6, n=512), A100, "", "Y.i.1 = 1 2"),
        (softmax(m=96, n=513), A100, "", "Y.i.1 = -"),  # threads enough for a multiprocessor
        (softmax(m=97, n=128), A100, "", "Y.i.1 = -"),
        (softmax(m=96, n=128), LITTLE, "row-fusion-kept", "Y.i.1 = 1 2 4"),
        (softmax(m=96, n=128), LITTLE, "row-fusion-recomputed", "Y.i.1 = 1 2 4 8"),
    ],
    ids=_named,
)
def test_facts(workload: Workload, target: Target, name: str, facts: str) -> None:
    check_facts(workload, facts, name, target)


def _lanes(sketch: Sketch) -> dict[str, int]:
    return {step.stage: step.lanes for step in of_kind(sketch, SplitReduction)}


@pytest.mark.parametrize(
    ("workload", "lanes"),
    [
        # Any number where that makes fewer rounds, else one that divides it.
        *(
            (softmax(m=3, n=columns), [dict.fromkeys("MS"[: 2 * bool(it)], it) for it in partials])
            for columns, partials in (
                (7, [0]),  # shorter than a vector
                (31, [4, 8]),
                (6, [0]),  # four do not divide it
                (16, [4, 8]),
                (100, [4, 16, 32]),
                (1000, [4, 16, 64]),
                (512, [4, 16, 64]),
            )
        ),
    ],
    ids=_named,
)
def test_partial_results(workload: Workload, lanes: list[dict[str, int]]) -> None:
    found = []
    for sketch in sketches(workload):
        own = {stage.removesuffix("_partial"): it for stage, it in _lanes(sketch).items()}
        found += [own] if own not in found else []
    assert sorted(found, key=str) == sorted(lanes, key=str)


def test_a_norm_is_shared_by_cores_and_lanes() -> None:
    found = {}
    for sketch in sketches(norm(1, 64, 256)):
        chunks = [step.chunks for step in of_kind(sketch, ChunkReduction)]
        found[sketch.name] = (*chunks, *_lanes(sketch).values())
    numbers = (16,), (64,), (4, 16), (4, 64), (16, 16), (16, 64)
    assert found == dict(zip(CHUNKED.split(), numbers, strict=True))


@pytest.mark.parametrize(
    ("workload", "stages"),
    [
        (softmax(m=48, n=64), {"E"}),
        # A row that is written late reads what is in the caches already.
        (rms_norm(48, 64), {"Y"}),
        (layer_norm(48, 64), {"V_partial"}),
    ],
    ids=_named,
)
def test_the_second_reader_asks_for_the_next_row(workload: Workload, stages: set[str]) -> None:
    found = set()
    for sketch in sketches(workload, target=SMALL):
        steps, late = of_kind(sketch, Prefetch), bool(of_kind(sketch, SoftwarePipeline))
        names = [it for it in sketch.param_names if it.endswith(".prefetch")]
        expected = sketch.name.startswith("row") and "recompute" not in sketch.name
        assert len(steps) == len(names) == int(expected and not (late and stages == {"Y"}))
        assert not late or len(of_kind(sketch, Stream)) == 1
        assert all((it.operand, it.consumer, it.at) == ("X", "Y", "i.1") for it in steps)
        found |= {it.stage for it in steps}
    assert found == stages


@pytest.mark.parametrize(
    ("workload", "stage", "at"),
    [(dense(m=64, n=128, k=256), "Y", "j.2"), (dense(m=128, n=768, k=3072), "Y", "j.1")],
    ids=["tile", "parts"],
)
def test_an_epilogue_takes_the_accumulators_of_a_thread(
    workload: Workload, stage: str, at: str
) -> None:
    name = {"j.2": "shared", "j.1": "split-reduction-wide"}[at]
    (sketch,) = (it for it in sketches(workload, target=H100) if it.name == name)
    (fused,) = of_kind(sketch, FuseConsumer)
    assert (fused.stage, fused.producer, fused.at) == ("R", stage, at)
