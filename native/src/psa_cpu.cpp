#include "psa_cpu.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace {

constexpr int kMaxLoops = 64;
constexpr int kMaxBuffers = 32;
constexpr double kLine = 64.0;

using Block = double[kBlock];

// Columns of the program's outputs, and room for what is computed of one statement.
struct Scratch {
    alignas(64) Block inside[kMaxLoops + 1];   // vector statements inside each depth, per iteration there
    alignas(64) Block outside[kMaxLoops + 1];  // iterations of the loops outside each depth
    alignas(64) Block depth, vectors, lanes, entries;
    int shallowest, deepest;  // of the bodies' depths
    alignas(64) Block cycles, moved;
};

struct View {
    const double* slots;
    const std::int32_t* output_slots;
    AUTOTUNE_ALWAYS_INLINE const double* column(std::int32_t output) const {
        return slots + static_cast<std::size_t>(output_slots[output]) * kBlock;
    }
};

#define AUTOTUNE_ROWS _Pragma("GCC ivdep") for (int i = 0; i < kBlock; ++i)

AUTOTUNE_ALWAYS_INLINE double larger(double a, double b) { return a < b ? b : a; }
AUTOTUNE_ALWAYS_INLINE double smaller(double a, double b) { return b < a ? b : a; }

// Vector statements inside every depth, and iterations outside it.
AUTOTUNE_ALWAYS_INLINE void count_statements(const CpuStatement& s, View view, Scratch& t) {
    AUTOTUNE_ROWS { t.lanes[i] = 1.0; }
    if (s.vector >= 0) {
        const double* extent = view.column(s.extents[s.vector]);
        AUTOTUNE_ROWS { t.lanes[i] = extent[i]; }
    }
    // Where the compiler finds the vectors itself, a remainder costs as much as two vectors.
    const double remainder = s.declared ? 0.0 : 2.0;
    AUTOTUNE_ROWS {
        const double whole = std::ceil(t.lanes[i] / s.lanes);
        const double rest = s.vector >= 0 && whole * s.lanes != t.lanes[i] ? remainder : 0.0;
        t.vectors[i] = whole + rest;
        t.inside[s.loops][i] = t.vectors[i];
        t.outside[0][i] = 1.0;
    }
    for (int d = s.loops - 1; d >= 0; --d) {
        const double* extent = view.column(s.extents[d]);
        const bool lanes = d == s.vector;
        AUTOTUNE_ROWS { t.inside[d][i] = lanes ? t.inside[d + 1][i] : t.inside[d + 1][i] * extent[i]; }
    }
    for (int d = 0; d < s.loops; ++d) {
        const double* extent = view.column(s.extents[d]);
        AUTOTUNE_ROWS { t.outside[d + 1][i] = t.outside[d][i] * extent[i]; }
    }
}

// Depth of the straight-line body: as scheduled, and further out while the compiler unrolls short loops.
AUTOTUNE_ALWAYS_INLINE void find_body(const CpuStatement& s, const CpuMachine& m, Scratch& t) {
    int scheduled = s.body;
    if (!s.declared && s.vector >= 0 && scheduled == s.vector + 1) {
        scheduled = s.vector;
        while (scheduled > 0 && !s.remains[scheduled - 1]) {
            --scheduled;
        }
    }
    const double size = larger(s.work, 1.0) + 1.0;
    AUTOTUNE_ROWS { t.depth[i] = scheduled; }
    t.shallowest = t.deepest = scheduled;
    for (int d = scheduled - 1; d >= 0 && !s.parallel[d] && t.shallowest == d + 1; --d) {
        double moved = 0.0;
        for (int i = 0; i < kBlock; ++i) {
            const double whole = t.depth[i] == d + 1 && t.inside[d][i] * size <= m.unrolled ? 1.0 : 0.0;
            t.depth[i] -= whole;
            moved += whole;
        }
        t.shallowest = moved != 0.0 ? d : t.shallowest;
    }
}

