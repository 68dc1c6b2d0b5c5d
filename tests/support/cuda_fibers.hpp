// Threads of a block that take turns on one thread of the machine, each on a stack of its own: a
// barrier costs two changes of stacks instead of two of the system's threads.
//
// A thread runs until it waits for others, and a warp until all of its threads wait for other
// warps. So they find nothing done by those whose turn comes later, overwrite what these have yet to
// read, and a barrier that is missing is seen in every run, not by chance. Who arrives last goes on
// first: the order differs from one barrier to the next.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct Index {
  unsigned x, y = 0, z = 0;
};
// Of the thread whose turn it is.
inline Index threadIdx, blockIdx;

namespace fibers {

constexpr size_t kStackBytes = 512 << 10, kGuardBytes = 4096;
// Threads of a warp, which go on as far as they can before another one has its turn.
constexpr int kTogether = 32;

struct Fiber {
  int number = 0;
  char* stack = nullptr;
  void* resumes_at = nullptr;
  void* sanitizer = nullptr;
  bool ended = false;
};

struct Scheduler {
  void* resumes_at = nullptr;
  void* sanitizer = nullptr;
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  Fiber* running = nullptr;
  const std::function<void(int)>* work = nullptr;
  // Arrivals at barriers and ends of threads so far.
  long events = 0;
  // Kept for the next launch.
  std::vector<char*> stacks;
};
inline Scheduler scheduler;

// Saves the registers that a call preserves on the stack, notes where it ends, and goes on where
// another one was left. The compiler must not conclude from its body what it changes.
__attribute__((naked, noipa)) inline void change_stack(void** left, void* resumed) {
  asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

// What the address sanitizer has to know of stacks.
inline void announce(void** saved, const void* stack, size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(saved, stack, bytes);
#endif
}
inline void arrived(void* saved, const void** stack, size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(saved, stack, bytes);
#endif
}

inline void leave() {
  Fiber& self = *scheduler.running;
  announce(self.ended ? nullptr : &self.sanitizer, scheduler.stack, scheduler.stack_bytes);
  change_stack(&self.resumes_at, scheduler.resumes_at);
  arrived(self.sanitizer, &scheduler.stack, &scheduler.stack_bytes);
}

inline void resume(Fiber& fiber) {
  scheduler.running = &fiber;
  announce(&scheduler.sanitizer, fiber.stack, kStackBytes);
  change_stack(&scheduler.resumes_at, fiber.resumes_at);
  arrived(scheduler.sanitizer, nullptr, nullptr);
}

// It never returns, so it must not mark its frame as one that nobody may touch: the next launch
// has its stack.
__attribute__((no_sanitize("address"))) inline void begin() {
  arrived(nullptr, &scheduler.stack, &scheduler.stack_bytes);
  Fiber& self = *scheduler.running;
  (*scheduler.work)(self.number);
  self.ended = true;
  ++scheduler.events;
  leave();
  std::abort();
}

// A stack above a page that nobody may touch.
inline char* stack_of(size_t number) {
  while (scheduler.stacks.size() <= number) {
    void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) std::exit(8);
    scheduler.stacks.push_back(static_cast<char*>(memory) + kGuardBytes);
  }
  return scheduler.stacks[number];
}

inline void prepare(Fiber& fiber, int number) {
  fiber.number = number;
  fiber.stack = stack_of(static_cast<size_t>(number));
  // What change_stack pops: six registers and where it returns to. Above is where that function
  // would return to, so that its frame is aligned as by a call.
  auto* top = reinterpret_cast<uint64_t*>(fiber.stack + kStackBytes);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&begin);
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  fiber.resumes_at = top;
}

// Ends the program with 9 where every thread waits for another.
inline void run(int count, const std::function<void(int)>& work) {
  scheduler.work = &work;
  std::vector<Fiber> all(static_cast<size_t>(count));
  for (int number = 0; number < count; ++number) prepare(all[number], number);
  for (int left = count; left > 0;) {
    const long before = scheduler.events;
    for (int first = 0; first < count; first += kTogether) {
      for (long known = -1; known != scheduler.events;) {
        known = scheduler.events;
        for (int number = first; number < std::min(first + kTogether, count); ++number) {
          if (all[number].ended) continue;
          resume(all[number]);
          left -= all[number].ended;
        }
      }
    }
    if (scheduler.events == before) {
      std::fprintf(stderr, "%d threads wait for others that do not come\n", left);
      std::exit(9);
    }
  }
}

}  // namespace fibers

// As std::barrier, for threads that take turns.
class Barrier {
 public:
  explicit Barrier(int expected) : expected_(expected) {}

  void arrive_and_wait() {
    ++fibers::scheduler.events;
    const long phase = phase_;
    if (++arrived_ == expected_) {
      arrived_ = 0;
      ++phase_;
      return;
    }
    const Index thread = threadIdx, block = blockIdx;
    while (phase_ == phase) fibers::leave();
    threadIdx = thread;
    blockIdx = block;
  }

 private:
  int expected_, arrived_ = 0;
  long phase_ = 0;
};
