#include "bindings.hpp"

namespace autotune {

void bind_tape(nb::module_& module) { static_cast<void>(module); }

}  // namespace autotune
