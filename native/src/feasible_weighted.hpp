// Points of a feasible set drawn with unequal probabilities.
#pragma once

#include <cstdint>
#include <vector>

#include "feasible_graph.hpp"
#include "philox.hpp"

namespace autotune {

// A point's probability is proportional to the product of the weights of its rows, one in each table.
class Weighted {
  public:
    // `weights[i][row]` is the weight of a row of table i; all are finite and not negative.
    // Throws std::invalid_argument when no point has a weight above zero, or the sum is not finite.
    Weighted(const Graph& graph, const std::vector<std::vector<double>>& weights);

    void draw(Stream& stream, std::int64_t* point) const;

  private:
    const Graph* graph_;
    std::vector<std::vector<double>> to_end_;       // of every state: the weight of all that follows
    std::vector<std::vector<double>> edges_before_;  // of every edge: what the edges before it from its state weigh
    std::vector<std::vector<double>> rows_before_;   // of every row: what the rows before it of its signature weigh
    std::vector<std::vector<double>> signatures_;    // what the rows of a signature weigh together
};

}  // namespace autotune
