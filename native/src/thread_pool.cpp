#include "thread_pool.hpp"

#include <algorithm>
#include <unistd.h>

#include "pin_thread.hpp"

namespace autotune {
namespace {

// Looks at a word for some ten microseconds before it sleeps: programs that are called one after the other find
// the threads awake, and nobody else is disturbed for longer.
constexpr int kLooks = 400;

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Waits while the word has a value.
void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    for (int look = 0; look < kLooks; ++look) {
        if (word.load(std::memory_order_acquire) != value) return;
        pause_briefly();
    }
    while (word.load(std::memory_order_acquire) == value) word.wait(value, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus) : owner_(getpid()) {
    if (static_cast<int>(cpus.size()) >= threads) cpus_.assign(cpus.begin(), cpus.begin() + threads);
    for (int number = 1; number < threads; ++number) {
        threads_.emplace_back([this, number] { work(number); });
        if (!cpus_.empty()) pin_thread(threads_.back().native_handle(), cpus_[static_cast<std::size_t>(number)]);
    }
}

ThreadPool::~ThreadPool() {
    if (owner_ != getpid()) {
        // A child of fork() has no such threads: there is nothing to join.
        for (std::thread& thread : threads_) thread.detach();
        return;
    }
    stopping_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

// Moves the thread whose CPU the caller is on to the one that the caller left: it could not run beside it.
void ThreadPool::make_room() {
    if (cpus_.empty()) return;
    const int here = sched_getcpu();
    if (here == cpus_[0]) return;
    const auto taken = std::find(cpus_.begin() + 1, cpus_.end(), here);
    if (taken == cpus_.end()) return;
    std::swap(cpus_[0], *taken);
    pin_thread(threads_[static_cast<std::size_t>(taken - cpus_.begin() - 1)].native_handle(), *taken);
}

void ThreadPool::run_part(const Job& job, std::int64_t part) {
    const std::int64_t begin = job.count * part / job.parts;
    const std::int64_t end = job.count * (part + 1) / job.parts;
    if (begin < end) job.task(job.arrays, begin, end, part);
}

void ThreadPool::run(Task task, void* arrays, std::int64_t count) {
    std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    const std::int64_t parts = std::min<std::int64_t>(count, static_cast<std::int64_t>(threads_.size()) + 1);
    if (!lock.owns_lock() || owner_ != getpid() || parts < 2) {
        task(arrays, 0, count, 0);
        return;
    }
    make_room();
    job_ = {task, arrays, count, parts};
    unfinished_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    run_part(job_, 0);
    for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
         left = unfinished_.load(std::memory_order_acquire)) {
        wait_while(unfinished_, left);
    }
}

void ThreadPool::work(int number) {
    std::uint32_t seen = 0;
    while (true) {
        wait_while(round_, seen);
        seen = round_.load(std::memory_order_acquire);
        if (stopping_) return;
        if (number < job_.parts) run_part(job_, number);
        if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
    }
}

extern "C" void autotune_launch(void* pool, Task task, void* arrays, std::int64_t count) {
    static_cast<ThreadPool*>(pool)->run(task, arrays, count);
}

}  // namespace autotune
