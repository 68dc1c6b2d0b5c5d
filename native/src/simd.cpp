#include "simd.hpp"

#include <stdexcept>

namespace autotune {

Simd best_simd() {
    // GCC's own check includes whether the operating system saves the registers.
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma")) {
        return Simd::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return Simd::avx2;
    }
    return Simd::baseline;
}

Simd simd_from_name(const std::string& name) {
    const Simd best = best_simd();
    if (name == "best") {
        return best;
    }
    for (const Simd level : {Simd::baseline, Simd::avx2, Simd::avx512}) {
        if (name == simd_name(level)) {
            if (level > best) {
                throw std::invalid_argument("this processor has no " + name);
            }
            return level;
        }
    }
    throw std::invalid_argument("unknown instruction set '" + name + "'; known: best, baseline, avx2, avx512");
}

std::string simd_name(Simd level) {
    switch (level) {
        case Simd::avx512: return "avx512";
        case Simd::avx2: return "avx2";
        default: return "baseline";
    }
}

}  // namespace autotune
