#include "cache_flush.hpp"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <cpuid.h>
#include <immintrin.h>

#include "pin_thread.hpp"

namespace autotune {
namespace {

constexpr std::size_t kLine = 64;

bool has_clflushopt() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_CLFLUSHOPT) != 0;
}

// Does not wait for one line before the next, as the older instruction does: many times faster.
__attribute__((target("clflushopt"))) void flush_unordered(const std::byte* line, const std::byte* end) {
    for (; line < end; line += kLine) _mm_clflushopt(const_cast<std::byte*>(line));
}

void flush_ordered(const std::byte* line, const std::byte* end) {
    for (; line < end; line += kLine) _mm_clflush(line);
}

// One word of each line of `count` bytes from `first` on, around the end of the buffer.
void read_lines(std::span<const std::byte> buffer, std::size_t first, std::size_t count) {
    std::size_t at = first / kLine * kLine;
    for (std::size_t read = 0; read < count; read += kLine) {
        asm volatile("" : : "r"(*reinterpret_cast<const volatile std::uint8_t*>(buffer.data() + at)));
        at += kLine;
        if (at >= buffer.size()) at = 0;
    }
}

}  // namespace

void flush_lines(const std::byte* begin, std::size_t bytes) {
    static const bool unordered = has_clflushopt();
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::byte* line = begin - address % kLine;
    _mm_mfence();
    (unordered ? flush_unordered : flush_ordered)(line, begin + bytes);
    _mm_mfence();
}

void read_through(std::span<const std::byte> buffer, std::span<const int> cpus, std::size_t least) {
    const std::size_t part = (buffer.size() + cpus.size() - 1) / cpus.size();
    const std::size_t count = std::min(buffer.size(), std::max(part, least));
    std::vector<std::jthread> readers;
    for (std::size_t i = 0; i < cpus.size(); ++i) {
        readers.emplace_back([buffer, cpu = cpus[i], first = std::min(i * part, buffer.size() - 1), count] {
            static_cast<void>(pin_calling_thread(cpu));
            read_lines(buffer, first, count);
        });
    }
}

}  // namespace autotune
