// Neighbours and mixtures of configurations that stay inside a feasible set.
#pragma once

#include <cstdint>
#include <vector>

#include "feasible_graph.hpp"
#include "philox.hpp"

namespace autotune {

// More groups than any sketch has; the mixtures of two parents are counted in 128 bits.
constexpr std::size_t kMaxGroups = 120;

class Moves {
  public:
    explicit Moves(const Graph& graph);

    // Whether a configuration is in the feasible set.
    bool contains(const std::int64_t* configuration) const;

    // The configuration with one group moved to one of its nearest rows (in the sum of the distances of logarithms)
    // that are feasible beside the other groups. Itself where no group can move alone, or where it is infeasible.
    void neighbour(const std::int64_t* configuration, std::size_t width, Stream& stream, std::int64_t* result) const;

    // One of the feasible mixtures of two configurations, group by group and other than both, uniformly; the first one
    // where there is none.
    void mixture(const std::int64_t* mother, const std::int64_t* father, std::size_t width, Stream& stream,
                 std::int64_t* result) const;

    // The configuration of the feasible set for which the distances of logarithms to a given one, which may have any
    // values, add up to least: one of them where there are several. The set is not empty.
    void nearest(const std::int64_t* configuration, std::int64_t* result) const;

  private:
    std::vector<std::int64_t> rows_of(const std::int64_t* configuration) const;
    bool leads_to_end(std::size_t position, std::int64_t state, const std::vector<std::int64_t>& rows) const;
    std::vector<std::uint32_t> near_rows(std::size_t position, std::uint32_t state,
                                         const std::vector<std::int64_t>& rows) const;

    const Graph* graph_;
    std::vector<std::vector<std::int32_t>> places_;  // of every value of a table: its logarithm in fixed point
};

}  // namespace autotune
