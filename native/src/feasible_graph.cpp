#include "feasible_graph.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

namespace autotune {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// States of one layer, each once, numbered in the order in which they came.
class StateSet {
  public:
    explicit StateSet(std::size_t width) : width_(width), table_(64, kNone) {}

    std::size_t size() const { return count_; }
    std::vector<std::int64_t> take() { return std::move(keys_); }

    std::uint32_t insert(const std::int64_t* key) {
        if (2 * count_ >= table_.size()) {
            grow();
        }
        std::size_t place = hash(key) & (table_.size() - 1);
        while (table_[place] != kNone) {
            if (std::equal(key, key + width_, keys_.data() + table_[place] * width_)) {
                return table_[place];
            }
            place = (place + 1) & (table_.size() - 1);
        }
        table_[place] = static_cast<std::uint32_t>(count_++);
        keys_.insert(keys_.end(), key, key + width_);
        return table_[place];
    }

  private:
    std::size_t hash(const std::int64_t* key) const {
        std::uint64_t value = 0x9E3779B97F4A7C15;
        for (std::size_t i = 0; i < width_; ++i) {
            value = (value ^ static_cast<std::uint64_t>(key[i])) * 0xD6E8FEB86659FD93;
            value ^= value >> 32;
        }
        return value;
    }

    void grow() {
        std::vector<std::uint32_t> wider(2 * table_.size(), kNone);
        for (std::size_t state = 0; state < count_; ++state) {
            std::size_t place = hash(keys_.data() + state * width_) & (wider.size() - 1);
            while (wider[place] != kNone) {
                place = (place + 1) & (wider.size() - 1);
            }
            wider[place] = static_cast<std::uint32_t>(state);
        }
        table_ = std::move(wider);
    }

    std::size_t width_;
    std::size_t count_ = 0;
    std::vector<std::int64_t> keys_;
    std::vector<std::uint32_t> table_;
};

enum class Verdict { impossible, open, sure };

Verdict judge(const Check& check, const std::int64_t* outputs) {
    const bool bounded_below = check.lower >= 0, bounded_above = check.upper >= 0;
    const std::int64_t lower = bounded_below ? outputs[check.lower] : std::numeric_limits<std::int64_t>::min();
    const std::int64_t upper = bounded_above ? outputs[check.upper] : std::numeric_limits<std::int64_t>::max();
    if (lower > check.most || upper < check.least) {
        return Verdict::impossible;
    }
    if (check.values.empty()) {
        return lower >= check.least && upper <= check.most ? Verdict::sure : Verdict::open;
    }
    const auto allowed = std::lower_bound(check.values.begin(), check.values.end(), lower);
    if (allowed == check.values.end() || *allowed > upper) {
        return Verdict::impossible;
    }
    return lower == upper ? Verdict::sure : Verdict::open;
}

// Joins one layer. What a constraint that now holds whatever follows has left in the state no longer matters: the first
// such state's integers stand for all of them, so that the states merge.
class LayerJoin {
  public:
    explicit LayerJoin(const LayerPlan& plan)
        : plan_(plan), outputs_(static_cast<std::size_t>(plan.program->outputs())), known_(plan.checks.size()),
          next_(static_cast<std::size_t>(plan.state_after)) {}

    Layer run(const std::vector<std::int64_t>& states, std::size_t state_count,
              const std::vector<std::int64_t>& signatures, std::size_t signature_count) {
        constexpr std::size_t kChunk = 4096;
        const auto inputs = static_cast<std::size_t>(plan_.program->inputs());
        const std::size_t seen = signatures.size() / signature_count;
        const std::size_t width = inputs - seen;
        std::vector<std::int64_t> rows(kChunk * inputs), results(kChunk * outputs_);
        std::vector<std::uint32_t> states_of(kChunk), signatures_of(kChunk);
        Layer layer;
        layer.starts.assign(state_count + 1, 0);
        std::size_t filled = 0;
        const auto flush = [&] {
            plan_.program->evaluate(rows.data(), static_cast<std::int64_t>(filled), results.data(), 1);
            for (std::size_t i = 0; i < filled; ++i) {
                add(layer, states_of[i], signatures_of[i], results.data() + i * outputs_);
            }
            filled = 0;
        };
        for (std::size_t state = 0; state < state_count; ++state) {
            for (std::size_t signature = 0; signature < signature_count; ++signature) {
                std::int64_t* row = rows.data() + filled * inputs;
                std::copy_n(states.data() + state * width, width, row);
                std::copy_n(signatures.data() + signature * seen, seen, row + width);
                states_of[filled] = static_cast<std::uint32_t>(state);
                signatures_of[filled] = static_cast<std::uint32_t>(signature);
                if (++filled == kChunk) {
                    flush();
                }
            }
        }
        flush();
        std::partial_sum(layer.starts.begin(), layer.starts.end(), layer.starts.begin());
        return layer;
    }

