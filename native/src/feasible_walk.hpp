// Exact counts over the graph of a feasible set, and what follows from them: ranks, uniform and stratified points.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "blocks.hpp"
#include "feasible_graph.hpp"
#include "philox.hpp"

namespace autotune {

// Configurations from every state of every layer to the end; one more list for the end itself.
// Throws std::overflow_error when there are 2^128 or more.
std::vector<std::vector<Uint128>> counts_to_end(const Graph& graph);

// The last position in [first, last) whose value is at most `rank`; values increase and the first is at most `rank`.
template <class Count>
std::size_t last_at_most(const Count* values, std::size_t first, std::size_t last, Count rank) {
    std::size_t length = last - first;
    while (length > 1) {
        const std::size_t half = length / 2;
        first = values[first + half] <= rank ? first + half : first;
        length -= half;
    }
    return first;
}

// Writes a row of a table into a configuration.
inline void put(const Table& table, std::size_t row, std::int64_t* configuration) {
    const std::int64_t* values = table.row(row);
    for (std::size_t j = 0; j < table.width(); ++j) {
        configuration[table.columns[j]] = values[j];
    }
}

// Points by rank: the order is that of the groups' rows, the first group outermost. `Count` holds the number of points.
template <class Count>
class Walk {
  public:
    Walk(const Graph& graph, const std::vector<std::vector<Uint128>>& counts) : graph_(&graph) {
        for (const std::vector<Uint128>& layer : counts) {
            to_end_.emplace_back(layer.begin(), layer.end());
        }
        for (std::size_t position = 0; position < graph.layers.size(); ++position) {
            const Layer& layer = graph.layers[position];
            std::vector<Count> before(layer.edges.size());
            for (std::size_t state = 0; state < layer.states(); ++state) {
                Count sum = 0;
                for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                    before[e] = sum;
                    sum += graph.tables[position].size(layer.edges[e].signature) *
                           to_end_[position + 1][layer.edges[e].child];
                }
            }
            before_.push_back(std::move(before));
        }
    }

    Count total() const { return to_end_[0].empty() ? 0 : to_end_[0][0]; }
    Count to_end(std::size_t position, std::uint32_t state) const { return to_end_[position][state]; }

    // From the state `states[i]` of the layer `first[i]` on: the point of this rank among those that go through there.
    // Layer by layer for all of them, so that the processor waits for the memory of many at once.
    void finish(const std::uint8_t* first, std::uint32_t* states, Count* ranks, int count, std::int64_t* points,
                std::size_t width) const {
        for (std::size_t position = 0; position < graph_->layers.size(); ++position) {
            const Layer& layer = graph_->layers[position];
            const Table& table = graph_->tables[position];
            const std::vector<Count>& to_end = to_end_[position + 1];
            const Count* before = before_[position].data();
            for (int i = 0; i < count; ++i) {
                if (first[i] > position) {
                    continue;
                }
                const std::size_t e =
                    last_at_most(before, layer.starts[states[i]], layer.starts[states[i] + 1], ranks[i]);
                const Edge edge = layer.edges[e];
                const Count rest = ranks[i] - before[e], each = to_end[edge.child];
                const Count row = rest / each;
                ranks[i] = rest - row * each;
                states[i] = edge.child;
                put(table, table.starts[edge.signature] + static_cast<std::size_t>(row),
                    points + static_cast<std::size_t>(i) * width);
            }
        }
    }

  private:
    const Graph* graph_;
    std::vector<std::vector<Count>> to_end_;
    std::vector<std::vector<Count>> before_;  // of every edge: points through the edges before it from its state
};

// Points with a chosen row of one group: needs the graph in both directions.
template <class Count>
class Strata {
  public:
    Strata(const Graph& graph, const Walk<Count>& walk) : graph_(&graph), walk_(&walk) {
        count_from_root();
        for (std::size_t position = 0; position < graph.layers.size(); ++position) {
            through_.push_back(edges_by_signature(position));
            into_.push_back(edges_by_child(position));
            for (std::size_t column = 0; column < graph.tables[position].width(); ++column) {
                add_column(position, column);
            }
        }
    }

