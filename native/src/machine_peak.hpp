// Measures the ceilings of a roofline: what threads of this machine reach together.
#pragma once

#include <cstddef>
#include <string>

namespace autotune {

// Instruction set that peak_rate uses here for "float32", "int8" (sums in int32) or "bfloat16" (sums in float32); empty
// where the processor has no instruction for it. Throws std::invalid_argument for another type.
std::string peak_instruction_set(const std::string& dtype);

// Best rate of independent multiply-adds in vector registers of `threads` threads together, in operations/s (two per
// multiply-add). Tile registers are not used. All threads begin a slice at the same time and the last one ends it; the
// best slice counts. Runs for about `seconds`. Throws std::invalid_argument where there is no instruction.
double peak_rate(const std::string& dtype, int threads, double seconds);

// Best rate in bytes/s of `threads` threads that go over arrays of together `bytes` bytes again and again, each over its
// share. By pattern: "read" sums one array, "copy" is a[i] = b[i], "triad" a[i] = b[i] + s * c[i]; those with "-stream"
// behind write past the caches. What the pattern names counts: no line that is read because it is written.
double stream_bandwidth(const std::string& pattern, std::size_t bytes, int threads, double seconds);

}  // namespace autotune