// Cycles in the loops: issue, loads and stores, chains of dependent updates, spills and loop overhead.
AUTOTUNE_ALWAYS_INLINE void count_cycles(const CpuStatement& s, const CpuMachine& m, View view, Scratch& t) {
    alignas(64) Block statements, iterations, chain, loads, accumulators, carried;
    AUTOTUNE_ROWS {
        statements[i] = t.inside[s.loops][i];
        iterations[i] = t.outside[s.loops][i];
        t.entries[i] = 1.0;
        chain[i] = 1.0;
        loads[i] = 0.0;
        accumulators[i] = 0.0;
        carried[i] = 0.0;
    }
    for (int d = t.shallowest; d <= t.deepest; ++d) {
        const bool reduces = d > 0 && s.reduces[d - 1];
        AUTOTUNE_ROWS {
            const bool here = t.depth[i] == d;
            statements[i] = here ? t.inside[d][i] : statements[i];
            iterations[i] = here ? t.outside[d][i] : iterations[i];
            t.entries[i] = here ? t.outside[d > 0 ? d - 1 : 0][i] : t.entries[i];
            carried[i] = here && reduces ? 1.0 : carried[i];
        }
    }
    for (int d = t.shallowest; d < s.loops; ++d) {
        if (s.reduces[d]) {
            const double* extent = view.column(s.extents[d]);
            AUTOTUNE_ROWS { chain[i] *= d >= t.depth[i] ? extent[i] : 1.0; }
        }
    }
    for (int b = 0; b < s.buffers; ++b) {
        const bool contiguous = s.vector >= 0 && s.meets[b] == LanesMeet::contiguous;
        const bool written = b == s.written;
        for (int d = t.shallowest; d <= t.deepest; ++d) {
            const double* region = view.column(s.regions[b * (s.loops + 1) + d]);
            AUTOTUNE_ROWS {
                const double count = contiguous ? region[i] / t.lanes[i] * t.vectors[i] : region[i];
                const bool here = t.depth[i] == d;
                loads[i] += here && !written ? count : 0.0;
                accumulators[i] = here && written ? count : accumulators[i];
            }
        }
    }
    AUTOTUNE_ROWS {
        const double registers = m.vector_registers;
        const bool held = carried[i] != 0.0 && accumulators[i] <= registers + 4.0;
        const double issue = statements[i] * s.work / m.fma_units;
        const double load = (loads[i] + (carried[i] != 0.0 && !held ? accumulators[i] : 0.0)) / m.loads_per_cycle;
        const double store = held ? 0.0 : accumulators[i] / m.stores_per_cycle;
        double body = larger(issue, larger(load, store));
        body += m.contention * (issue + load + store - body);
        body = larger(body, carried[i] != 0.0 ? m.latency * chain[i] : 0.0);
        const double excess = larger(accumulators[i] + 2.0 - registers, 0.0);
        body += chain[i] > 1.0 || carried[i] != 0.0 ? excess * chain[i] * m.spill : 0.0;
        t.cycles[i] = iterations[i] * (body + m.iteration) + t.entries[i] * m.entry;
    }
}

// What a statement's buffers occupy at one depth, and what comes in when they are held there.
struct Held {
    alignas(64) Block footprint, brought;
    alignas(64) Block conflicting[2];  // the worst buffer's sets of the first two caches, in bytes
};

