#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "factorizations.hpp"
#include "feasible_set.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

using Integers = std::vector<std::int64_t>;
// Columns, rows [n, columns], signatures of the rows [n, seen].
using GroupArguments = std::tuple<std::vector<std::int32_t>, Matrix<std::int64_t>, Matrix<std::int64_t>>;
// Lower and upper output, least and most, first and last slot; the allowed values, if they are listed.
using CheckArguments = std::pair<std::array<std::int64_t, 6>, Integers>;
// Program, integers of the state after, checks.
using PlanArguments = std::tuple<const TapeProgram*, std::int32_t, std::vector<CheckArguments>>;

// Enough for one edge number in 32 bits.
constexpr std::int64_t kMostCombinations = std::int64_t{1} << 31;

std::int32_t narrow(std::int64_t value) {
    if (value < -1 || value > std::numeric_limits<std::int32_t>::max()) {
        throw std::invalid_argument("a check of a layer refers to what does not exist");
    }
    return static_cast<std::int32_t>(value);
}

LayerPlan plan_of(const PlanArguments& arguments) {
    LayerPlan plan;
    plan.program = std::get<0>(arguments);
    plan.state_after = std::get<1>(arguments);
    for (const auto& [numbers, values] : std::get<2>(arguments)) {
        plan.checks.push_back({narrow(numbers[0]), narrow(numbers[1]), numbers[2], numbers[3], values,
                               narrow(numbers[4]), narrow(numbers[5])});
    }
    return plan;
}

void make_feasible_set(FeasibleSet* self, std::int32_t width, const std::vector<GroupArguments>& groups,
                  const std::vector<PlanArguments>& plans, std::int64_t limit) {
    if (groups.size() != plans.size() || width < 0 || limit < 1 || limit > kMostCombinations) {
        throw std::invalid_argument("a feasible set has one plan for every group, and a limit from 1 to 2**31");
    }
    std::vector<LayerPlan> layer_plans;
    for (const PlanArguments& plan : plans) {
        layer_plans.push_back(plan_of(plan));
    }
    for (const auto& [columns, rows, seen] : groups) {
        if (columns.empty() || rows.shape(1) != columns.size() || seen.shape(0) != rows.shape(0) ||
            rows.shape(0) > static_cast<std::size_t>(kMostCombinations)) {
            throw std::invalid_argument("a group has a column for each parameter and a signature for each row");
        }
    }
    nb::gil_scoped_release release;
    std::vector<Table> tables;
    std::vector<Integers> signatures(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const auto& [columns, rows, seen] = groups[i];
        tables.push_back(
            make_table(columns, rows.data(), rows.shape(0), seen.data(), seen.shape(1), signatures[i]));
    }
    new (self) FeasibleSet(join(std::move(tables), signatures, layer_plans, limit), width);
}

std::pair<std::uint64_t, std::uint64_t> halves(Uint128 value) {
    return {static_cast<std::uint64_t>(value >> 64), static_cast<std::uint64_t>(value)};
}

// A matrix [count, width] that `work` fills without the interpreter's lock.
template <class Work>
Array<std::int64_t> filled(const FeasibleSet& set, std::int64_t count, const Work& work) {
    if (count < 0) {
        throw std::invalid_argument("a number of points is not negative");
    }
    NewArray<std::int64_t> result({static_cast<std::size_t>(count), set.width()});
    {
        nb::gil_scoped_release release;
        work(result.data());
    }
    return result.array();
}

std::int64_t rows_of(const FeasibleSet& set, const Matrix<std::int64_t>& matrix) {
    require_columns(matrix, static_cast<int>(set.width()));
    return static_cast<std::int64_t>(matrix.shape(0));
}

Array<std::int64_t> list(const FeasibleSet& set, std::pair<std::uint64_t, std::uint64_t> first, std::int64_t count) {
    const Uint128 rank = static_cast<Uint128>(first.first) << 64 | first.second;
    return filled(set, count, [&](std::int64_t* points) { set.list(rank, count, points); });
}

