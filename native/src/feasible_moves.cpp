#include "feasible_moves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

#include "feasible_walk.hpp"

namespace autotune {
namespace {

constexpr std::size_t kNearest = 10;

// Parents of a mixture: which of them a group comes from.
struct Choice {
    std::int64_t row[2];  // -1: that parent has no row here, or the same as the mother's
};

// A state that some mixture passes through, and where each parent's row leads.
struct Node {
    std::uint32_t state;
    std::int32_t child[2];  // nodes of the next layer, -1 where infeasible
    Uint128 mixtures = 0;   // from here to the end
};

std::int32_t node_of(std::vector<Node>& nodes, std::int64_t state) {
    const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.state == state; });
    if (found != nodes.end()) {
        return static_cast<std::int32_t>(found - nodes.begin());
    }
    nodes.push_back({static_cast<std::uint32_t>(state), {-1, -1}});
    return static_cast<std::int32_t>(nodes.size() - 1);
}

// Every mixture, as paths through the graph that merge where their states do.
std::vector<std::vector<Node>> mixtures(const Graph& graph, const std::vector<Choice>& choices) {
    std::vector<std::vector<Node>> layers(graph.layers.size() + 1);
    layers[0].push_back({0, {-1, -1}});
    for (std::size_t position = 0; position < graph.layers.size(); ++position) {
        for (Node& node : layers[position]) {
            for (const int parent : {0, 1}) {
                const std::int64_t row = choices[position].row[parent];
                if (row < 0) {
                    continue;
                }
                const std::uint32_t signature = graph.tables[position].signature[static_cast<std::size_t>(row)];
                const std::int64_t child = graph.layers[position].child(node.state, signature);
                node.child[parent] = child < 0 ? -1 : node_of(layers[position + 1], child);
            }
        }
    }
    for (Node& end : layers.back()) {
        end.mixtures = 1;
    }
    for (std::size_t position = graph.layers.size(); position-- > 0;) {
        for (Node& node : layers[position]) {
            for (const std::int32_t child : node.child) {
                node.mixtures += child < 0 ? 0 : layers[position + 1][static_cast<std::size_t>(child)].mixtures;
            }
        }
    }
    return layers;
}

// The logarithm of a value in fixed point.
std::int32_t place_of(std::int64_t value) {
    // Integers, so that equal distances are equal on every machine; values below 1 stand one octave lower.
    const double logarithm = value < 1 ? -1.0 : std::log2(static_cast<double>(value));
    return static_cast<std::int32_t>(std::lround(logarithm * 65536.0));
}

// The mixture of this rank: each group's parent.
std::array<std::int8_t, kMaxGroups> mixture_of_rank(const std::vector<std::vector<Node>>& layers, Uint128 rank) {
    std::array<std::int8_t, kMaxGroups> parents{};
    std::size_t node = 0;
    for (std::size_t position = 0; position + 1 < layers.size(); ++position) {
        const Node& here = layers[position][node];
        const Uint128 of_mother =
            here.child[0] < 0 ? 0 : layers[position + 1][static_cast<std::size_t>(here.child[0])].mixtures;
        const std::size_t parent = rank < of_mother ? 0 : 1;
        rank -= parent == 0 ? 0 : of_mother;
        parents[position] = static_cast<std::int8_t>(parent);
        node = static_cast<std::size_t>(here.child[parent]);
    }
    return parents;
}

}  // namespace

Moves::Moves(const Graph& graph) : graph_(&graph) {
    for (const Table& table : graph.tables) {
        std::vector<std::int32_t> places(table.values.size());
        std::transform(table.values.begin(), table.values.end(), places.begin(), place_of);
        places_.push_back(std::move(places));
    }
}

std::vector<std::int64_t> Moves::rows_of(const std::int64_t* configuration) const {
    std::vector<std::int64_t> rows;
    for (const Table& table : graph_->tables) {
        rows.push_back(table.find(configuration));
    }
    return rows;
}

bool Moves::leads_to_end(std::size_t position, std::int64_t state, const std::vector<std::int64_t>& rows) const {
    for (; state >= 0 && position < rows.size(); ++position) {
        if (rows[position] < 0) {
            return false;
        }
        const std::uint32_t signature = graph_->tables[position].signature[static_cast<std::size_t>(rows[position])];
        state = graph_->layers[position].child(static_cast<std::uint32_t>(state), signature);
    }
    return state >= 0;
}

bool Moves::contains(const std::int64_t* configuration) const {
    // Group by group, so that most rows outside are rejected by their first one.
    std::int64_t state = 0;
    for (std::size_t position = 0; position < graph_->tables.size(); ++position) {
        const Table& table = graph_->tables[position];
        const std::int64_t row = table.find(configuration);
        if (row < 0) {
            return false;
        }
        state = graph_->layers[position].child(static_cast<std::uint32_t>(state),
                                               table.signature[static_cast<std::size_t>(row)]);
        if (state < 0) {
            return false;
        }
    }
    return true;
}

std::vector<std::uint32_t> Moves::near_rows(std::size_t position, std::uint32_t state,
                                            const std::vector<std::int64_t>& rows) const {
    const Table& table = graph_->tables[position];
    const std::size_t width = table.width();
    const auto here = static_cast<std::size_t>(rows[position]);
    const std::int32_t* places = places_[position].data();
    // Sorted from the far end of a heap: by distance, then by row.
    std::vector<std::pair<std::int64_t, std::uint32_t>> heap;
    heap.reserve(table.rows());
    for (std::size_t row = 0; row < table.rows(); ++row) {
        std::int64_t distance = 0;
        for (std::size_t j = 0; j < width; ++j) {
            distance += std::abs(places[row * width + j] - places[here * width + j]);
        }
        if (row != here) {
            heap.emplace_back(-distance, ~static_cast<std::uint32_t>(row));
        }
    }
    std::make_heap(heap.begin(), heap.end());
    std::vector<std::uint32_t> found;
    while (!heap.empty() && found.size() < kNearest) {
        std::pop_heap(heap.begin(), heap.end());
        const std::uint32_t row = ~heap.back().second;
        heap.pop_back();
        const std::int64_t child = graph_->layers[position].child(state, table.signature[row]);
        if (leads_to_end(position + 1, child, rows)) {
            found.push_back(row);
        }
    }
    return found;
}