    StateSet& next() { return next_; }

  private:
    void add(Layer& layer, std::uint32_t state, std::uint32_t signature, std::int64_t* outputs) {
        for (std::size_t i = 0; i < plan_.checks.size(); ++i) {
            const Check& check = plan_.checks[i];
            const Verdict verdict = judge(check, outputs);
            if (verdict == Verdict::impossible) {
                return;
            }
            if (verdict == Verdict::sure && check.first_slot < check.last_slot) {
                std::int64_t* first = outputs + check.first_slot;
                const auto size = static_cast<std::size_t>(check.last_slot - check.first_slot);
                if (known_[i].empty()) {
                    known_[i].assign(first, first + size);
                }
                std::copy_n(known_[i].data(), size, first);
            }
        }
        layer.edges.push_back({signature, next_.insert(outputs)});
        ++layer.starts[state + 1];
    }

    const LayerPlan& plan_;
    std::size_t outputs_;
    std::vector<std::vector<std::int64_t>> known_;
    StateSet next_;
};

// The layer of a group that no constraint sees: every state is kept.
Layer passing(std::size_t states) {
    Layer layer;
    layer.starts.resize(states + 1);
    std::iota(layer.starts.begin(), layer.starts.end(), 0u);
    layer.edges.resize(states);
    for (std::size_t state = 0; state < states; ++state) {
        layer.edges[state] = {0, static_cast<std::uint32_t>(state)};
    }
    return layer;
}

void check_plan(const LayerPlan& plan, std::size_t state_before, std::size_t seen) {
    const bool fits = plan.program != nullptr
                          ? static_cast<std::size_t>(plan.program->inputs()) == state_before + seen
                          : seen == 0 && static_cast<std::size_t>(plan.state_after) == state_before;
    const std::int32_t outputs = plan.program != nullptr ? plan.program->outputs() : 0;
    if (!fits || plan.state_after < 0 || (plan.program != nullptr && plan.state_after > outputs)) {
        throw std::invalid_argument("the plan of a layer does not fit its state and signature");
    }
    for (const Check& check : plan.checks) {
        if (plan.program == nullptr || check.lower < -1 || check.lower >= outputs || check.upper < -1 ||
            check.upper >= outputs || check.first_slot < 0 || check.first_slot > check.last_slot ||
            check.last_slot > plan.state_after || !std::is_sorted(check.values.begin(), check.values.end())) {
            throw std::invalid_argument("a check of a layer refers to what does not exist");
        }
    }
}

// A graph without points over groups with these columns.
Graph empty_graph(const std::vector<Table>& tables) {
    Graph graph;
    for (const Table& table : tables) {
        graph.tables.push_back({table.columns, {}, {}, {0}, {}});
        graph.layers.push_back({{0}, {}});
    }
    return graph;
}

// Where old numbers go when only those with a flag stay; kNone for the others.
std::vector<std::uint32_t> renumbered(const std::vector<std::uint8_t>& kept) {
    std::vector<std::uint32_t> result(kept.size(), kNone);
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
        if (kept[i]) {
            result[i] = next++;
        }
    }
    return result;
}

