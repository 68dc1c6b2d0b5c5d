// The feasible set of a sketch as a layered graph: every path from the root to the end is a choice of signatures.
//
// Parameters fall into groups; the joint values of a group are the rows of a table. Constraints between groups see
// only a few expressions of a group's values, its signature. After some groups, all that the rest needs to know is the
// state: what the constraints still open have become. A layer of the graph is one group; its nodes are the states
// before it and its edges the signatures that lead on.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tape_program.hpp"

namespace autotune {

// Joint values of the parameters of one group, sorted by signature, then lexicographically.
struct Table {
    std::vector<std::int32_t> columns;      // where they stand in a configuration
    std::vector<std::int64_t> values;       // [rows, columns]
    std::vector<std::uint32_t> signature;   // of every row
    std::vector<std::uint32_t> starts;      // first row of every signature, and the number of rows
    std::vector<std::uint32_t> sorted;      // rows in lexicographic order

    std::size_t width() const { return columns.size(); }
    std::size_t rows() const { return signature.size(); }
    std::size_t signatures() const { return starts.size() - 1; }
    const std::int64_t* row(std::size_t index) const { return values.data() + index * width(); }
    std::uint32_t size(std::size_t index) const { return starts[index + 1] - starts[index]; }
    // The row with the values that `configuration` has in the table's columns; -1 when there is none.
    std::int64_t find(const std::int64_t* configuration) const;
};

struct Edge {
    std::uint32_t signature;
    std::uint32_t child;  // a state of the next layer
};

struct Layer {
    std::vector<std::uint32_t> starts;  // first edge of every state, and the number of edges
    std::vector<Edge> edges;            // of each state by increasing signature

    std::size_t states() const { return starts.size() - 1; }
    // The state that `signature` leads to from `state`; -1 when it is infeasible there.
    std::int64_t child(std::uint32_t state, std::uint32_t signature) const;
};

struct Graph {
    std::vector<Table> tables;
    std::vector<Layer> layers;  // one a table; no states at all when nothing is feasible
};

// One constraint when a layer has been decided: what its expression still can be, and what it may be.
struct Check {
    std::int32_t lower = -1;  // outputs of the layer's program that bound the expression, -1 where unknown;
    std::int32_t upper = -1;  // both the same when nothing is open
    std::int64_t least = std::numeric_limits<std::int64_t>::min();
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> values;  // if any, the only ones allowed, sorted; least and most enclose them
    std::int32_t first_slot = 0;       // what the constraint needs of the state after the layer
    std::int32_t last_slot = 0;
};

// How a layer is joined: from the state before and the signature to the state after (the first outputs of the program)
// and to the bounds that the checks need.
struct LayerPlan {
    const TapeProgram* program = nullptr;  // none for a group without a signature, which no constraint sees
    std::int32_t state_after = 0;          // integers of a state
    std::vector<Check> checks;
};

// A table from rows in any order and their signatures, both row by row; also the distinct signatures, [n, seen].
// Throws std::invalid_argument when two rows are equal.
Table make_table(std::vector<std::int32_t> columns, const std::int64_t* rows, std::size_t count,
                 const std::int64_t* seen, std::size_t seen_width, std::vector<std::int64_t>& signatures);

// Joins the tables layer by layer; `signatures` as make_table gave them.
// Throws std::length_error when more than `limit` pairs of a state and a signature had to be looked at.
Graph join(std::vector<Table> tables, const std::vector<std::vector<std::int64_t>>& signatures,
           const std::vector<LayerPlan>& plans, std::int64_t limit);

// The graph with only those rows whose `keep` is not zero, and of states and edges what then still lies on a path.
Graph shrunk(const Graph& graph, const std::vector<std::vector<std::uint8_t>>& keep);

}  // namespace autotune
