// Elements of 16 bits, copies that are waited for later, and the instructions of a warp for
// cuda_threads.hpp: `ldmatrix` and `mma.sync` by the figures of the PTX ISA, each lane's registers taken from the others'. Generated
// source finds its own definitions done and leaves them out.
#pragma once

#include "cuda_threads.hpp"

#include <deque>
#include <unordered_set>
#include <utility>

#define __device__
#define __forceinline__ inline

inline uint16_t rounded_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return 0x7e00;
  if (size >= 65520.0) return sign | 0x7c00;
  if (size < std::ldexp(1.0, -14)) {
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  }
  int exponent = std::ilogb(size);
  double mantissa = std::nearbyint(std::ldexp(size, 10 - exponent));
  if (mantissa == 2048.0) {
    mantissa = 1024.0;
    ++exponent;
  }
  return sign | static_cast<uint16_t>(((exponent + 15) << 10) + (static_cast<int>(mantissa) - 1024));
}

inline float half_number(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double size = std::ldexp(mantissa, -24);
  if (exponent == 31) size = mantissa ? NAN : INFINITY;
  else if (exponent) size = std::ldexp(mantissa + 1024, exponent - 25);
  return static_cast<float>(bits & 0x8000 ? -size : size);
}

inline float leading_number(uint16_t bits) {
  const uint32_t whole = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &whole, sizeof value);
  return value;
}

inline uint16_t rounded_leading(float value) {
  uint32_t whole;
  std::memcpy(&whole, &value, sizeof whole);
  return static_cast<uint16_t>((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
}

struct half {
  uint16_t bits;
  half() = default;
  half(float value) : bits(rounded_half(value)) {}
  operator float() const { return half_number(bits); }
};

struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float value) : bits(rounded_leading(value)) {}
  operator float() const { return leading_number(bits); }
};

struct __attribute__((aligned(4))) half2 { half x, y; };
struct __attribute__((aligned(8))) half4 { half x, y, z, w; };
struct __attribute__((aligned(4))) nv_bfloat162 { nv_bfloat16 x, y; };
struct __attribute__((aligned(8))) nv_bfloat164 { nv_bfloat16 x, y, z, w; };

inline half __float2half_rn(float value) { return half(value); }
inline nv_bfloat16 __float2bfloat16_rn(float value) { return nv_bfloat16(value); }

// As those of CUDA's headers: each operation rounds.
#define HALVES(scalar)                                                                       \
  inline scalar##2 make_##scalar##2(scalar x, scalar y) { return {x, y}; }                   \
  inline scalar##4 make_##scalar##4(scalar x, scalar y, scalar z, scalar w) {                \
    return {x, y, z, w};                                                                     \
  }                                                                                          \
  inline scalar operator+(scalar x, scalar y) { return float(x) + float(y); }                \
  inline scalar operator-(scalar x, scalar y) { return float(x) - float(y); }                \
  inline scalar operator*(scalar x, scalar y) { return float(x) * float(y); }                \
  inline scalar operator/(scalar x, scalar y) { return float(x) / float(y); }                \
  inline scalar operator-(scalar x) { return -float(x); }                                    \
  inline scalar max(scalar x, scalar y) { return x > y ? x : y; }                            \
  inline scalar min(scalar x, scalar y) { return x < y ? x : y; }                            \
  inline float max(float x, scalar y) { return x > y ? x : float(y); }                       \
  inline float min(float x, scalar y) { return x < y ? x : float(y); }                       \
  inline float max(scalar x, float y) { return x > y ? float(x) : y; }                       \
  inline float min(scalar x, float y) { return x < y ? float(x) : y; }                       \
  inline scalar hexp(scalar value) { return std::exp(float(value)); }                        \
  inline scalar herf(scalar value) { return std::erf(float(value)); }                        \
  inline scalar htanh(scalar value) { return std::tanh(float(value)); }
HALVES(half)
HALVES(nv_bfloat16)

inline uint __pack_half2(half x, half y) { return x.bits | static_cast<uint>(y.bits) << 16; }
inline uint __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
  return x.bits | static_cast<uint>(y.bits) << 16;
}

inline const unsigned char* row_of[1024];
inline uint left_of[1024][4], right_of[1024][2];

