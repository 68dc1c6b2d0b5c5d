// Loops whose speed is a property of the machine, each for the widest vectors that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace autotune {

// Runs `rounds` times over enough independent accumulators to fill the units; returns the operations that it did.
struct ComputeKernel {
    double (*run)(std::int64_t rounds) = nullptr;
    const char* instruction_set = "";
};

// Multiply-adds of float32; SSE2 has no fused form and multiplies, then adds.
ComputeKernel float_kernel();
// Products of unsigned by signed bytes with sums of four in int32; none without VNNI.
ComputeKernel byte_kernel();
// Products of bfloat16 with sums of two in float32; none without AVX512-BF16.
ComputeKernel bfloat16_kernel();

// Goes once over arrays of `count` floats, aligned to a vector, whose number is a multiple of kStreamFloats.
using StreamKernel = void (*)(float* a, const float* b, const float* c, std::size_t count);
constexpr std::size_t kStreamFloats = 64;

StreamKernel read_kernel();
StreamKernel copy_kernel(bool past_caches);
StreamKernel triad_kernel(bool past_caches);

}  // namespace autotune
