#include <cstdint>
#include <stdexcept>

#include "bindings.hpp"
#include "steps.h"
#include "thread_pool.h"

namespace autotune {
namespace {

using namespace nb::literals;

// Owns a pool of C.
class ThreadPool {
public:
    explicit ThreadPool(std::int64_t threads) : pool_(autotune_pool_make(threads)) {
        if (pool_ == nullptr) throw std::bad_alloc();
        if (autotune_pool_threads(pool_) == threads) return;
        autotune_pool_free(pool_);
        throw std::runtime_error("this process can have no more threads");
    }
    ~ThreadPool() { autotune_pool_free(pool_); }
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(pool_); }

private:
    autotune_pool* pool_;
};

void make(ThreadPool* self, std::int64_t threads) {
    if (threads < 1 || threads > AUTOTUNE_MOST_THREADS) {
        throw std::invalid_argument("a pool has from 1 to 1024 threads");
    }
    new (self) ThreadPool(threads);
}

std::uintptr_t launcher() { return reinterpret_cast<std::uintptr_t>(&autotune_pool_launch); }

std::uintptr_t step_runner() { return reinterpret_cast<std::uintptr_t>(&autotune_run_steps); }

}  // namespace

void bind_thread_pool(nb::module_& module) {
    nb::class_<ThreadPool>(module, "ThreadPool")
        .def("__init__", &make, "threads"_a)
        .def_prop_ro("address", &ThreadPool::address);
    module.def("launcher", &launcher);
    module.def("step_runner", &step_runner);
}

}  // namespace autotune
