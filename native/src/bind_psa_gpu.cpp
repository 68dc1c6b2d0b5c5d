#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <stdexcept>

#include "arrays.hpp"
#include "bindings.hpp"
#include "psa_gpu.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

// Columns beyond this are a mistake, not a program.
constexpr std::size_t kMostColumns = 1u << 20;

PsaArithmetic arithmetic_from_name(const std::string& name) {
    if (name == "published") return PsaArithmetic::published;
    if (name == "corrected") return PsaArithmetic::corrected;
    throw std::invalid_argument("the arithmetic is \"published\" or \"corrected\"");
}

void make(PsaGpu* self, const std::string& arithmetic, std::vector<double> gpu, const std::string& simd) {
    new (self) PsaGpu(arithmetic_from_name(arithmetic), std::move(gpu), simd_from_name(simd));
}

Array<double> score(const PsaGpu& psa, const TapeProgram& program, Matrix<std::int64_t> matrix,
                    std::vector<double> maxima, int threads) {
    require_columns(matrix, program.inputs());
    if (maxima.size() > kMostColumns) {
        throw std::invalid_argument("too many maxima");
    }
    NewArray<double> scores({matrix.shape(0)});
    {
        nb::gil_scoped_release release;
        psa.score(program, matrix.data(), static_cast<std::int64_t>(matrix.shape(0)), maxima, scores.data(), threads);
    }
    return scores.array();
}

Array<double> score_symbols(const PsaGpu& psa, Matrix<double> symbols, int threads) {
    const auto per_group = static_cast<std::size_t>(psa_symbols(psa.arithmetic()));
    if (symbols.shape(1) % per_group != 0 || symbols.shape(1) > kMostColumns) {
        throw std::invalid_argument("there are " + std::to_string(per_group) + " symbols a group, not " +
                                    std::to_string(symbols.shape(1)) + " in all");
    }
    const auto groups = static_cast<int>(symbols.shape(1) / per_group);
    NewArray<double> scores({symbols.shape(0)});
    {
        nb::gil_scoped_release release;
        psa.score_symbols(symbols.data(), static_cast<std::int64_t>(symbols.shape(0)), groups, scores.data(), threads);
    }
    return scores.array();
}

}  // namespace

void bind_psa_gpu(nb::module_& module) {
    nb::class_<PsaGpu>(module, "PsaGpu")
        .def("__init__", &make, "arithmetic"_a, "gpu"_a, "simd"_a = "best")
        .def("score", &score, "program"_a, "matrix"_a, "maxima"_a, "threads"_a = 1)
        .def("score_symbols", &score_symbols, "symbols"_a, "threads"_a = 1);
}

}  // namespace autotune
