#include "bindings.hpp"

namespace autotune {

void bind_psa_gpu(nb::module_& module) { static_cast<void>(module); }

}  // namespace autotune
