// Logarithm and exponential to base 2 without branches or tables, so that loops over them become vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "simd.hpp"

namespace autotune {

// The logarithm of a positive, normal, finite double, to about two units in the last place; any other argument gives
// some number. The argument is 2^k * m with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh((m - 1) / (m + 1)).
AUTOTUNE_ALWAYS_INLINE double log2_positive(double x) {
    constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;
    constexpr std::uint64_t kExponent = 0xfff0000000000000ULL;
    // Biased by 1024, so that the exponent is not negative: few processors shift signed integers of 64 bits.
    constexpr std::uint64_t kBias = std::uint64_t{1024} << 52;
    constexpr std::uint64_t kTwo52 = 0x4330000000000000ULL;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t shifted = bits - kSqrtHalf + kBias;
    // An integer below 2^52 in the mantissa of 2^52 is that integer as a double.
    const double exponent = std::bit_cast<double>((shifted >> 52) | kTwo52) - (4503599627370496.0 + 1024.0);
    const double mantissa = std::bit_cast<double>(bits - ((shifted & kExponent) - kBias));
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double t = s * s;
    double series = 1.0 / 21;
    series = series * t + 1.0 / 19;
    series = series * t + 1.0 / 17;
    series = series * t + 1.0 / 15;
    series = series * t + 1.0 / 13;
    series = series * t + 1.0 / 11;
    series = series * t + 1.0 / 9;
    series = series * t + 1.0 / 7;
    series = series * t + 1.0 / 5;
    series = series * t + 1.0 / 3;
    constexpr double kTwoOverLog2 = 2.8853900817779268;
    return exponent + kTwoOverLog2 * (s + s * t * series);
}

// 2^x for |x| <= 1020, to about two units in the last place; any other argument gives some number. The argument is
// n + f with n whole and |f| <= 1/2, and 2^f is summed up as a series.
AUTOTUNE_ALWAYS_INLINE double exp2_bounded(double x) {
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
    const double shifted = x + kShift;
    const double t = (x - (shifted - kShift)) * 0.69314718055994531;
    double series = 1.0 / 87178291200.0;
    series = series * t + 1.0 / 6227020800.0;
    series = series * t + 1.0 / 479001600.0;
    series = series * t + 1.0 / 39916800.0;
    series = series * t + 1.0 / 3628800.0;
    series = series * t + 1.0 / 362880.0;
    series = series * t + 1.0 / 40320.0;
    series = series * t + 1.0 / 5040.0;
    series = series * t + 1.0 / 720.0;
    series = series * t + 1.0 / 120.0;
    series = series * t + 1.0 / 24.0;
    series = series * t + 1.0 / 6.0;
    series = series * t + 0.5;
    const std::uint64_t scale = (std::bit_cast<std::uint64_t>(shifted) << 52) + (std::uint64_t{1023} << 52);
    return std::bit_cast<double>(scale) * (1.0 + (t + t * t * series));
}

}  // namespace autotune
