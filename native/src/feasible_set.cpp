#include "feasible_set.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace autotune {

std::vector<std::vector<Uint128>> counts_to_end(const Graph& graph) {
    const std::size_t depth = graph.layers.size();
    std::vector<std::vector<Uint128>> counts(depth + 1);
    counts[depth].assign(1, 1);
    for (std::size_t position = depth; position-- > 0;) {
        const Layer& layer = graph.layers[position];
        counts[position].assign(layer.states(), 0);
        for (std::size_t state = 0; state < layer.states(); ++state) {
            Uint128& sum = counts[position][state];
            for (std::uint32_t e = layer.starts[state]; e < layer.starts[state + 1]; ++e) {
                const Edge edge = layer.edges[e];
                const Uint128 rows = graph.tables[position].size(edge.signature);
                Uint128 points;
                if (__builtin_mul_overflow(rows, counts[position + 1][edge.child], &points) ||
                    __builtin_add_overflow(sum, points, &sum)) {
                    throw std::overflow_error("a feasible set has fewer than 2**128 points");
                }
            }
        }
    }
    return counts;
}

FeasibleSet::FeasibleSet(Graph graph, std::int32_t width)
    : graph_(std::move(graph)), width_(static_cast<std::size_t>(width)) {
    if (graph_.tables.size() > kMaxGroups) {
        throw std::invalid_argument("a feasible set has at most " + std::to_string(kMaxGroups) + " groups");
    }
    std::size_t columns = 0;
    for (const Table& table : graph_.tables) {
        columns += table.width();
    }
    // Before memory is taken for it: a width may be anything.
    std::vector<int> owners(std::min(width_, columns), 0);
    for (const Table& table : graph_.tables) {
        for (const std::int32_t column : table.columns) {
            if (column < 0 || static_cast<std::size_t>(column) >= owners.size() ||
                owners[static_cast<std::size_t>(column)]++ != 0) {
                throw std::invalid_argument("every column of a configuration belongs to exactly one group");
            }
        }
    }
    if (columns != width_) {
        throw std::invalid_argument("every column of a configuration belongs to exactly one group");
    }
    const std::vector<std::vector<Uint128>> counts = counts_to_end(graph_);
    total_ = counts[0].empty() ? 0 : counts[0][0];
    if (total_ >> 64 == 0) {
        counted_.emplace<Counted<std::uint64_t>>(graph_, counts);
    } else {
        counted_.emplace<Counted<Uint128>>(graph_, counts);
    }
}

std::size_t FeasibleSet::edges() const {
    std::size_t sum = 0;
    for (const Layer& layer : graph_.layers) {
        sum += layer.edges.size();
    }
    return sum;
}

void FeasibleSet::require_points() const {
    if (total_ == 0) {
        throw std::invalid_argument("the feasible set is empty");
    }
}

const Moves& FeasibleSet::moves() const {
    std::call_once(moves_once_, [this] { moves_ = std::make_unique<Moves>(graph_); });
    return *moves_;
}

namespace {

// The points whose ranks `rank(i)` gives, for rows first to last.
template <class Count, class Rank>
void walk_ranks(const Walk<Count>& walk, std::int64_t first, std::int64_t last, std::size_t width,
                std::int64_t* points, const Rank& rank) {
    Count ranks[kBlock];
    const std::uint8_t root[kBlock] = {};
    std::uint32_t states[kBlock];
    for (std::int64_t start = first; start < last; start += kBlock) {
        const int count = static_cast<int>(std::min<std::int64_t>(kBlock, last - start));
        for (int i = 0; i < count; ++i) {
            ranks[i] = rank(start + i);
            states[i] = 0;
        }
        walk.finish(root, states, ranks, count, points + static_cast<std::size_t>(start) * width, width);
    }
}

// Calls `work` with what is held, which is never the empty alternative.
template <class Variant, class Work>
void with_counted(const Variant& variant, const Work& work) {
    std::visit(
        [&](const auto& counted) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(counted)>, std::monostate>) {
                work(counted);
            }
        },
        variant);
}

}  // namespace

void FeasibleSet::list(Uint128 first, std::int64_t count, std::int64_t* points) const {
    if (first > total_ || static_cast<Uint128>(count) > total_ - first) {
        throw std::invalid_argument("the feasible set has fewer points");
    }
    with_counted(counted_, [&](const auto& counted) {
        using Count = decltype(counted.walk.total());
        walk_ranks(counted.walk, 0, count, width_, points,
                   [&](std::int64_t i) { return static_cast<Count>(first + static_cast<Uint128>(i)); });
    });
}

