#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "relaxed_tape.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

void make_relaxed(RelaxedProgram* self, int inputs, Vector<double> constants, Vector<std::uint8_t> forms,
                  Matrix<std::int32_t> operands, Vector<std::int32_t> outputs, double temperature, double epsilon,
                  bool half_step, const std::string& simd) {
    if (operands.shape(0) != forms.shape(0) || operands.shape(1) != 3) {
        throw std::invalid_argument("operands have shape [instructions, 3]");
    }
    std::vector<RelaxedInstruction> instructions(forms.shape(0));
    for (std::size_t i = 0; i < instructions.size(); ++i) {
        const std::int32_t* slots = operands.data() + 3 * i;
        instructions[i] = {static_cast<Form>(forms.data()[i]), slots[0], slots[1], slots[2], -1};
    }
    new (self) RelaxedProgram(inputs, {constants.data(), constants.data() + constants.shape(0)},
                              std::move(instructions), {outputs.data(), outputs.data() + outputs.shape(0)},
                              {temperature, epsilon, half_step}, simd_from_name(simd));
}

Array<double> values(const RelaxedProgram& program, Matrix<double> points, int threads) {
    require_columns(points, program.inputs());
    NewArray<double> result({points.shape(0), static_cast<std::size_t>(program.outputs())});
    {
        nb::gil_scoped_release release;
        program.values(points.data(), static_cast<std::int64_t>(points.shape(0)), result.data(), threads);
    }
    return result.array();
}

Array<double> vector_jacobian(const RelaxedProgram& program, Matrix<double> points, Matrix<double> cotangents,
                              int threads) {
    require_columns(points, program.inputs());
    if (cotangents.shape(0) != points.shape(0) || cotangents.shape(1) != static_cast<std::size_t>(program.outputs())) {
        throw std::invalid_argument("cotangents have shape [rows, outputs]");
    }
    NewArray<double> result({points.shape(0), static_cast<std::size_t>(program.inputs())});
    {
        nb::gil_scoped_release release;
        program.vector_jacobian(points.data(), cotangents.data(), static_cast<std::int64_t>(points.shape(0)),
                                result.data(), threads);
    }
    return result.array();
}

}  // namespace

void bind_relaxed(nb::module_& module) {
    nb::class_<RelaxedProgram>(module, "RelaxedProgram")
        .def("__init__", &make_relaxed, "inputs"_a, "constants"_a, "forms"_a, "operands"_a, "outputs"_a,
             "temperature"_a, "epsilon"_a, "half_step"_a, "simd"_a = "best")
        .def("values", &values, "points"_a, "threads"_a = 1)
        .def("vector_jacobian", &vector_jacobian, "points"_a, "cotangents"_a, "threads"_a = 1)
        .def_prop_ro("inputs", &RelaxedProgram::inputs)
        .def_prop_ro("outputs", &RelaxedProgram::outputs)
        .def_prop_ro("slots", &RelaxedProgram::slots)
        .def_prop_ro("simd", [](const RelaxedProgram& program) { return simd_name(program.level()); });
}

}  // namespace autotune
