#include <nanobind/ndarray.h>

#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "pam.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

void require_width(const Matrix<std::int32_t>& matrix, std::size_t width, const char* message) {
    if (matrix.shape(1) != width) {
        throw std::invalid_argument(message);
    }
}

std::vector<PamColumn> make_columns(const Matrix<std::int32_t>& columns, const Vector<double>& scales) {
    require_width(columns, 4, "columns have shape [columns, 4]");
    if (scales.shape(0) != columns.shape(0)) {
        throw std::invalid_argument("there is one scale for every column");
    }
    std::vector<PamColumn> result;
    for (std::size_t at = 0; at < columns.shape(0); ++at) {
        const std::int32_t* entry = columns.data() + 4 * at;
        result.push_back({entry[0], entry[1], entry[2], entry[3] != 0, scales.data()[at]});
    }
    return result;
}

std::vector<PamBuffer> make_buffers(const Matrix<std::int32_t>& buffers) {
    require_width(buffers, 3 + kPamBufferOutputs, "buffers have shape [buffers, 15]");
    std::vector<PamBuffer> result(buffers.shape(0));
    for (std::size_t at = 0; at < result.size(); ++at) {
        const std::int32_t* entry = buffers.data() + (3 + kPamBufferOutputs) * at;
        result[at] = {entry[0], entry[1], entry[2], {}};
        std::copy_n(entry + 3, kPamBufferOutputs, result[at].outputs.begin());
    }
    return result;
}

std::vector<PamLoop> make_loops(const Matrix<std::int32_t>& loops) {
    require_width(loops, 4, "loops have shape [loops, 4]");
    std::vector<PamLoop> result;
    for (std::size_t at = 0; at < loops.shape(0); ++at) {
        const std::int32_t* entry = loops.data() + 4 * at;
        result.push_back({entry[0], entry[1], entry[2], entry[3]});
    }
    return result;
}

std::vector<PamAccess> make_accesses(const Matrix<std::int32_t>& accesses, const Vector<double>& operations) {
    require_width(accesses, 3, "accesses have shape [8, 3]");
    if (operations.shape(0) != accesses.shape(0)) {
        throw std::invalid_argument("there is one number of operations for every access");
    }
    std::vector<PamAccess> result;
    for (std::size_t at = 0; at < accesses.shape(0); ++at) {
        const std::int32_t* entry = accesses.data() + 3 * at;
        result.push_back({entry[0], entry[1], entry[2], operations.data()[at]});
    }
    return result;
}

void make_plan(PamPlan* self, const TapeProgram& program, Vector<std::int32_t> rows, Vector<double> operations,
               Matrix<std::int32_t> columns, Vector<double> scales, Matrix<std::int32_t> buffers,
               Matrix<std::int32_t> loops, Matrix<std::int32_t> accesses, Vector<double> access_operations,
               bool operations_squared) {
    new (self) PamPlan(program, {rows.data(), rows.data() + rows.shape(0)},
                       {operations.data(), operations.data() + operations.shape(0)}, make_columns(columns, scales),
                       make_buffers(buffers), make_loops(loops), make_accesses(accesses, access_operations),
                       operations_squared);
}

nb::tuple evaluate(const PamPlan& plan, Matrix<std::int64_t> matrix, int threads) {
    require_columns(matrix, plan.inputs());
    const std::size_t count = matrix.shape(0);
    NewArray<float> features({count, static_cast<std::size_t>(plan.rows()), kPamColumns});
    NewArray<float> flow({count, kPamAccesses, kPamFlowColumns});
    {
        nb::gil_scoped_release release;
        plan.evaluate(matrix.data(), static_cast<std::int64_t>(count), features.data(), flow.data(), threads);
    }
    return nb::make_tuple(features.array(), flow.array());
}

}  // namespace

void bind_pam(nb::module_& module) {
    nb::class_<PamPlan>(module, "PamPlan")
        .def("__init__", &make_plan, "program"_a, "rows"_a, "operations"_a, "columns"_a, "scales"_a, "buffers"_a,
             "loops"_a, "accesses"_a, "access_operations"_a, "operations_squared"_a)
        .def("evaluate", &evaluate, "matrix"_a, "threads"_a = 1)
        .def_prop_ro("inputs", &PamPlan::inputs)
        .def_prop_ro("rows", &PamPlan::rows);
}

}  // namespace autotune