Array<std::int64_t> uniform(const FeasibleSet& set, std::int64_t count, std::uint64_t seed, std::uint64_t first,
                            int threads) {
    return filled(set, count,
                  [&](std::int64_t* points) { set.uniform(count, seed, first, threads, points); });
}

Array<std::int64_t> stratified(const FeasibleSet& set, std::int64_t count, std::uint64_t seed, std::uint64_t first,
                               int threads) {
    return filled(set, count,
                  [&](std::int64_t* points) { set.stratified(count, seed, first, threads, points); });
}

Array<std::int64_t> neighbours(const FeasibleSet& set, Matrix<std::int64_t> rows, std::uint64_t seed,
                               std::uint64_t first, int threads) {
    const std::int64_t count = rows_of(set, rows);
    return filled(set, count, [&](std::int64_t* points) {
        set.neighbours(rows.data(), count, seed, first, threads, points);
    });
}

Array<std::int64_t> crossover(const FeasibleSet& set, Matrix<std::int64_t> mothers, Matrix<std::int64_t> fathers,
                              std::uint64_t seed, std::uint64_t first, int threads) {
    const std::int64_t count = rows_of(set, mothers);
    if (rows_of(set, fathers) != count) {
        throw std::invalid_argument("there are as many mothers as fathers");
    }
    return filled(set, count, [&](std::int64_t* points) {
        set.crossover(mothers.data(), fathers.data(), count, seed, first, threads, points);
    });
}

Array<std::int64_t> nearest(const FeasibleSet& set, Matrix<std::int64_t> rows, int threads) {
    const std::int64_t count = rows_of(set, rows);
    return filled(set, count,
                  [&](std::int64_t* points) { set.nearest(rows.data(), count, threads, points); });
}

Array<bool> contains(const FeasibleSet& set, Matrix<std::int64_t> rows, int threads) {
    const std::int64_t count = rows_of(set, rows);
    NewArray<bool> result({static_cast<std::size_t>(count)});
    {
        nb::gil_scoped_release release;
        set.contains(rows.data(), count, threads, result.data());
    }
    return result.array();
}

Array<std::int64_t> factorizations(std::int64_t total, const std::vector<FactorDomain>& domains, std::int64_t limit) {
    Integers rows;
    {
        nb::gil_scoped_release release;
        rows = ordered_factorizations(total, domains, limit);
    }
    NewArray<std::int64_t> result({rows.size() / domains.size(), domains.size()});
    std::copy(rows.begin(), rows.end(), result.data());
    return result.array();
}

}  // namespace

void bind_feasible_set(nb::module_& module) {
    module.def("ordered_factorizations", &factorizations, "total"_a, "domains"_a, "limit"_a);
    module.def("philox4x32", &philox4x32, "counter"_a, "key"_a);
    nb::class_<FeasibleSet>(module, "FeasibleSet")
        .def("__init__", &make_feasible_set, "width"_a, "groups"_a, "plans"_a, "limit"_a)
        .def_prop_ro("count", [](const FeasibleSet& set) { return halves(set.total()); })
        .def_prop_ro("edges", &FeasibleSet::edges)
        .def_prop_ro("group_rows",
                     [](const FeasibleSet& set) {
                         std::vector<std::size_t> rows;
                         for (const Table& table : set.graph().tables) {
                             rows.push_back(table.rows());
                         }
                         return rows;
                     })
        .def("list", &list, "first"_a, "count"_a)
        .def("uniform", &uniform, "count"_a, "seed"_a, "first"_a = 0, "threads"_a = 1)
        .def("stratified", &stratified, "count"_a, "seed"_a, "first"_a = 0, "threads"_a = 1)
        .def("neighbours", &neighbours, "rows"_a, "seed"_a, "first"_a = 0, "threads"_a = 1)
        .def("crossover", &crossover, "mothers"_a, "fathers"_a, "seed"_a, "first"_a = 0, "threads"_a = 1)
        .def("nearest", &nearest, "rows"_a, "threads"_a = 1)
        .def("values", &FeasibleSet::values, "column"_a)
        .def("contains", &contains, "rows"_a, "threads"_a = 1)
        .def("restricted", &FeasibleSet::restricted, "columns"_a, "values"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace autotune
