// What generated CUDA source needs to run on a CPU: every thread of a block is a thread of the
// machine, blocks follow one another. Vector types keep CUDA's alignment, so that a sanitizer sees
// what a device would refuse.
#pragma once

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
#define __restrict__
#define alignas(bytes) __attribute__((aligned(bytes)))

using uint = unsigned int;

struct Index {
  unsigned x, y = 0, z = 0;
};
inline thread_local Index threadIdx, blockIdx;

constexpr int kWarp = 32;
inline int block_threads;
inline std::unique_ptr<std::barrier<>> block_barrier;
inline std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
inline double exchanged[1024];

inline void __syncthreads() { block_barrier->arrive_and_wait(); }

inline uint __activemask() { return 0xffffffffu; }

template <class Value>
Value from_lane(Value value, int lane) {
  static_assert(sizeof(Value) <= sizeof(double));
  const int self = static_cast<int>(threadIdx.x), first = self / kWarp * kWarp;
  std::barrier<>& warp = *warp_barriers[static_cast<size_t>(self / kWarp)];
  std::memcpy(&exchanged[self], &value, sizeof value);
  warp.arrive_and_wait();
  if (lane < kWarp && first + lane < block_threads) {
    std::memcpy(&value, &exchanged[first + lane], sizeof value);
  }
  warp.arrive_and_wait();
  return value;
}

template <class Value>
Value __shfl_down_sync(uint, Value value, int distance, int) {
  return from_lane(value, static_cast<int>(threadIdx.x) % kWarp + distance);
}

template <class Value>
Value __shfl_sync(uint, Value value, int lane, int) {
  return from_lane(value, lane);
}

using uchar = unsigned char;

#define VECTORS(name, scalar)                                                              \
  struct __attribute__((aligned(2 * sizeof(scalar)))) name##2 { scalar x, y; };            \
  struct __attribute__((aligned(4 * sizeof(scalar)))) name##4 { scalar x, y, z, w; };      \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                     \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
VECTORS(char, signed char)
VECTORS(uchar, unsigned char)
VECTORS(int, int)
VECTORS(uint, unsigned)
VECTORS(float, float)
VECTORS(double, double)

using std::max;
using std::min;

template <class Kernel>
void launch(int blocks, int threads, Kernel kernel) {
  block_threads = threads;
  block_barrier = std::make_unique<std::barrier<>>(threads);
  warp_barriers.clear();
  for (int first = 0; first < threads; first += kWarp) {
    warp_barriers.push_back(std::make_unique<std::barrier<>>(std::min(kWarp, threads - first)));
  }
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([=] {
      for (int block = 0; block < blocks; ++block) {
        threadIdx = {static_cast<unsigned>(thread)};
        blockIdx = {static_cast<unsigned>(block)};
        kernel();
        __syncthreads();
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}

// An array of exactly so many elements: those of the file, or, where there is none, garbage.
template <class Element>
Element* load(const char* path, size_t elements) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, elements * sizeof(Element)) != 0) std::exit(3);
  std::memset(memory, 0x7f, elements * sizeof(Element));
  if (std::FILE* file = std::fopen(path, "rb")) {
    if (std::fread(memory, sizeof(Element), elements, file) != elements) std::exit(4);
    std::fclose(file);
  }
  return static_cast<Element*>(memory);
}

template <class Element>
void save(const char* path, const Element* array, size_t elements) {
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr || std::fwrite(array, sizeof(Element), elements, file) != elements) {
    std::exit(5);
  }
  std::fclose(file);
}
