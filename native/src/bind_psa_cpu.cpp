#include "bindings.hpp"

namespace autotune {

void bind_psa_cpu(nb::module_& module) { static_cast<void>(module); }

}  // namespace autotune
