// Threads that run the tasks of parallel loops, and sleep in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace autotune {

// A part of a parallel loop: iterations [begin, end), run by one thread.
using Task = void (*)(void* arrays, std::int64_t begin, std::int64_t end, std::int64_t thread);

class ThreadPool {
public:
    // The caller of run() is one of the threads, and runs where it likes; the others are made here, each on a
    // CPU of its own where there is one for each.
    ThreadPool(int threads, const std::vector<int>& cpus);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Runs iterations [0, count) in equal parts, and returns when all have run. Called by a second thread
    // meanwhile, or in a child of fork(), which has no threads, the caller runs them all.
    void run(Task task, void* arrays, std::int64_t count);

private:
    struct Job {
        Task task;
        void* arrays;
        std::int64_t count;
        std::int64_t parts;
    };

    void work(int number);
    void make_room();
    static void run_part(const Job& job, std::int64_t part);

    const std::int64_t owner_;
    std::mutex busy_;
    Job job_{};
    std::atomic<std::uint32_t> round_{0};
    std::atomic<std::uint32_t> unfinished_{0};
    std::atomic<bool> stopping_{false};
    // The CPU of each thread, the first of which is left to the caller; none where threads are not kept on theirs.
    std::vector<int> cpus_;
    std::vector<std::thread> threads_;
};

// What compiled programs call: `pool` is a ThreadPool.
extern "C" void autotune_launch(void* pool, Task task, void* arrays, std::int64_t count);

}  // namespace autotune