AUTOTUNE_ALWAYS_INLINE void hold(const CpuStatement& s, const CpuMachine& m, View view, int depth, Held& held) {
    AUTOTUNE_ROWS {
        held.footprint[i] = 0.0;
        held.brought[i] = 0.0;
        held.conflicting[0][i] = 0.0;
        held.conflicting[1][i] = 0.0;
    }
    for (int b = 0; b < s.buffers; ++b) {
        const int at = b * (s.loops + 1) + depth;
        // Lines stay from one iteration of the loop around to the next.
        const int around = depth > 0 ? at - 1 : at;
        const double* rows = view.column(s.rows[at]);
        const double* lines = view.column(s.lines[at]);
        const double* apart = view.column(s.apart[at]);
        const double* traffic = view.column(s.traffic[at]);
        const double* region = view.column(s.regions[around]);
        const double* region_rows = view.column(s.rows[around]);
        const double* region_lines = view.column(s.lines[around]);
        const double* divided = view.column(s.divided[b]);
        const double part = depth == 0 ? 1.0 / m.cores : 1.0;
        AUTOTUNE_ROWS {
            const double share = divided[i] != 0.0 ? part : 1.0;
            const double jumps = region_rows[i] > 1.0 ? region_rows[i] * m.row : 0.0;
            held.footprint[i] += lines[i] * share;
            held.brought[i] += traffic[i] / larger(region[i], 1.0) * (region_lines[i] + jumps) * share;
            // Rows a power of two apart fall on the same few sets.
            for (int level = 0; level < 2; ++level) {
                const double sets = larger(lines[i], rows[i] * smaller(apart[i], m.way_bytes[level])) * share;
                held.conflicting[level][i] = larger(held.conflicting[level][i], rows[i] > 1.0 ? sets : 0.0);
            }
        }
    }
}

