#include "timing.hpp"

#include <ctime>

namespace autotune {
namespace {

using Word = std::uint64_t;
using Function = int (*)(Word, Word, Word, Word, Word, Word);

// Nanoseconds of the clock that is never adjusted: network time slews the ordinary monotonic one while it is read.
std::int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

int sample_calls(const NativeCall& call, std::int64_t number, std::span<double> seconds) {
    const auto function = reinterpret_cast<Function>(call.address);
    const auto [a, b, c, d, e, f] = call.arguments;
    for (double& sample : seconds) {
        const std::int64_t begin = now();
        for (std::int64_t i = 0; i < number; ++i) {
            if (const int result = function(a, b, c, d, e, f); result != 0) [[unlikely]] {
                return result;
            }
        }
        sample = static_cast<double>(now() - begin) * 1e-9 / static_cast<double>(number);
    }
    return 0;
}

}  // namespace autotune