void Moves::neighbour(const std::int64_t* configuration, std::size_t width, Stream& stream,
                      std::int64_t* result) const {
    std::copy_n(configuration, width, result);
    const std::vector<std::int64_t> rows = rows_of(configuration);
    std::vector<std::size_t> movable;
    for (std::size_t position = 0; position < rows.size(); ++position) {
        if (graph_->tables[position].rows() > 1) {
            movable.push_back(position);
        }
    }
    if (movable.empty() || !leads_to_end(0, 0, rows)) {
        return;
    }
    std::vector<std::uint32_t> states(rows.size());
    for (std::size_t position = 0; position + 1 < rows.size(); ++position) {
        const std::uint32_t signature = graph_->tables[position].signature[static_cast<std::size_t>(rows[position])];
        states[position + 1] =
            static_cast<std::uint32_t>(graph_->layers[position].child(states[position], signature));
    }
    // Groups in random order until one can move.
    for (std::size_t left = movable.size(); left > 0; --left) {
        std::swap(movable[stream.below(std::uint64_t{left})], movable[left - 1]);
        const std::size_t position = movable[left - 1];
        const std::vector<std::uint32_t> near = near_rows(position, states[position], rows);
        if (!near.empty()) {
            put(graph_->tables[position], near[stream.below(std::uint64_t{near.size()})], result);
            return;
        }
    }
}

void Moves::mixture(const std::int64_t* mother, const std::int64_t* father, std::size_t width, Stream& stream,
                    std::int64_t* result) const {
    std::copy_n(mother, width, result);
    const std::vector<std::int64_t> mothers = rows_of(mother), fathers = rows_of(father);
    std::vector<Choice> choices(mothers.size());
    for (std::size_t position = 0; position < choices.size(); ++position) {
        const bool same = mothers[position] == fathers[position];
        choices[position] = {{mothers[position], same ? -1 : fathers[position]}};
    }
    const std::vector<std::vector<Node>> layers = mixtures(*graph_, choices);
    const Uint128 count = layers[0][0].mixtures;
    const Uint128 of_mother = leads_to_end(0, 0, mothers) ? 1 : 0;
    const Uint128 of_father = mothers != fathers && leads_to_end(0, 0, fathers) ? 1 : 0;
    if (count <= of_mother + of_father) {
        return;
    }
    // At least one mixture in three is neither parent.
    for (;;) {
        const auto parents = mixture_of_rank(layers, stream.below(count));
        bool from[2] = {false, false};
        for (std::size_t position = 0; position < choices.size(); ++position) {
            from[0] |= parents[position] == 0 && choices[position].row[1] >= 0;
            from[1] |= parents[position] == 1;
        }
        // A group that only the father has does not make a mixture of the father.
        const bool is_mother = !from[1] && of_mother != 0, is_father = !from[0] && of_father != 0;
        if (!is_mother && !is_father) {
            for (std::size_t position = 0; position < choices.size(); ++position) {
                const std::int64_t row = choices[position].row[parents[position]];
                put(graph_->tables[position], static_cast<std::size_t>(row), result);
            }
            return;
        }
    }
}

void Moves::nearest(const std::int64_t* configuration, std::int64_t* result) const {
    const std::size_t depth = graph_->layers.size();
    constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 2;
    // Of every signature its nearest row; of every state the way to the end that costs least, and its first edge.
    std::vector<std::vector<std::uint32_t>> rows(depth), first(depth);
    std::vector<std::int64_t> to_end{0}, here;
    for (std::size_t position = depth; position-- > 0;) {
        const Table& table = graph_->tables[position];
        const Layer& layer = graph_->layers[position];
        std::vector<std::int32_t> wanted;
        for (const std::int32_t column : table.columns) {
            wanted.push_back(place_of(configuration[column]));
        }
        std::vector<std::int64_t> costs(table.signatures(), kFar);
        rows[position].assign(table.signatures(), 0);
        for (std::size_t row = 0; row < table.rows(); ++row) {
            std::int64_t distance = 0;
            for (std::size_t j = 0; j < table.width(); ++j) {
                distance += std::abs(places_[position][row * table.width() + j] - wanted[j]);
            }
            if (distance < costs[table.signature[row]]) {
                costs[table.signature[row]] = distance;
                rows[position][table.signature[row]] = static_cast<std::uint32_t>(row);
            }
        }
        here.assign(layer.states(), kFar);
        first[position].assign(layer.states(), 0);
        for (std::size_t state = 0; state < layer.states(); ++state) {
            for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                const std::int64_t cost = costs[layer.edges[e].signature] + to_end[layer.edges[e].child];
                if (cost < here[state]) {
                    here[state] = cost;
                    first[position][state] = e;
                }
            }
        }
        to_end.swap(here);
    }
    std::uint32_t state = 0;
    for (std::size_t position = 0; position < depth; ++position) {
        const Edge edge = graph_->layers[position].edges[first[position][state]];
        put(graph_->tables[position], rows[position][edge.signature], result);
        state = edge.child;
    }
}

}  // namespace autotune