Table shrunk_table(const Table& table, const std::vector<std::uint8_t>& keep,
                   const std::vector<std::uint32_t>& signatures) {
    Table result;
    result.columns = table.columns;
    std::vector<std::uint32_t> place(table.rows(), kNone);
    for (std::size_t row = 0; row < table.rows(); ++row) {
        const std::uint32_t signature = signatures[table.signature[row]];
        if (!keep[row] || signature == kNone) {
            continue;
        }
        place[row] = static_cast<std::uint32_t>(result.signature.size());
        if (result.signature.empty() || result.signature.back() != signature) {
            result.starts.push_back(place[row]);
        }
        result.signature.push_back(signature);
        result.values.insert(result.values.end(), table.row(row), table.row(row) + table.width());
    }
    result.starts.push_back(static_cast<std::uint32_t>(result.rows()));
    for (const std::uint32_t row : table.sorted) {
        if (place[row] != kNone) {
            result.sorted.push_back(place[row]);
        }
    }
    return result;
}

}  // namespace

std::int64_t Table::find(const std::int64_t* configuration) const {
    const auto order = [this, configuration](std::uint32_t index) {
        const std::int64_t* values = row(index);
        for (std::size_t j = 0; j < width(); ++j) {
            const std::int64_t wanted = configuration[columns[j]];
            if (values[j] != wanted) {
                return values[j] < wanted ? -1 : 1;
            }
        }
        return 0;
    };
    const auto found =
        std::partition_point(sorted.begin(), sorted.end(), [&](std::uint32_t index) { return order(index) < 0; });
    return found != sorted.end() && order(*found) == 0 ? std::int64_t{*found} : -1;
}

std::int64_t Layer::child(std::uint32_t state, std::uint32_t signature) const {
    const auto first = edges.begin() + starts[state], last = edges.begin() + starts[state + 1];
    const auto found = std::partition_point(first, last, [&](const Edge& e) { return e.signature < signature; });
    return found != last && found->signature == signature ? std::int64_t{found->child} : -1;
}

Table make_table(std::vector<std::int32_t> columns, const std::int64_t* rows, std::size_t count,
                 const std::int64_t* seen, std::size_t seen_width, std::vector<std::int64_t>& signatures) {
    const std::size_t width = columns.size();
    const auto compare = [](const std::int64_t* base, std::size_t size, std::uint32_t a, std::uint32_t b) {
        return std::lexicographical_compare_three_way(base + a * size, base + a * size + size, base + b * size,
                                                      base + b * size + size);
    };
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        const auto by_signature = compare(seen, seen_width, a, b);
        return by_signature != 0 ? by_signature < 0 : compare(rows, width, a, b) < 0;
    });
    Table table;
    table.columns = std::move(columns);
    table.values.reserve(count * width);
    signatures.clear();
    for (std::size_t i = 0; i < count; ++i) {
        if (i == 0 || compare(seen, seen_width, order[i - 1], order[i]) != 0) {
            table.starts.push_back(static_cast<std::uint32_t>(i));
            signatures.insert(signatures.end(), seen + order[i] * seen_width, seen + (order[i] + 1) * seen_width);
        }
        table.signature.push_back(static_cast<std::uint32_t>(table.starts.size() - 1));
        table.values.insert(table.values.end(), rows + order[i] * width, rows + (order[i] + 1) * width);
    }
    table.starts.push_back(static_cast<std::uint32_t>(count));
    table.sorted.resize(count);
    std::iota(table.sorted.begin(), table.sorted.end(), 0u);
    std::sort(table.sorted.begin(), table.sorted.end(), [&](std::uint32_t a, std::uint32_t b) {
        return compare(table.values.data(), width, a, b) < 0;
    });
    for (std::size_t i = 1; i < count; ++i) {
        if (compare(table.values.data(), width, table.sorted[i - 1], table.sorted[i]) == 0) {
            throw std::invalid_argument("two rows of a group are equal");
        }
    }
    return table;
}

