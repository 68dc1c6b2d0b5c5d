// Calls a compiled function over and over and reads the clock around it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace autotune {

constexpr std::size_t kMostCallArguments = 6;

// A C function that takes up to six machine words (integers or pointers, in registers) and returns an int, 0 for
// success. It gets all six: by the calling convention of x86-64 it never sees those that it does not take.
struct NativeCall {
    std::uintptr_t address = 0;
    std::array<std::uint64_t, kMostCallArguments> arguments{};
};

// Fills `seconds` with one sample each: the time of one call, averaged over `number` calls made back to back. Nothing
// is called that is not timed. Returns 0, or the first result of the function that is not; it is then not called
// again, and the sample that it belongs to and those after it are left as they were.
int sample_calls(const NativeCall& call, std::int64_t number, std::span<double> seconds);

}  // namespace autotune