inline Barrier& own_warp() { return *warp_barriers[threadIdx.x / kWarp]; }

// Matrices of eight rows of 16 bytes; lane 8m + r gives the address of row r of matrix m.
inline void load_matrices(uint* to, const void* row, int count, bool transposed) {
  const int self = static_cast<int>(threadIdx.x), lane = self % kWarp, first = self - lane;
  if (lane < 8 * count && reinterpret_cast<uintptr_t>(row) % 16 != 0) std::exit(6);
  row_of[self] = static_cast<const unsigned char*>(row);
  own_warp().arrive_and_wait();
  for (int matrix = 0; matrix < count; ++matrix) {
    const unsigned char* const* rows = row_of + first + 8 * matrix;
    if (transposed) {
      for (int part = 0; part < 2; ++part) {
        std::memcpy(reinterpret_cast<char*>(to + matrix) + 2 * part,
                    rows[lane % 4 * 2 + part] + 2 * (lane / 4), 2);
      }
    } else {
      std::memcpy(to + matrix, rows[lane / 4] + 4 * (lane % 4), 4);
    }
  }
  own_warp().arrive_and_wait();
}

// Rows of the left factor are those of groups of four lanes, and eight further; so are columns of
// the right one. A register holds neighbours along the reduction, four lanes hold `word` of them.
template <class Sum, int kDepth, class Decode>
void multiply(Sum* upper, Sum* lower, const uint* a, const uint* b, Decode element) {
  const int self = static_cast<int>(threadIdx.x), lane = self % kWarp, first = self - lane;
  std::memcpy(left_of[self], a, sizeof left_of[self]);
  std::memcpy(right_of[self], b, sizeof right_of[self]);
  own_warp().arrive_and_wait();
  constexpr int kWord = kDepth / 2, kPacked = kWord / 4;
  for (int k = 0; k < kDepth; ++k) {
    const int member = k % kWord / kPacked, part = k % kPacked, later = k / kWord;
    for (int column = 0; column < 2; ++column) {
      const int n = lane % 4 * 2 + column;
      const Sum right = element(right_of[first + 4 * n + member][later], part);
      const uint* registers = left_of[first + 4 * (lane / 4) + member];
      upper[column] += static_cast<Sum>(element(registers[2 * later], part)) * right;
      lower[column] += static_cast<Sum>(element(registers[2 * later + 1], part)) * right;
    }
  }
  own_warp().arrive_and_wait();
}

// A copy that a thread begins is made when its group is waited for; until then its place holds what
// no result survives. So neither reading too early nor overwriting too early goes unnoticed.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
// By thread.
inline std::vector<Copy> begun[1024];
inline std::deque<std::vector<Copy>> on_their_way[1024];

// Words that copies have written and that their threads have not fenced for the asynchronous proxy
// (cuda_warpgroups.hpp), and those of each thread.
constexpr uintptr_t kWordBytes = 4;
inline std::unordered_set<uintptr_t> unshared;
inline std::vector<uintptr_t> unshared_of[1024];

inline void note_written(const void* to, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(to) / kWordBytes;
  for (uintptr_t word = first; word < first + bytes / kWordBytes; ++word) {
    if (unshared.insert(word).second) unshared_of[threadIdx.x].push_back(word);
  }
}

inline void begin_copy(void* to, const void* from, size_t bytes, bool valid) {
  // Also where nothing is read: the instruction's addresses are multiples of what it copies.
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0) std::exit(8);
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) std::exit(8);
  std::memset(to, 0x7f, bytes);
  begun[threadIdx.x].push_back({to, valid ? from : nullptr, bytes});
}

inline void wait_for_copies(size_t groups) {
  std::deque<std::vector<Copy>>& own = on_their_way[threadIdx.x];
  while (own.size() > groups) {
    for (const Copy& copy : own.front()) {
      if (copy.from == nullptr) std::memset(copy.to, 0, copy.bytes);
      else std::memcpy(copy.to, copy.from, copy.bytes);
      note_written(copy.to, copy.bytes);
    }
    own.pop_front();
  }
}

