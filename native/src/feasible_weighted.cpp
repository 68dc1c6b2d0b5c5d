#include "feasible_weighted.hpp"

#include <cmath>
#include <stdexcept>

#include "feasible_walk.hpp"

namespace autotune {
namespace {

// Uniform in [0, total), for a total that is above zero: 53 random bits, and never rounded up to the total.
double below(Stream& stream, double total) {
    return static_cast<double>(stream.next() >> 11) * 0x1p-53 * total;
}

}  // namespace

Weighted::Weighted(const Graph& graph, const std::vector<std::vector<double>>& weights)
    : graph_(&graph), to_end_(graph.layers.size() + 1) {
    const std::size_t depth = graph.layers.size();
    for (std::size_t position = 0; position < depth; ++position) {
        const Table& table = graph.tables[position];
        std::vector<double> before(table.rows()), sums(table.signatures(), 0.0);
        for (std::size_t row = 0; row < table.rows(); ++row) {
            before[row] = sums[table.signature[row]];
            sums[table.signature[row]] += weights[position][row];
        }
        rows_before_.push_back(std::move(before));
        signatures_.push_back(std::move(sums));
    }
    to_end_[depth].assign(1, 1.0);
    edges_before_.resize(depth);
    for (std::size_t position = depth; position-- > 0;) {
        const Layer& layer = graph.layers[position];
        to_end_[position].assign(layer.states(), 0.0);
        edges_before_[position].resize(layer.edges.size());
        for (std::size_t state = 0; state < layer.states(); ++state) {
            double sum = 0.0;
            for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                const Edge edge = layer.edges[e];
                edges_before_[position][e] = sum;
                sum += signatures_[position][edge.signature] * to_end_[position + 1][edge.child];
            }
            to_end_[position][state] = sum;
        }
    }
    const double total = to_end_[0].empty() ? 0.0 : to_end_[0][0];
    if (!(total > 0.0) || !std::isfinite(total)) {
        throw std::invalid_argument("no point has a weight above zero, or all together weigh too much");
    }
}

void Weighted::draw(Stream& stream, std::int64_t* point) const {
    std::uint32_t state = 0;
    for (std::size_t position = 0; position < graph_->layers.size(); ++position) {
        const Layer& layer = graph_->layers[position];
        const Table& table = graph_->tables[position];
        const std::size_t e = last_at_most(edges_before_[position].data(), layer.starts[state],
                                           layer.starts[state + 1], below(stream, to_end_[position][state]));
        const Edge edge = layer.edges[e];
        const std::size_t row =
            last_at_most(rows_before_[position].data(), table.starts[edge.signature],
                         table.starts[edge.signature + 1], below(stream, signatures_[position][edge.signature]));
        put(table, row, point);
        state = edge.child;
    }
}

}  // namespace autotune
