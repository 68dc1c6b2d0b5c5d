#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "tape_program.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

void make_program(TapeProgram* self, int inputs, Vector<std::int64_t> constants, Vector<std::uint8_t> operations,
                  Matrix<std::int32_t> operands, Vector<std::int32_t> outputs, const std::string& simd) {
    if (operands.shape(0) != operations.shape(0) || operands.shape(1) != 3) {
        throw std::invalid_argument("operands have shape [instructions, 3]");
    }
    std::vector<Instruction> instructions(operations.shape(0));
    for (std::size_t i = 0; i < instructions.size(); ++i) {
        const std::int32_t* slots = operands.data() + 3 * i;
        instructions[i] = {static_cast<Op>(operations.data()[i]), slots[0], slots[1], slots[2]};
    }
    new (self) TapeProgram(inputs, {constants.data(), constants.data() + constants.shape(0)}, std::move(instructions),
                           {outputs.data(), outputs.data() + outputs.shape(0)}, simd_from_name(simd));
}

Array<std::int64_t> evaluate(const TapeProgram& program, Matrix<std::int64_t> matrix, int threads) {
    require_columns(matrix, program.inputs());
    const auto rows = static_cast<std::int64_t>(matrix.shape(0));
    NewArray<std::int64_t> result({matrix.shape(0), static_cast<std::size_t>(program.outputs())});
    {
        nb::gil_scoped_release release;
        program.evaluate(matrix.data(), rows, result.data(), threads);
    }
    return result.array();
}

}  // namespace

void bind_tape(nb::module_& module) {
    module.def("simd_level", [] { return simd_name(best_simd()); });
    nb::class_<TapeProgram>(module, "TapeProgram")
        .def("__init__", &make_program, "inputs"_a, "constants"_a, "operations"_a, "operands"_a, "outputs"_a,
             "simd"_a = "best")
        .def("evaluate", &evaluate, "matrix"_a.noconvert(), "threads"_a = 1)
        .def_prop_ro("inputs", &TapeProgram::inputs)
        .def_prop_ro("outputs", &TapeProgram::outputs)
        .def_prop_ro("slots", &TapeProgram::slots)
        .def_prop_ro("columns", &TapeProgram::columns)
        .def_prop_ro("simd", [](const TapeProgram& program) { return simd_name(program.level()); });
}

}  // namespace autotune
