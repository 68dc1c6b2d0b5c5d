// Random numbers by counting: a point of a sample is a function of (seed, purpose, index) and of nothing else.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace autotune {

using Uint128 = unsigned __int128;

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    constexpr int kRounds = 10;
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t left = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t right = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(right),
                   static_cast<std::uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(left)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return counter;
}

// What a stream is for: streams of different purposes are independent under one seed.
enum class Purpose : std::uint32_t { uniform, stratified, neighbours, crossover };

// The random numbers of one point.
class Stream {
  public:
    Stream(std::uint64_t seed, Purpose purpose, std::uint64_t index)
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          counter_{0, static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(index),
                   static_cast<std::uint32_t>(index >> 32)} {}

    std::uint64_t next() {
        if (used_ == 4) {
            block_ = philox4x32(counter_, key_);
            ++counter_[0];
            used_ = 0;
        }
        const std::uint64_t low = block_[used_], high = block_[used_ + 1];
        used_ += 2;
        return high << 32 | low;
    }

    // Uniform in [0, count), count at least 1: draws as many bits as the largest value has until they fit.
    std::uint64_t below(std::uint64_t count) {
        if (count == 1) {
            return 0;
        }
        const int unused = std::countl_zero(count - 1);
        std::uint64_t value;
        do {
            value = next() >> unused;
        } while (value >= count);
        return value;
    }
    Uint128 below(Uint128 count) {
        const auto top = static_cast<std::uint64_t>((count - 1) >> 64);
        if (top == 0) {
            return count >> 64 == 0 ? below(static_cast<std::uint64_t>(count)) : next();
        }
        const int unused = std::countl_zero(top);
        Uint128 value;
        do {
            const std::uint64_t low = next();
            value = static_cast<Uint128>(next() >> unused) << 64 | low;
        } while (value >= count);
        return value;
    }

  private:
    std::array<std::uint32_t, 2> key_;
    std::array<std::uint32_t, 4> counter_;
    std::array<std::uint32_t, 4> block_{};
    std::size_t used_ = 4;
};

}  // namespace autotune
