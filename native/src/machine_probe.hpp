// Measures what one core of this machine can do.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace autotune {

// Instruction set that fma_rate uses here: "avx512f", "fma" (AVX2) or "sse2".
std::string fma_instruction_set();

// Best rate of independent float32 fused multiply-adds in registers on the calling thread's core, in flop/s
// (two per multiply-add; SSE2 has no fused form and multiplies, then adds). Runs for about `seconds`.
double fma_rate(double seconds);

// Best rate at which the calling thread's core reads `bytes` of memory over and over, in bytes/s.
double read_bandwidth(std::size_t bytes, double seconds);

// Wall time in seconds of each of `repeats` runs of the same loop of `work` dependent multiplications.
std::vector<double> repeat_times(int repeats, long work);

// Rates of the same work as fma_rate does on logical CPU `cpu`: with CPU `other` left alone, and with the same work on
// it, each in flop/s. They alternate for about `seconds`; the best of each counts, because other processes disturb. The
// second rate is 0 if the two were never seen at work at the same time. Threads of its own are pinned to the two CPUs;
// throws std::system_error where that is not allowed.
std::pair<double, double> neighbour_rates(int cpu, int other, double seconds);

}  // namespace autotune