// Cycles to move data between the levels of memory.
AUTOTUNE_ALWAYS_INLINE void count_moves(const CpuStatement& s, const CpuMachine& m, double program_bytes, View view,
                                        Scratch& t) {
    alignas(64) Block open[3];
    AUTOTUNE_ROWS {
        t.moved[i] = 0.0;
        open[0][i] = open[1][i] = open[2][i] = 1.0;
    }
    Held held;
    double left = 1.0;
    for (int depth = 0; depth <= s.loops && left != 0.0; ++depth) {
        hold(s, m, view, depth, held);
        left = 0.0;
        for (int level = 0; level < 3; ++level) {
            const double capacity = m.capacity[level];
            // What fits as a whole is there already: programs are timed, and used, again and again.
            const double cold =
                depth == 0 ? smaller(1.0, larger(0.0, program_bytes / m.cores / capacity - 1.0)) : 1.0;
            const double cost = cold / m.bandwidth[level];
            const double* conflicting = held.conflicting[level < 2 ? level : 0];
            const double hashed = level < 2 && m.way_bytes[level] > 0.0 ? 1.0 : 0.0;
            const double last = depth == s.loops ? 1.0 : 0.0;
            AUTOTUNE_ROWS {
                const double worst = larger(held.footprint[i], conflicting[i] * hashed);
                const double fits = worst <= capacity || last != 0.0 ? open[level][i] : 0.0;
                t.moved[i] += fits * held.brought[i] * cost;
                open[level][i] -= fits;
            }
            for (int i = 0; i < kBlock; ++i) {
                left += open[level][i];
            }
        }
    }
    for (int b = 0; b < s.buffers; ++b) {
        if (s.aligned[b] < 0 || m.cores < 2.0) {
            continue;
        }
        const double* aligned = view.column(s.aligned[b]);
        const double* divided = view.column(s.divided[b]);
        const double* region = view.column(s.regions[b * (s.loops + 1)]);
        const double element = s.element_bytes[b];
        AUTOTUNE_ROWS {
            const double share = divided[i] != 0.0 ? 1.0 : m.cores;
            const double others = aligned[i] != 0.0 ? 0.0 : (m.cores - 1.0) / m.cores;
            t.moved[i] += region[i] * element * share * others / m.foreign;
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void score_block(const CpuStatement* statements, std::size_t count, const CpuMachine* machine,
                                        double program_bytes, double nests, View view, Scratch* scratch,
                                        double* result) {
    const CpuMachine& m = *machine;
    Scratch& t = *scratch;
    AUTOTUNE_ROWS { result[i] = nests * m.launch; }
    for (std::size_t index = 0; index < count; ++index) {
        const CpuStatement& s = statements[index];
        count_statements(s, view, t);
        find_body(s, m, t);
        count_cycles(s, m, view, t);
        count_moves(s, m, program_bytes, view, t);
        alignas(64) Block parallel;
        AUTOTUNE_ROWS { parallel[i] = 1.0; }
        for (int d = 0; d < s.loops; ++d) {
            if (s.parallel[d]) {
                const double* extent = view.column(s.extents[d]);
                AUTOTUNE_ROWS { parallel[i] *= extent[i]; }
            }
        }
        AUTOTUNE_ROWS {
            const double busy = parallel[i] / std::ceil(parallel[i] / m.cores);
            const double total = larger(t.cycles[i], t.moved[i]) + m.overlap * smaller(t.cycles[i], t.moved[i]);
            result[i] += total / busy;
        }
    }
}

AUTOTUNE_DISPATCH(dispatch_score, score_block)

void require(bool condition, const char* message) {
    if (!condition) {
        throw std::invalid_argument(message);
    }
}

void check(const CpuStatement& s, int outputs) {
    require(s.loops >= 0 && s.loops <= kMaxLoops, "a statement has at most 64 loops");
    require(s.buffers >= 1 && s.buffers <= kMaxBuffers, "a statement touches between 1 and 32 buffers");
    const auto loops = static_cast<std::size_t>(s.loops), buffers = static_cast<std::size_t>(s.buffers);
    const std::size_t cells = buffers * (loops + 1);
    require(s.extents.size() == loops && s.parallel.size() == loops && s.remains.size() == loops &&
                s.reduces.size() == loops,
            "a statement describes each of its loops");
    require(s.regions.size() == cells && s.rows.size() == cells && s.lines.size() == cells && s.apart.size() == cells &&
                s.traffic.size() == cells,
            "a statement describes each of its buffers at each depth");
    require(s.element_bytes.size() == buffers && s.meets.size() == buffers && s.aligned.size() == buffers &&
                s.divided.size() == buffers,
            "a statement describes each of its buffers");
    require(s.vector >= -1 && s.vector < s.loops && s.body >= 0 && s.body <= s.loops, "there is no such loop");
    require(s.written >= 0 && s.written < s.buffers, "there is no such buffer");
    require(s.lanes >= 1.0 && s.work >= 0.0, "lanes and work are positive");
    const auto columns = [outputs](const std::vector<std::int32_t>& found, std::int32_t lowest) {
        for (const std::int32_t column : found) {
            require(column >= lowest && column < outputs, "a statement refers to an output that does not exist");
        }
    };
    for (const auto* found : {&s.extents, &s.regions, &s.rows, &s.lines, &s.apart, &s.traffic, &s.divided}) {
        columns(*found, 0);
    }
    columns(s.aligned, -1);
}

}  // namespace

PsaCpu::PsaCpu(std::shared_ptr<const TapeProgram> program, std::vector<CpuStatement> statements, double program_bytes,
               double nests, CpuMachine machine)
    : program_(std::move(program)),
      statements_(std::move(statements)),
      program_bytes_(program_bytes),
      nests_(nests),
      machine_(machine) {
    require(program_ != nullptr, "a model needs a program");
    for (const CpuStatement& statement : statements_) {
        check(statement, program_->outputs());
    }
    require(machine.cores >= 1.0, "a machine has at least one core");
}

void PsaCpu::cycles(const std::int64_t* rows, std::int64_t count, double* result, int threads) const {
    std::vector<std::int32_t> slots;
    for (int output = 0; output < program_->outputs(); ++output) {
        slots.push_back(program_->output_slot(output));
    }
    for_row_ranges(count, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles workspace = program_->workspace();
        const auto scratch = std::make_unique<Scratch>();
        alignas(64) Block scores;
        for (std::int64_t begin = first; begin < last; begin += kBlock) {
            const int size = static_cast<int>(std::min<std::int64_t>(kBlock, last - begin));
            require_ok(program_->evaluate_block(rows + begin * program_->inputs(), size, workspace.get()));
            dispatch_score(program_->level(), static_cast<const CpuStatement*>(statements_.data()), statements_.size(),
                           &machine_, program_bytes_, nests_, View{workspace.get(), slots.data()}, scratch.get(),
                           static_cast<double*>(scores));
            std::copy_n(scores, size, result + begin);
        }
    });
}

}  // namespace autotune
