#include "bindings.hpp"

namespace autotune {

void bind_relaxed(nb::module_& module) { static_cast<void>(module); }

}  // namespace autotune
