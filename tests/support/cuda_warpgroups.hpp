// Matrix instructions of warpgroups for cuda_threads.hpp, by the tables of the PTX ISA: descriptors
// ("Matrix Descriptor Format"), layouts with and without swizzling ("Canonical Layouts") and the
// fragment of the sums ("WGMMA .m64nNk16 register fragment layout for accumulator matrix D"). What is begun
// reads its factors as early as it may, and as late: when it is waited for, and only then sums are
// there.
//
// Ends the program with 6 where a matrix is not aligned, with 8 where two of them are too far apart
// for shared memory, with 10 where a fence is missing, with 11 where lanes describe different
// matrices, with 12 where a descriptor moves the pattern of swizzled rows, with 13 where a factor is read that a
// copy has written and its thread has not fenced, with 14 where a factor changes meanwhile, with 15
// where bits of a float are cut off.
#pragma once

#include <functional>

#include "cuda_warps.hpp"

namespace warpgroup {

constexpr int kLanes = 128;
constexpr uintptr_t kSharedBytes = 1 << 18;

struct Half {
  using Bits = uint16_t;
  using Sum = float;
  static float number(Bits bits) { return half_number(bits); }
};
struct Leading {
  using Bits = uint16_t;
  using Sum = float;
  static float number(Bits bits) { return leading_number(bits); }
};
struct Rounded {
  using Bits = uint32_t;
  using Sum = float;
  // What is not rounded before would be cut off.
  static float number(Bits bits) {
    if (bits & 0x1fff) std::exit(15);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
};
struct Byte {
  using Bits = int8_t;
  using Sum = int;
  static int number(Bits bits) { return bits; }
};

struct Thread {
  // Where shared memory begins: it is found anew whenever nothing is begun.
  uintptr_t window = 0;
  // Since the last group; since the last wait.
  bool proxy_fenced = false, fenced = false;
  size_t descriptions = 0;
  std::vector<std::function<void()>> begun;
  std::vector<std::vector<std::function<void()>>> committed;
};
inline Thread threads[1024];

inline Thread& self() { return threads[threadIdx.x]; }

// What the lanes of a warpgroup have described so far. They are compared without waiting for one another,
// which would be as good as a barrier that is not there.
inline std::vector<uint64_t> described[1024 / kLanes];

inline void describe(uint64_t matrix) {
  std::vector<uint64_t>& known = described[threadIdx.x / kLanes];
  const size_t own = self().descriptions++;
  if (own == known.size()) known.push_back(matrix);
  else if (known[own] != matrix) std::exit(11);
}

inline void fence_proxy() {
  for (uintptr_t word : unshared_of[threadIdx.x]) unshared.erase(word);
  unshared_of[threadIdx.x].clear();
  self().proxy_fenced = true;
}

template <class Kind>
auto element(uint64_t matrix, bool turned, int result, int term, bool early) {
  constexpr int kSize = sizeof(typename Kind::Bits), kWidth = 16 / kSize;
  if (matrix >> 49 & 7) std::exit(12);
  const uintptr_t start = (matrix & 0x3fff) << 4;
  const uintptr_t leading = (matrix >> 16 & 0x3fff) << 4, stride = (matrix >> 32 & 0x3fff) << 4;
  // Along the reduction ((8,m),(T,2k)):((1T,SBO),(1,LBO)).
  uintptr_t at = result % 8 * 16 + result / 8 * stride + term % kWidth * kSize;
  at += term / kWidth * leading;
  // Along results ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)).
  if (turned) {
    at = result % kWidth * kSize + result / kWidth * stride + term % 8 * 16 + term / 8 * leading;
  }
  // Of swizzled rows, along the reduction ((8,m),(T,2k)):((row,SBO),(1,T)), of which an instruction
  // reads one; along results ((T,row,m),(8,k)):((1,T,LBO),(row,SBO)).
  constexpr uintptr_t kRows[] = {16, 128, 64, 32};
  const uintptr_t row = kRows[matrix >> 62];
  if (row > 16) {
    const uintptr_t wide = row / kSize;
    at = result % 8 * row + result / 8 * stride + term * kSize;
    if (turned) {
      at = result % wide * kSize + result / wide * leading + term % 8 * row + term / 8 * stride;
    }
  }
  typename Kind::Bits bits;
  uintptr_t linear = (start + at) % kSharedBytes;
  linear ^= (linear >> 7 & (row / 16 - 1)) << 4;
  const uintptr_t place = self().window + linear;
  if (early && unshared.count(place / kWordBytes)) std::exit(13);
  std::memcpy(&bits, reinterpret_cast<const char*>(place), sizeof bits);
  return Kind::number(bits);
}

template <class Kind>
void begin(std::vector<typename Kind::Sum*> sums, int columns, uint64_t left, uint64_t right,
           bool left_turned, bool right_turned) {
  if (!self().proxy_fenced || !self().fenced) std::exit(10);
  describe(left);
  describe(right);
  const auto products = [=](bool early) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    std::vector<typename Kind::Sum> found(columns / 2);
    for (int sum = 0; sum < columns / 2; ++sum) {
      const int row = lane / 32 * 16 + lane % 32 / 4 + sum / 2 % 2 * 8;
      const int column = sum / 4 * 8 + lane % 4 * 2 + sum % 2;
      for (int term = 0; term < 32 / static_cast<int>(sizeof(typename Kind::Bits)); ++term) {
        found[sum] += element<Kind>(left, left_turned, row, term, early) *
                      element<Kind>(right, right_turned, column, term, early);
      }
    }
    return found;
  };
  self().begun.push_back([=, before = products(true)] {
    const auto found = products(false);
    if (std::memcmp(found.data(), before.data(), found.size() * sizeof found[0])) std::exit(14);
    for (int sum = 0; sum < columns / 2; ++sum) *sums[sum] += found[sum];
  });
}

inline void commit() {
  self().committed.push_back(self().begun);
  self().begun.clear();
  self().proxy_fenced = false;
}

inline void wait(size_t pending) {
  Thread& thread = self();
  while (thread.committed.size() > pending) {
    for (const std::function<void()>& multiply : thread.committed.front()) multiply();
    thread.committed.erase(thread.committed.begin());
  }
  if (thread.committed.empty() && thread.begun.empty()) {
    thread.window = 0;
    thread.fenced = false;
  }
}

}  // namespace warpgroup

// Addresses of 18 bits, the first one that is asked for in the middle.
inline size_t __cvta_generic_to_shared(const void* place) {
  const auto at = reinterpret_cast<uintptr_t>(place);
  uintptr_t& window = warpgroup::self().window;
  if (at % 16 != 0) std::exit(6);
  if (window == 0) window = (at & ~uintptr_t{1023}) - warpgroup::kSharedBytes / 2;
  if (at - window >= warpgroup::kSharedBytes) std::exit(8);
  return at - window;
}
