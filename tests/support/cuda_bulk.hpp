// Copies by the device's copy engine for cuda_threads.hpp, with their barriers in shared memory
// (PTX ISA, "cp.async.bulk.tensor", "mbarrier" and "Swizzling modes"). A copy arrives only when a
// thread waits for its barrier; until then there is garbage where it goes to.
//
// Ends the program with 16 where a barrier is used that has not been made or fenced, with 17 where
// bytes or arrivals are others than were said, with 18 where a copy or its tensor is not aligned,
// with 19 where a box is none that a descriptor may have.
#pragma once

#include <array>
#include <map>

#include "cuda_warpgroups.hpp"

#define __grid_constant__

// Extents are those of the innermost dimension first, as the driver takes them.
struct CUtensorMap {
  const char* tensor;
  int rank, size;
  std::array<long, 5> shape, box;
};

namespace bulk {

constexpr int kMostBox = 256, kTensorAlignment = 16;

struct Full {
  bool fenced = false;
  int count = 0, pending = 0;
  long phase = 0, expected = 0;
  std::vector<std::function<long()>> copies;
};
inline std::map<unsigned, Full> barriers;

inline CUtensorMap describe(const void* tensor, int rank, int size, std::array<long, 5> shape,
                            std::array<long, 5> box) {
  const long row = box[0] * size;
  if (reinterpret_cast<uintptr_t>(tensor) % kTensorAlignment) std::exit(18);
  if (rank > 1 && shape[0] * size % kTensorAlignment) std::exit(18);
  if (row != 32 && row != 64 && row != 128) std::exit(19);
  for (int at = 0; at < rank; ++at) {
    if (box[at] < 1 || box[at] > kMostBox) std::exit(19);
  }
  return {static_cast<const char*>(tensor), rank, size, shape, box};
}

inline Full& known(unsigned barrier) {
  const auto found = barriers.find(barrier);
  if (found == barriers.end() || !found->second.fenced) std::exit(16);
  return found->second;
}

inline void init(unsigned barrier, int count) {
  barriers[barrier] = {false, count, count};
}

inline void fence_init() {
  for (auto& [_, full] : barriers) full.fenced = true;
}

inline void expect(unsigned barrier, int bytes) {
  Full& full = known(barrier);
  full.expected += bytes;
  if (--full.pending < 0) std::exit(17);
}

// Moves a box, in rows of which 16 bytes are exchanged by the bits of their address above the
// seventh; what lies beyond the tensor is zero. Returns how many bytes were written.
inline long move(const CUtensorMap& map, char* to, std::array<long, 5> corner) {
  const long row = map.box[0] * map.size;
  long count = row;
  for (int at = 1; at < map.rank; ++at) count *= map.box[at];
  for (long byte = 0; byte < count; byte += map.size) {
    long rest = byte / map.size, offset = 0, step = map.size;
    bool inside = true;
    for (int at = 0; at < map.rank; ++at) {
      const long place = corner[at] + rest % map.box[at];
      inside = inside && place >= 0 && place < map.shape[at];
      offset += place * step;
      rest /= map.box[at];
      step *= map.shape[at];
    }
    auto place = reinterpret_cast<uintptr_t>(to) + byte;
    place ^= (place >> 7 & (row / 16 - 1)) << 4;
    char* written = reinterpret_cast<char*>(place);
    if (inside) std::memcpy(written, map.tensor + offset, map.size);
    else std::memset(written, 0, map.size);
  }
  return count;
}

inline void copy(int rank, unsigned to, unsigned long long map, unsigned barrier,
                 std::array<long, 5> corner) {
  const CUtensorMap& given = *reinterpret_cast<const CUtensorMap*>(map);
  if (given.rank != rank) std::exit(19);
  if (to % (8 * given.box[0] * given.size) != 0) std::exit(18);
  char* place = reinterpret_cast<char*>(warpgroup::self().window + to);
  long count = given.size;
  for (int at = 0; at < rank; ++at) count *= given.box[at];
  std::memset(place, 0x7f, count);
  Full& full = known(barrier);
  full.copies.push_back([=, map = given] { return move(map, place, corner); });
}

// Whether the phase of a parity is complete; else the others' turn comes.
inline unsigned try_wait(unsigned barrier, int parity) {
  Full& full = known(barrier);
  if (full.phase % 2 == parity && full.pending > 0) {
    const Index thread = threadIdx, block = blockIdx;
    fibers::leave();
    threadIdx = thread;
    blockIdx = block;
    return 0;
  }
  if (full.phase % 2 == parity) {
    long moved = 0;
    for (const std::function<long()>& each : full.copies) moved += each();
    if (moved != full.expected) std::exit(17);
    full.copies.clear();
    full.expected = 0;
    full.pending = full.count;
    ++full.phase;
    ++fibers::scheduler.events;
  }
  // What the engine wrote is there for instructions of warpgroups without a fence.
  warpgroup::Thread& thread = warpgroup::self();
  thread.proxy_fenced = true;
  if (thread.committed.empty() && thread.begun.empty()) thread.window = 0;
  return 1;
}

}  // namespace bulk

inline void __trap() { std::exit(18); }

// A barrier's address is a number of its own: on this machine it may be far from what is copied.
inline size_t __cvta_generic_to_shared(const unsigned long long* barrier) {
  static std::map<const void*, size_t> numbers;
  return numbers.try_emplace(barrier, 8 * numbers.size()).first->second;
}
