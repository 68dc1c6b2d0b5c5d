// Makes memory cold: what a program touches next comes from memory and not from a cache.
#pragma once

#include <cstddef>
#include <span>

namespace autotune {

// Evicts the lines of [begin, begin + bytes) from every cache of every core; what was written goes to memory first.
void flush_lines(const std::byte* begin, std::size_t bytes);

// Reads through `buffer` on each of `cpus` at once, each at least `least` bytes of it and all together everything, which
// displaces what lay in the caches of these cores and, if the buffer is large enough, in those that they share. A
// thread that cannot be pinned reads where the system puts it.
void read_through(std::span<const std::byte> buffer, std::span<const int> cpus, std::size_t least);

}  // namespace autotune