    // For each of at most kBlock streams a parameter that has several values, one of its values, and a point with that
    // value, each uniformly. Step by step for all of them, as Walk::finish.
    void draw(Stream* streams, int count, std::int64_t* points, std::size_t width) const {
        std::uint8_t chosen[kBlock] = {}, next[kBlock] = {};
        std::uint32_t states[kBlock] = {}, origins[kBlock] = {}, rows[kBlock];
        Count forth[kBlock], back[kBlock];
        if (columns_.empty()) {
            for (int i = 0; i < count; ++i) {
                forth[i] = streams[i].below(walk_->total());
            }
            walk_->finish(next, states, forth, count, points, width);
            return;
        }
        for (int i = 0; i < count; ++i) {
            const Column& column = columns_[streams[i].below(std::uint64_t{columns_.size()})];
            const std::uint64_t value = streams[i].below(std::uint64_t{column.starts.size() - 1});
            back[i] = streams[i].below(column.totals[value]);
            const std::size_t at =
                last_at_most(column.before.data(), column.starts[value], column.starts[value + 1], back[i]);
            back[i] -= column.before[at];
            rows[i] = column.rows[at];
            chosen[i] = column.position;
        }
        for (int i = 0; i < count; ++i) {
            const Table& table = graph_->tables[chosen[i]];
            const Incidence& through = through_[chosen[i]];
            const std::uint32_t signature = table.signature[rows[i]];
            const std::size_t link = last_at_most(through.before.data(), through.starts[signature],
                                                  through.starts[signature + 1], back[i]);
            const Count rank = back[i] - through.before[link];
            origins[i] = through.links[link].state;
            states[i] = graph_->layers[chosen[i]].edges[through.links[link].edge].child;
            next[i] = static_cast<std::uint8_t>(chosen[i] + 1);
            const Count each = walk_->to_end(next[i], states[i]);
            back[i] = rank / each;
            forth[i] = rank - back[i] * each;
            put(table, rows[i], points + static_cast<std::size_t>(i) * width);
        }
        go_back(chosen, origins, back, count, points, width);
        walk_->finish(next, states, forth, count, points, width);
    }

  private:
    struct Link {
        std::uint32_t edge;
        std::uint32_t state;  // where the edge begins
    };
    // Edges of a layer sorted by something else than their states, with the sum of the counts before each.
    struct Incidence {
        std::vector<std::uint32_t> starts;
        std::vector<Link> links;
        std::vector<Count> before;
    };
    // Rows of a group sorted by one column; `before` and `totals` count the points through them, value by value.
    struct Column {
        std::uint8_t position;
        std::vector<std::uint32_t> rows;
        std::vector<std::size_t> starts;
        std::vector<Count> before;
        std::vector<Count> totals;
    };

