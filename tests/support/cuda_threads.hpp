// What generated CUDA source needs to run on a CPU: the threads of a block take turns, blocks
// follow one another. Vector types keep CUDA's alignment, so that a sanitizer sees what a device
// would refuse.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda_fibers.hpp"

#define __global__
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__
#define alignas(bytes) __attribute__((aligned(bytes)))

using uint = unsigned int;

constexpr int kWarp = 32;
inline int block_threads;
inline std::unique_ptr<Barrier> block_barrier;
inline std::vector<std::unique_ptr<Barrier>> warp_barriers;
inline double exchanged[1024];

inline void __syncthreads() { block_barrier->arrive_and_wait(); }

inline uint __activemask() { return 0xffffffffu; }

// A thread's number in its block: the first extent changes fastest, and warps are cut from it.
inline unsigned block_extents[3] = {1, 1, 1};
inline int own_thread() {
  const unsigned rows = threadIdx.z * block_extents[1] + threadIdx.y;
  return static_cast<int>(rows * block_extents[0] + threadIdx.x);
}

template <class Value>
Value from_lane(Value value, int lane) {
  static_assert(sizeof(Value) <= sizeof(double));
  const int self = own_thread(), first = self / kWarp * kWarp;
  Barrier& warp = *warp_barriers[static_cast<size_t>(self / kWarp)];
  std::memcpy(&exchanged[self], &value, sizeof value);
  warp.arrive_and_wait();
  if (first + lane < block_threads) {
    std::memcpy(&value, &exchanged[first + lane], sizeof value);
  }
  warp.arrive_and_wait();
  return value;
}

// Within parts of `width` lanes. Past the end of its part a lane gets its own value.
template <class Value>
Value __shfl_down_sync(uint, Value value, int distance, int width) {
  const int own = own_thread() % kWarp;
  return from_lane(value, own % width + distance < width ? own + distance : own);
}

// Lanes beyond a part's end are counted from its begin again.
template <class Value>
Value __shfl_sync(uint, Value value, int lane, int width) {
  const int own = own_thread() % kWarp;
  return from_lane(value, own / width * width + lane % width);
}

using uchar = unsigned char;
using ushort = unsigned short;

#define VECTORS(name, scalar)                                                              \
  struct __attribute__((aligned(2 * sizeof(scalar)))) name##2 { scalar x, y; };            \
  struct __attribute__((aligned(4 * sizeof(scalar)))) name##4 { scalar x, y, z, w; };      \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                     \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
VECTORS(char, signed char)
VECTORS(uchar, unsigned char)
VECTORS(ushort, unsigned short)
VECTORS(int, int)
VECTORS(uint, unsigned)
VECTORS(float, float)
VECTORS(double, double)

using std::max;
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
using std::min;

inline Index place_of(int number, const unsigned* extents) {
  const unsigned at = static_cast<unsigned>(number);
  return {at % extents[0], at / extents[0] % extents[1], at / extents[0] / extents[1]};
}

template <class Kernel>
void launch_grid(const unsigned* grid, const unsigned* block, Kernel kernel) {
  const int blocks = static_cast<int>(grid[0] * grid[1] * grid[2]);
  block_threads = static_cast<int>(block[0] * block[1] * block[2]);
  std::copy_n(block, 3, block_extents);
  block_barrier = std::make_unique<Barrier>(block_threads);
  warp_barriers.clear();
  for (int first = 0; first < block_threads; first += kWarp) {
    warp_barriers.push_back(std::make_unique<Barrier>(std::min(kWarp, block_threads - first)));
  }
  fibers::run(block_threads, [=](int thread) {
    for (int at = 0; at < blocks; ++at) {
      threadIdx = place_of(thread, block);
      blockIdx = place_of(at, grid);
      kernel();
      __syncthreads();
    }
  });
}

template <class Kernel>
void launch(unsigned blocks, unsigned threads, unsigned rows, Kernel kernel) {
  const unsigned grid[] = {blocks, 1, 1}, block[] = {threads, rows, 1};
  launch_grid(grid, block, kernel);
}

template <class Kernel>
void launch(unsigned blocks, unsigned threads, Kernel kernel) {
  launch(blocks, threads, 1, kernel);
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
