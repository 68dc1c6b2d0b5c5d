#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "bindings.hpp"
#include "thread_pool.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

constexpr int kMostThreads = 1024;

void make(ThreadPool* self, int threads, const std::vector<int>& cpus) {
    if (threads < 1 || threads > kMostThreads) throw std::invalid_argument("a pool has from 1 to 1024 threads");
    new (self) ThreadPool(threads, cpus);
}

std::uintptr_t address_of(const ThreadPool& pool) { return reinterpret_cast<std::uintptr_t>(&pool); }

std::uintptr_t launcher() { return reinterpret_cast<std::uintptr_t>(&autotune_launch); }

}  // namespace

void bind_thread_pool(nb::module_& module) {
    nb::class_<ThreadPool>(module, "ThreadPool")
        .def("__init__", &make, "threads"_a, "cpus"_a)
        .def_prop_ro("address", &address_of);
    module.def("launcher", &launcher);
}

}  // namespace autotune