void FeasibleSet::uniform(std::int64_t count, std::uint64_t seed, std::uint64_t first, int threads,
                      std::int64_t* points) const {
    require_points();
    with_counted(counted_, [&](const auto& counted) {
        for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
            walk_ranks(counted.walk, begin, end, width_, points, [&](std::int64_t i) {
                return Stream(seed, Purpose::uniform, first + static_cast<std::uint64_t>(i))
                    .below(counted.walk.total());
            });
        });
    });
}

void FeasibleSet::stratified(std::int64_t count, std::uint64_t seed, std::uint64_t first, int threads,
                         std::int64_t* points) const {
    require_points();
    with_counted(counted_, [&](const auto& counted) {
        const auto& strata = counted.prepared(graph_);
        for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
            std::vector<Stream> streams;
            for (std::int64_t start = begin; start < end; start += kBlock) {
                streams.clear();
                for (std::int64_t i = start; i < std::min(end, start + kBlock); ++i) {
                    streams.emplace_back(seed, Purpose::stratified, first + static_cast<std::uint64_t>(i));
                }
                strata.draw(streams.data(), static_cast<int>(streams.size()),
                            points + static_cast<std::size_t>(start) * width_, width_);
            }
        });
    });
}

void FeasibleSet::neighbours(const std::int64_t* rows, std::int64_t count, std::uint64_t seed, std::uint64_t first,
                         int threads, std::int64_t* points) const {
    require_points();
    const Moves& all = moves();
    for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::size_t at = static_cast<std::size_t>(i) * width_;
            Stream stream(seed, Purpose::neighbours, first + static_cast<std::uint64_t>(i));
            all.neighbour(rows + at, width_, stream, points + at);
        }
    });
}

void FeasibleSet::crossover(const std::int64_t* mothers, const std::int64_t* fathers, std::int64_t count,
                        std::uint64_t seed, std::uint64_t first, int threads, std::int64_t* points) const {
    require_points();
    const Moves& all = moves();
    for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::size_t at = static_cast<std::size_t>(i) * width_;
            Stream stream(seed, Purpose::crossover, first + static_cast<std::uint64_t>(i));
            all.mixture(mothers + at, fathers + at, width_, stream, points + at);
        }
    });
}

void FeasibleSet::contains(const std::int64_t* rows, std::int64_t count, int threads, bool* result) const {
    const bool some = total_ != 0;
    const Moves& all = moves();
    for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            result[i] = some && all.contains(rows + static_cast<std::size_t>(i) * width_);
        }
    });
}

void FeasibleSet::nearest(const std::int64_t* rows, std::int64_t count, int threads, std::int64_t* points) const {
    require_points();
    const Moves& all = moves();
    for_row_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::size_t at = static_cast<std::size_t>(i) * width_;
            all.nearest(rows + at, points + at);
        }
    });
}

std::vector<std::int64_t> FeasibleSet::values(std::int32_t column) const {
    const auto [position, place_in_table] = place(column);
    const Table& table = graph_.tables[position];
    std::vector<std::int64_t> result;
    for (std::size_t row = 0; row < table.rows(); ++row) {
        result.push_back(table.row(row)[place_in_table]);
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
}

std::pair<std::size_t, std::size_t> FeasibleSet::place(std::int32_t column) const {
    for (std::size_t position = 0; position < graph_.tables.size(); ++position) {
        const std::vector<std::int32_t>& columns = graph_.tables[position].columns;
        const auto found = std::find(columns.begin(), columns.end(), column);
        if (found != columns.end()) {
            return {position, static_cast<std::size_t>(found - columns.begin())};
        }
    }
    throw std::invalid_argument("a column that does not exist");
}

std::unique_ptr<FeasibleSet> FeasibleSet::restricted(const std::vector<std::int32_t>& columns,
                                             const std::vector<std::vector<std::int64_t>>& values) const {
    if (columns.size() != values.size()) {
        throw std::invalid_argument("every restricted column has its values");
    }
    std::vector<std::vector<std::uint8_t>> keep;
    for (const Table& table : graph_.tables) {
        keep.emplace_back(table.rows(), std::uint8_t{1});
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
        std::vector<std::int64_t> allowed = values[i];
        std::sort(allowed.begin(), allowed.end());
        const auto [position, column] = place(columns[i]);
        const Table& table = graph_.tables[position];
        for (std::size_t row = 0; row < table.rows(); ++row) {
            keep[position][row] &= std::binary_search(allowed.begin(), allowed.end(), table.row(row)[column]);
        }
    }
    return std::make_unique<FeasibleSet>(shrunk(graph_, keep), static_cast<std::int32_t>(width_));
}

}  // namespace autotune
