#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "psa_cpu.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

template <class To, class From, class Input>
std::vector<To> copied(const Input& input) {
    const From* first = input.data();
    std::vector<To> result;
    result.reserve(input.size());
    for (std::size_t i = 0; i < input.size(); ++i) {
        result.push_back(static_cast<To>(first[i]));
    }
    return result;
}

void make_statement(CpuStatement* self, Vector<std::int32_t> extents, Vector<std::uint8_t> parallel,
                    Vector<std::uint8_t> remains, Vector<std::uint8_t> reduces, int vector, bool declared, double work,
                    double calls, int body, double lanes, double narrow, Matrix<std::int32_t> regions, Matrix<std::int32_t> rows,
                    Matrix<std::int32_t> lines, Matrix<std::int32_t> apart, Matrix<std::int32_t> traffic, Vector<std::int32_t> element_bytes,
                    Vector<std::uint8_t> meets, int written, Vector<std::int32_t> aligned,
                    Vector<std::int32_t> divided, std::int32_t early, bool hides) {
    for (const std::uint8_t meet : copied<std::uint8_t, std::uint8_t>(meets)) {
        if (meet > 2) {
            throw std::invalid_argument("lanes meet a buffer in one of three ways");
        }
    }
    new (self) CpuStatement{
        .loops = static_cast<int>(extents.size()),
        .buffers = static_cast<int>(element_bytes.size()),
        .vector = vector,
        .body = body,
        .written = written,
        .declared = declared,
        .work = work,
        .calls = calls,
        .lanes = lanes,
        .narrow = narrow,
        .extents = copied<std::int32_t, std::int32_t>(extents),
        .parallel = copied<std::uint8_t, std::uint8_t>(parallel),
        .remains = copied<std::uint8_t, std::uint8_t>(remains),
        .reduces = copied<std::uint8_t, std::uint8_t>(reduces),
        .regions = copied<std::int32_t, std::int32_t>(regions),
        .rows = copied<std::int32_t, std::int32_t>(rows),
        .lines = copied<std::int32_t, std::int32_t>(lines),
        .apart = copied<std::int32_t, std::int32_t>(apart),
        .traffic = copied<std::int32_t, std::int32_t>(traffic),
        .element_bytes = copied<std::int32_t, std::int32_t>(element_bytes),
        .meets = copied<LanesMeet, std::uint8_t>(meets),
        .aligned = copied<std::int32_t, std::int32_t>(aligned),
        .divided = copied<std::int32_t, std::int32_t>(divided),
        .early = early,
        .hides = hides,
    };
}

// The order of CpuMachine's members; capacities, ways and bandwidths by level.
constexpr std::size_t kMachineValues = 25;

CpuMachine machine_of(const Vector<double>& values) {
    if (values.size() != kMachineValues) {
        throw std::invalid_argument("a machine is described by 25 numbers");
    }
    const double* v = values.data();
    return {v[0], v[1], v[2], v[3], v[4], v[5], {v[6], v[7], v[8]}, {v[9], v[10], v[11]}, {v[12], v[13], v[14]},
            v[15], v[16], v[17], v[18], v[19], v[20], v[21], v[22], v[23], v[24]};
}

void make_model(PsaCpu* self, std::shared_ptr<TapeProgram> program, const std::vector<CpuStatement>& statements,
                double program_bytes, double nests, Vector<double> machine) {
    new (self) PsaCpu(std::move(program), statements, program_bytes, nests, machine_of(machine));
}

Array<double> cycles(const PsaCpu& model, Matrix<std::int64_t> matrix, int threads) {
    require_columns(matrix, model.inputs());
    NewArray<double> result({matrix.shape(0)});
    {
        nb::gil_scoped_release release;
        model.cycles(matrix.data(), static_cast<std::int64_t>(matrix.shape(0)), result.data(), threads);
    }
    return result.array();
}

}  // namespace

void bind_psa_cpu(nb::module_& module) {
    nb::class_<CpuStatement>(module, "CpuStatement")
        .def("__init__", &make_statement, "extents"_a, "parallel"_a, "remains"_a, "reduces"_a, "vector"_a, "declared"_a,
             "work"_a, "calls"_a, "body"_a, "lanes"_a, "narrow"_a, "regions"_a, "rows"_a, "lines"_a, "apart"_a, "traffic"_a, "element_bytes"_a,
             "meets"_a, "written"_a, "aligned"_a, "divided"_a, "early"_a, "hides"_a);
    nb::class_<PsaCpu>(module, "PsaCpu")
        .def("__init__", &make_model, "program"_a, "statements"_a, "program_bytes"_a, "nests"_a, "machine"_a)
        .def("cycles", &cycles, "matrix"_a.noconvert(), "threads"_a = 1);
}

}  // namespace autotune
