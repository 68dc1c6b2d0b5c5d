#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "machine_peak.hpp"
#include "machine_probe.hpp"

namespace nb = nanobind;
using namespace nb::literals;

// std::invalid_argument becomes ValueError; every probe runs without the interpreter's lock.
NB_MODULE(_native, module) {
    module.doc() = "Native parts of autotune; reached through the packages that wrap them.";
    module.def("fma_instruction_set", &autotune::fma_instruction_set);
    module.def("fma_rate", &autotune::fma_rate, "seconds"_a, nb::call_guard<nb::gil_scoped_release>());
    module.def("read_bandwidth", &autotune::read_bandwidth, "bytes"_a, "seconds"_a,
               nb::call_guard<nb::gil_scoped_release>());
    module.def("peak_instruction_set", &autotune::peak_instruction_set, "dtype"_a);
    module.def("peak_rate", &autotune::peak_rate, "dtype"_a, "threads"_a, "seconds"_a,
               nb::call_guard<nb::gil_scoped_release>());
    module.def("stream_bandwidth", &autotune::stream_bandwidth, "pattern"_a, "bytes"_a, "threads"_a, "seconds"_a,
               nb::call_guard<nb::gil_scoped_release>());
    module.def("neighbour_rates", &autotune::neighbour_rates, "cpu"_a, "other"_a, "seconds"_a,
               nb::call_guard<nb::gil_scoped_release>());
    module.def("repeat_times", &autotune::repeat_times, "repeats"_a, "work"_a,
               nb::call_guard<nb::gil_scoped_release>());
    // Sketches and their tapes are cached as long as the process lives: at its end they are still there.
    nb::set_leak_warnings(false);
    autotune::bind_tape(module);
    autotune::bind_relaxed(module);
    autotune::bind_psa_gpu(module);
    autotune::bind_psa_cpu(module);
    autotune::bind_pam(module);
    autotune::bind_feasible_set(module);
    autotune::bind_timing(module);
    autotune::bind_thread_pool(module);
}
