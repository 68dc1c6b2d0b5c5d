// The feasible configurations of one sketch: counted, listed, drawn, moved, restricted.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "feasible_graph.hpp"
#include "feasible_moves.hpp"
#include "feasible_walk.hpp"

namespace autotune {

// Never changed after it is made, apart from tables that are prepared at their first use; any number of threads may
// use it. Methods write matrices [count, width()] row by row. Row i is a function of the seed and of first + i only.
class FeasibleSet {
  public:
    // Throws std::invalid_argument when the groups do not hold every column below `width` exactly once,
    // std::overflow_error for 2^128 points or more.
    FeasibleSet(Graph graph, std::int32_t width);

    std::size_t width() const { return width_; }
    const Graph& graph() const { return graph_; }
    Uint128 total() const { return total_; }
    // Edges of the graph: what counting and restricting cost.
    std::size_t edges() const;

    // The points with ranks from `first` on. Throws std::invalid_argument when there are fewer.
    void list(Uint128 first, std::int64_t count, std::int64_t* points) const;
    // These throw std::invalid_argument when the feasible set is empty.
    void uniform(std::int64_t count, std::uint64_t seed, std::uint64_t first, int threads, std::int64_t* points) const;
    void stratified(std::int64_t count, std::uint64_t seed, std::uint64_t first, int threads,
                    std::int64_t* points) const;
    void neighbours(const std::int64_t* rows, std::int64_t count, std::uint64_t seed, std::uint64_t first, int threads,
                    std::int64_t* points) const;
    void crossover(const std::int64_t* mothers, const std::int64_t* fathers, std::int64_t count, std::uint64_t seed,
                   std::uint64_t first, int threads, std::int64_t* points) const;
    void contains(const std::int64_t* rows, std::int64_t count, int threads, bool* result) const;

    // Rows as nearest of Moves has them.
    void nearest(const std::int64_t* rows, std::int64_t count, int threads, std::int64_t* points) const;

    // The values that a column has in some point, sorted. Throws std::invalid_argument for an unknown column.
    std::vector<std::int64_t> values(std::int32_t column) const;

    // The points whose column `columns[i]` has one of `values[i]`. Throws std::invalid_argument for unknown columns.
    std::unique_ptr<FeasibleSet> restricted(const std::vector<std::int32_t>& columns,
                                        const std::vector<std::vector<std::int64_t>>& values) const;

  private:
    // Counts in 64 bits where they fit: dividing 128 bits takes several times as long.
    template <class Count>
    struct Counted {
        explicit Counted(const Graph& graph, const std::vector<std::vector<Uint128>>& counts) : walk(graph, counts) {}

        Walk<Count> walk;
        mutable std::once_flag once;
        mutable std::unique_ptr<Strata<Count>> strata;

        const Strata<Count>& prepared(const Graph& graph) const {
            std::call_once(once, [&] { strata = std::make_unique<Strata<Count>>(graph, walk); });
            return *strata;
        }
    };

    // The table that holds a column, and where. Throws std::invalid_argument for an unknown column.
    std::pair<std::size_t, std::size_t> place(std::int32_t column) const;
    void require_points() const;
    const Moves& moves() const;

    Graph graph_;
    std::size_t width_;
    Uint128 total_ = 0;
    std::variant<std::monostate, Counted<std::uint64_t>, Counted<Uint128>> counted_;
    mutable std::once_flag moves_once_;
    mutable std::unique_ptr<Moves> moves_;
};

}  // namespace autotune