    void count_from_root() {
        from_root_.resize(graph_->layers.size() + 1);
        from_root_[0].assign(1, 1);
        for (std::size_t position = 0; position < graph_->layers.size(); ++position) {
            const Layer& layer = graph_->layers[position];
            const bool last = position + 1 == graph_->layers.size();
            from_root_[position + 1].assign(last ? 1 : graph_->layers[position + 1].states(), 0);
            for (std::size_t state = 0; state < layer.states(); ++state) {
                for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                    from_root_[position + 1][layer.edges[e].child] +=
                        from_root_[position][state] * graph_->tables[position].size(layer.edges[e].signature);
                }
            }
        }
    }

    template <class Key, class Weight>
    Incidence incidence(std::size_t position, std::size_t keys, const Key& key, const Weight& weight) const {
        const Layer& layer = graph_->layers[position];
        Incidence result;
        result.starts.assign(keys + 1, 0);
        for (const Edge& edge : layer.edges) {
            ++result.starts[key(edge) + 1];
        }
        std::partial_sum(result.starts.begin(), result.starts.end(), result.starts.begin());
        result.links.resize(layer.edges.size());
        result.before.resize(layer.edges.size());
        std::vector<std::uint32_t> next(result.starts.begin(), result.starts.end() - 1);
        std::vector<Count> sums(keys, 0);
        for (std::size_t state = 0; state < layer.states(); ++state) {
            for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                const std::size_t k = key(layer.edges[e]);
                result.links[next[k]] = {e, static_cast<std::uint32_t>(state)};
                result.before[next[k]++] = sums[k];
                sums[k] += weight(state, layer.edges[e]);
            }
        }
        return result;
    }

    Incidence edges_by_signature(std::size_t position) {
        const Table& table = graph_->tables[position];
        rest_.assign(table.signatures(), 0);
        const auto weight = [&](std::size_t state, const Edge& edge) {
            const Count count = from_root_[position][state] * walk_->to_end(position + 1, edge.child);
            rest_[edge.signature] += count;
            return count;
        };
        return incidence(position, table.signatures(), [](const Edge& edge) { return edge.signature; }, weight);
    }

    Incidence edges_by_child(std::size_t position) const {
        const auto weight = [&](std::size_t state, const Edge& edge) {
            return from_root_[position][state] * graph_->tables[position].size(edge.signature);
        };
        return incidence(position, from_root_[position + 1].size(), [](const Edge& edge) { return edge.child; },
                         weight);
    }

    // Uses rest_: the points through any one row of each signature of this position.
    void add_column(std::size_t position, std::size_t column) {
        const Table& table = graph_->tables[position];
        Column result{static_cast<std::uint8_t>(position), {}, {}, {}, {}};
        result.rows = table.sorted;
        const auto value = [&](std::uint32_t row) { return table.row(row)[column]; };
        std::stable_sort(result.rows.begin(), result.rows.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return value(a) < value(b); });
        for (std::size_t i = 0; i < result.rows.size(); ++i) {
            if (i == 0 || value(result.rows[i]) != value(result.rows[i - 1])) {
                result.starts.push_back(i);
                result.totals.push_back(0);
            }
            result.before.push_back(result.totals.back());
            result.totals.back() += rest_[table.signature[result.rows[i]]];
        }
        if (result.totals.size() > 1) {
            result.starts.push_back(result.rows.size());
            columns_.push_back(std::move(result));
        }
    }

    // The groups before `chosen[i]` on the way to its state `states[i]`: the way from the root that has this rank.
    void go_back(const std::uint8_t* chosen, std::uint32_t* states, Count* ranks, int count, std::int64_t* points,
                 std::size_t width) const {
        for (std::size_t position = graph_->layers.size(); position-- > 0;) {
            const Incidence& into = into_[position];
            const Table& table = graph_->tables[position];
            for (int i = 0; i < count; ++i) {
                if (chosen[i] <= position) {
                    continue;
                }
                const std::size_t at =
                    last_at_most(into.before.data(), into.starts[states[i]], into.starts[states[i] + 1], ranks[i]);
                const Link link = into.links[at];
                const Count rest = ranks[i] - into.before[at], each = from_root_[position][link.state];
                const std::uint32_t signature = graph_->layers[position].edges[link.edge].signature;
                const Count row = rest / each;
                ranks[i] = rest - row * each;
                states[i] = link.state;
                put(table, table.starts[signature] + static_cast<std::size_t>(row),
                    points + static_cast<std::size_t>(i) * width);
            }
        }
    }

    const Graph* graph_;
    const Walk<Count>* walk_;
    std::vector<std::vector<Count>> from_root_;
    std::vector<Incidence> through_;
    std::vector<Incidence> into_;
    std::vector<Column> columns_;
    std::vector<Count> rest_;
};

}  // namespace autotune
