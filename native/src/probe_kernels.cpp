#include "probe_kernels.hpp"

#include <immintrin.h>

namespace autotune {
namespace {

// Enough accumulators for two units of latency 5. Values tend to 0.5, far from denormals, which would slow it down. The
// accumulators are named one by one because GCC keeps an array of them in memory; the empty `asm` makes it believe that
// each is read and changed, so that no step is removed or merged. "v" is any vector register, all 32 where there are as
// many.
#define AUTOTUNE_FOR_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
constexpr int kAccumulators = 12;

#define AUTOTUNE_INIT(i) auto sum##i = start;
#define AUTOTUNE_STEP(i)                      \
    sum##i = STEP(sum##i, factor, addend);    \
    asm volatile("" : "+v"(sum##i));

// `products` are those of one instruction.
#define AUTOTUNE_COMPUTE(initial, left, right, products)                         \
    {                                                                            \
        const auto start = initial;                                              \
        auto factor = left;                                                      \
        auto addend = right;                                                     \
        asm volatile("" : "+v"(factor), "+v"(addend));                           \
        AUTOTUNE_FOR_EACH(AUTOTUNE_INIT)                                         \
        for (std::int64_t round = 0; round < rounds; ++round) {                  \
            AUTOTUNE_FOR_EACH(AUTOTUNE_STEP)                                     \
        }                                                                        \
        return 2.0 * (products) * kAccumulators * static_cast<double>(rounds);   \
    }

#define STEP _mm512_fmadd_ps
__attribute__((target("avx512f"))) double fma_avx512(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm512_set1_ps(1.0f), _mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f), 16)
#undef STEP

#define STEP _mm256_fmadd_ps
__attribute__((target("avx2,fma"))) double fma_avx2(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm256_set1_ps(1.0f), _mm256_set1_ps(0.5f), _mm256_set1_ps(0.25f), 8)
#undef STEP

#define STEP(sum, factor, addend) _mm_add_ps(_mm_mul_ps(sum, factor), addend)
double fma_sse2(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm_set1_ps(1.0f), _mm_set1_ps(0.5f), _mm_set1_ps(0.25f), 4)
#undef STEP

#define STEP _mm512_dpbusd_epi32
__attribute__((target("avx512f,avx512vnni"))) double bytes_avx512(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm512_setzero_si512(), _mm512_set1_epi8(3), _mm512_set1_epi8(-2), 64)
#undef STEP

#define STEP _mm256_dpbusd_avx_epi32
__attribute__((target("avx2,avxvnni"))) double bytes_avx2(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm256_setzero_si256(), _mm256_set1_epi8(3), _mm256_set1_epi8(-2), 32)
#undef STEP

// bfloat16 of 0.25 in every half of a lane.
#define STEP(sum, factor, addend) _mm512_dpbf16_ps(sum, (__m512bh)factor, (__m512bh)addend)
__attribute__((target("avx512f,avx512bf16"))) double bfloat16_avx512(std::int64_t rounds)
    AUTOTUNE_COMPUTE(_mm512_setzero_ps(), _mm512_set1_epi16(0x3e80), _mm512_set1_epi16(0x3e80), 32)
#undef STEP

#undef AUTOTUNE_INIT
#undef AUTOTUNE_STEP
#undef AUTOTUNE_COMPUTE

// Four vectors a turn: memory is the limit, no loop. Sums are of integers, which wait for nothing.
#define AUTOTUNE_STREAMS(name, isa, lanes, Integers, zero, load_integers, add_integers, load, store, past, scaled)     \
    __attribute__((target(isa))) void read_##name(float*, const float* b, const float*, std::size_t count) {           \
        Integers sums[4] = {zero, zero, zero, zero};                                                                   \
        for (std::size_t i = 0; i < count; i += 4 * (lanes)) {                                                         \
            for (int j = 0; j < 4; ++j) {                                                                              \
                sums[j] = add_integers(sums[j], load_integers(reinterpret_cast<const Integers*>(b + i + (lanes)*j)));  \
            }                                                                                                          \
        }                                                                                                              \
        asm volatile("" : : "v"(sums[0]), "v"(sums[1]), "v"(sums[2]), "v"(sums[3]));                                   \
    }                                                                                                                  \
    AUTOTUNE_WRITERS(name##_cached, isa, lanes, load, store, scaled)                                                   \
    AUTOTUNE_WRITERS(name##_past, isa, lanes, load, past, scaled)

#define AUTOTUNE_WRITERS(name, isa, lanes, load, store, scaled)                                                        \
    __attribute__((target(isa))) void copy_##name(float* a, const float* b, const float*, std::size_t count) {         \
        for (std::size_t i = 0; i < count; i += 4 * (lanes)) {                                                         \
            for (std::size_t j = i; j < i + 4 * (lanes); j += (lanes)) store(a + j, load(b + j));                      \
        }                                                                                                              \
        _mm_sfence();                                                                                                  \
    }                                                                                                                  \
    __attribute__((target(isa))) void triad_##name(float* a, const float* b, const float* c, std::size_t count) {      \
        for (std::size_t i = 0; i < count; i += 4 * (lanes)) {                                                         \
            for (std::size_t j = i; j < i + 4 * (lanes); j += (lanes)) store(a + j, scaled(load(b + j), load(c + j))); \
        }                                                                                                              \
        _mm_sfence();                                                                                                  \
    }

#define SCALED_512(b, c) _mm512_fmadd_ps(_mm512_set1_ps(3.0f), c, b)
#define SCALED_256(b, c) _mm256_fmadd_ps(_mm256_set1_ps(3.0f), c, b)
#define SCALED_128(b, c) _mm_add_ps(_mm_mul_ps(_mm_set1_ps(3.0f), c), b)
AUTOTUNE_STREAMS(avx512, "avx512f", 16, __m512i, _mm512_setzero_si512(), _mm512_load_si512, _mm512_add_epi64,
                 _mm512_load_ps, _mm512_store_ps, _mm512_stream_ps, SCALED_512)
AUTOTUNE_STREAMS(avx2, "avx2,fma", 8, __m256i, _mm256_setzero_si256(), _mm256_load_si256, _mm256_add_epi64,
                 _mm256_load_ps, _mm256_store_ps, _mm256_stream_ps, SCALED_256)
AUTOTUNE_STREAMS(sse2, "sse2", 4, __m128i, _mm_setzero_si128(), _mm_load_si128, _mm_add_epi64, _mm_load_ps,
                 _mm_store_ps, _mm_stream_ps, SCALED_128)

enum class Width { sse2, avx2, avx512 };

Width widest() {
    if (__builtin_cpu_supports("avx512f")) return Width::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Width::avx2;
    return Width::sse2;
}

StreamKernel of_width(StreamKernel sse2, StreamKernel avx2, StreamKernel avx512) {
    switch (widest()) {
        case Width::avx512: return avx512;
        case Width::avx2: return avx2;
        default: return sse2;
    }
}

}  // namespace

ComputeKernel float_kernel() {
    switch (widest()) {
        case Width::avx512: return {fma_avx512, "avx512f"};
        case Width::avx2: return {fma_avx2, "fma"};
        default: return {fma_sse2, "sse2"};
    }
}

ComputeKernel byte_kernel() {
    if (__builtin_cpu_supports("avx512vnni")) return {bytes_avx512, "avx512vnni"};
    if (__builtin_cpu_supports("avxvnni")) return {bytes_avx2, "avxvnni"};
    return {};
}

ComputeKernel bfloat16_kernel() {
    if (__builtin_cpu_supports("avx512bf16")) return {bfloat16_avx512, "avx512bf16"};
    return {};
}

StreamKernel read_kernel() { return of_width(read_sse2, read_avx2, read_avx512); }

StreamKernel copy_kernel(bool past_caches) {
    return past_caches ? of_width(copy_sse2_past, copy_avx2_past, copy_avx512_past)
                       : of_width(copy_sse2_cached, copy_avx2_cached, copy_avx512_cached);
}

StreamKernel triad_kernel(bool past_caches) {
    return past_caches ? of_width(triad_sse2_past, triad_avx2_past, triad_avx512_past)
                       : of_width(triad_sse2_cached, triad_avx2_cached, triad_avx512_cached);
}

}  // namespace autotune