Graph join(std::vector<Table> tables, const std::vector<std::vector<std::int64_t>>& signatures,
           const std::vector<LayerPlan>& plans, std::int64_t limit) {
    if (std::any_of(tables.begin(), tables.end(), [](const Table& table) { return table.rows() == 0; })) {
        return empty_graph(tables);
    }
    Graph graph;
    graph.tables = std::move(tables);
    std::vector<std::int64_t> states;
    std::size_t state_count = 1, width = 0;
    std::int64_t looked_at = 0;
    for (std::size_t position = 0; position < graph.tables.size(); ++position) {
        const LayerPlan& plan = plans[position];
        const std::size_t count = graph.tables[position].signatures();
        check_plan(plan, width, signatures[position].size() / count);
        looked_at += static_cast<std::int64_t>(state_count * count);
        if (looked_at > limit) {
            throw std::length_error("its constraints join too many parameters (more than " + std::to_string(limit) +
                                    " combinations)");
        }
        if (plan.program == nullptr) {
            graph.layers.push_back(passing(state_count));
            continue;
        }
        LayerJoin layer(plan);
        graph.layers.push_back(layer.run(states, state_count, signatures[position], count));
        state_count = layer.next().size();
        states = layer.next().take();
        width = static_cast<std::size_t>(plan.state_after);
    }
    if (width != 0) {
        throw std::invalid_argument("the plan of the last layer leaves something open");
    }
    std::vector<std::vector<std::uint8_t>> keep;
    for (const Table& table : graph.tables) {
        keep.emplace_back(table.rows(), std::uint8_t{1});
    }
    return shrunk(graph, keep);
}

Graph shrunk(const Graph& graph, const std::vector<std::vector<std::uint8_t>>& keep) {
    const std::size_t depth = graph.layers.size();
    std::vector<std::vector<std::uint8_t>> offered(depth), live(depth + 1);
    for (std::size_t position = 0; position < depth; ++position) {
        const Table& table = graph.tables[position];
        offered[position].assign(table.signatures(), 0);
        for (std::size_t row = 0; row < table.rows(); ++row) {
            offered[position][table.signature[row]] |= keep[position][row];
        }
        live[position].assign(graph.layers[position].states(), 0);
    }
    // Forwards what can be reached, backwards what also leads to the end, which is a single state.
    live[depth].assign(1, 0);
    live[0].assign(live[0].size(), 1);
    const auto leads_on = [&](std::size_t position, const Edge& edge) {
        return offered[position][edge.signature] && live[position + 1][edge.child];
    };
    for (std::size_t position = 0; position < depth; ++position) {
        const Layer& layer = graph.layers[position];
        for (std::size_t state = 0; state < layer.states(); ++state) {
            for (std::uint32_t e = layer.starts[state]; live[position][state] && e < layer.starts[state + 1]; ++e) {
                live[position + 1][layer.edges[e].child] |= offered[position][layer.edges[e].signature];
            }
        }
    }
    Graph result;
    result.tables.resize(depth);
    result.layers.resize(depth);
    for (std::size_t position = depth; position-- > 0;) {
        const Layer& layer = graph.layers[position];
        for (std::size_t state = 0; state < layer.states(); ++state) {
            const auto first = layer.edges.begin() + layer.starts[state];
            const auto last = layer.edges.begin() + layer.starts[state + 1];
            live[position][state] &= std::any_of(first, last, [&](const Edge& e) { return leads_on(position, e); });
        }
    }
    for (std::size_t position = 0; position < depth; ++position) {
        const Layer& layer = graph.layers[position];
        const std::vector<std::uint32_t> children = renumbered(live[position + 1]);
        std::vector<std::uint8_t> used(graph.tables[position].signatures(), 0);
        Layer& kept = result.layers[position];
        kept.starts.push_back(0);
        for (std::size_t state = 0; state < layer.states(); ++state) {
            if (!live[position][state]) {
                continue;
            }
            for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                if (leads_on(position, layer.edges[e])) {
                    used[layer.edges[e].signature] = 1;
                    kept.edges.push_back({layer.edges[e].signature, children[layer.edges[e].child]});
                }
            }
            kept.starts.push_back(static_cast<std::uint32_t>(kept.edges.size()));
        }
        const std::vector<std::uint32_t> signatures = renumbered(used);
        for (Edge& edge : kept.edges) {
            edge.signature = signatures[edge.signature];
        }
        result.tables[position] = shrunk_table(graph.tables[position], keep[position], signatures);
    }
    return result;
}

}  // namespace autotune
