// One body, compiled for several instruction sets and chosen at run time.
#pragma once

#include <string>

namespace autotune {

enum class Simd { baseline, avx2, avx512 };

// The best level that this processor and its operating system support.
Simd best_simd();

// "baseline", "avx2" or "avx512"; "best" is the best one. Throws std::invalid_argument for anything else and for a
// level that this processor lacks.
Simd simd_from_name(const std::string& name);

std::string simd_name(Simd level);

}  // namespace autotune

#define AUTOTUNE_ALWAYS_INLINE inline __attribute__((always_inline))

// Defines `name(Simd level, args...)`, which runs `body(args...)` compiled for that level. `body` and what it calls in
// its loops must be AUTOTUNE_ALWAYS_INLINE, so that they are compiled once in each of the three functions. Arguments
// are passed by value: hand over pointers. There is no contraction of multiplications and additions (see the build
// file), so that all levels compute equal results.
#define AUTOTUNE_DISPATCH(name, body)                                                                      \
    template <class... Args>                                                                               \
    __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))) auto name##_avx512(Args... args) { \
        return body(args...);                                                                              \
    }                                                                                                      \
    template <class... Args>                                                                               \
    __attribute__((target("avx2,fma"))) auto name##_avx2(Args... args) {                                   \
        return body(args...);                                                                              \
    }                                                                                                      \
    template <class... Args>                                                                               \
    auto name(::autotune::Simd level, Args... args) {                                                      \
        switch (level) {                                                                                   \
            case ::autotune::Simd::avx512: return name##_avx512(args...);                                  \
            case ::autotune::Simd::avx2: return name##_avx2(args...);                                      \
            default: return body(args...);                                                                 \
        }                                                                                                  \
    }