#define AUTOTUNE_COPIES
inline void autotune_end_copies() {
  on_their_way[threadIdx.x].push_back(std::exchange(begun[threadIdx.x], {}));
}
inline void autotune_wait_copies_0() { wait_for_copies(0); }
inline void autotune_wait_copies_1() { wait_for_copies(1); }
inline void autotune_wait_copies_2() { wait_for_copies(2); }
inline void autotune_wait_copies_3() { wait_for_copies(3); }
#define COPIES(bytes)                                                                   \
  inline void autotune_copy_##bytes(void* to, const void* from) {                       \
    begin_copy(to, from, bytes, true);                                                  \
  }                                                                                     \
  inline void autotune_copy_##bytes##_if(void* to, const void* from, int valid) {       \
    begin_copy(to, from, bytes, valid != 0);                                            \
  }                                                                                     \
  inline void autotune_zero_##bytes(void* to) {                                         \
    std::memset(to, 0, bytes);                                                          \
    note_written(to, bytes);                                                            \
  }
COPIES(4)
COPIES(8)
COPIES(16)

inline uint autotune_tf32(uint value) { return value + 0x1000 & ~0x1fffu; }

// Copies of floats that are rounded on their way, and there at once.
inline void copy_rounded(void* to, const void* from, size_t bytes, bool valid) {
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0) std::exit(8);
  if (valid && reinterpret_cast<uintptr_t>(from) % bytes != 0) std::exit(8);
  for (size_t at = 0; at < bytes; at += sizeof(uint)) {
    uint value = 0;
    if (valid) std::memcpy(&value, static_cast<const char*>(from) + at, sizeof value);
    value = autotune_tf32(value);
    std::memcpy(static_cast<char*>(to) + at, &value, sizeof value);
  }
  note_written(to, bytes);
}
#define AUTOTUNE_ROUNDING
#define ROUNDED(bytes)                                                                  \
  inline void autotune_round_##bytes(void* to, const void* from) {                      \
    copy_rounded(to, from, bytes, true);                                                \
  }                                                                                     \
  inline void autotune_round_##bytes##_if(void* to, const void* from, int valid) {      \
    copy_rounded(to, from, bytes, valid != 0);                                          \
  }
ROUNDED(4)
ROUNDED(8)
ROUNDED(16)

#define AUTOTUNE_LDMATRIX
inline void autotune_ldmatrix_x4(uint* to, const void* row) { load_matrices(to, row, 4, false); }
inline void autotune_ldmatrix_x2(uint* to, const void* row) { load_matrices(to, row, 2, false); }
#define AUTOTUNE_LDMATRIX_TRANS
inline void autotune_ldmatrix_x4_trans(uint* to, const void* row) {
  load_matrices(to, row, 4, true);
}
inline void autotune_ldmatrix_x2_trans(uint* to, const void* row) {
  load_matrices(to, row, 2, true);
}

#define AUTOTUNE_MMA_M16N8K16
inline void autotune_mma_m16n8k16(float* upper, float* lower, const uint* a, const uint* b) {
  multiply<float, 16>(upper, lower, a, b, [](uint word, int part) {
    return half_number(static_cast<uint16_t>(word >> 16 * part));
  });
}
#define AUTOTUNE_MMA_M16N8K16_BF16
inline void autotune_mma_m16n8k16_bf16(float* upper, float* lower, const uint* a, const uint* b) {
  multiply<float, 16>(upper, lower, a, b, [](uint word, int part) {
    return leading_number(static_cast<uint16_t>(word >> 16 * part));
  });
}
#define AUTOTUNE_TF32
#define AUTOTUNE_MMA_M16N8K8_TF32
inline void autotune_mma_m16n8k8_tf32(float* upper, float* lower, const uint* a, const uint* b) {
  multiply<float, 8>(upper, lower, a, b, [](uint word, int) {
    if (word & 0x1fffu) std::exit(7);
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  });
}
#define AUTOTUNE_MMA_M16N8K32_INT8
inline void autotune_mma_m16n8k32_int8(int* upper, int* lower, const uint* a, const uint* b) {
  multiply<int, 32>(upper, lower, a, b, [](uint word, int part) {
    return static_cast<int>(static_cast<int8_t>(word >> 8 * part));
  });
}
