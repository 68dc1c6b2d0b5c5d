// One function per family of kernels; each lives in bind_<family>.cpp beside what it exposes.
#pragma once

#include <nanobind/nanobind.h>

namespace autotune {

namespace nb = nanobind;

void bind_tape(nb::module_& module);
void bind_relaxed(nb::module_& module);
void bind_psa_gpu(nb::module_& module);
void bind_psa_cpu(nb::module_& module);
void bind_pam(nb::module_& module);
void bind_feasible_set(nb::module_& module);
void bind_timing(nb::module_& module);
void bind_thread_pool(nb::module_& module);

}  // namespace autotune
