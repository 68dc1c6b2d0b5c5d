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

AUTOTUNE_ALWAYS_INLINE bool any(const double* flags) {
    int found = 0;
    for (int i = 0; i < kBlock; ++i) {
        found |= flags[i] != 0.0 ? 1 : 0;
    }
    return found != 0;
}

// Vector statements inside every depth, and iterations outside it.
AUTOTUNE_ALWAYS_INLINE void count_statements(const CpuStatement& s, View view, Scratch& t) {
    AUTOTUNE_ROWS { t.lanes[i] = 1.0; }
    if (s.vector >= 0) {
        const double* extent = view.column(s.extents[s.vector]);
        AUTOTUNE_ROWS { t.lanes[i] = extent[i]; }
    }
    // Where the compiler finds the vectors itself, a remainder costs as much as two vectors.
    const double remainder = s.declared || s.vector < 0 ? 0.0 : 2.0, lanes = s.lanes;
    const int loops = s.loops;
    AUTOTUNE_ROWS {
        const double whole = std::ceil(t.lanes[i] / lanes);
        const double rest = whole * lanes != t.lanes[i] ? remainder : 0.0;
        t.vectors[i] = whole + rest;
        t.inside[loops][i] = t.vectors[i];
        t.outside[0][i] = 1.0;
    }
    for (int d = s.loops - 1; d >= 0; --d) {
        const double* extent = view.column(s.extents[d]);
        const double* inner = t.inside[d + 1];
        const double lanes_once = d == s.vector ? 1.0 : 0.0;
        AUTOTUNE_ROWS { t.inside[d][i] = inner[i] * (lanes_once + (1.0 - lanes_once) * extent[i]); }
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
    const double size = larger(s.work + s.calls, 1.0) + 1.0;
    AUTOTUNE_ROWS { t.depth[i] = scheduled; }
    t.shallowest = t.deepest = scheduled;
    for (int d = scheduled - 1; d >= 0 && !s.parallel[d] && t.shallowest == d + 1; --d) {
        alignas(64) Block whole;
        const double* inside = t.inside[d];
        const double most = m.unrolled, outer = d + 1;
        AUTOTUNE_ROWS {
            const double small = inside[i] * size <= most ? 1.0 : 0.0;
            whole[i] = t.depth[i] == outer ? small : 0.0;
            t.depth[i] -= whole[i];
        }
        t.shallowest = any(whole) ? d : t.shallowest;
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
        const double reduces = d > 0 && s.reduces[d - 1] ? 1.0 : 0.0, depth = d;
        const double* inside = t.inside[d];
        const double* outside = t.outside[d];
        const double* entered = t.outside[d > 0 ? d - 1 : 0];
        AUTOTUNE_ROWS {
            const bool here = t.depth[i] == depth;
            const double in = inside[i], out = outside[i], entries = entered[i];
            statements[i] = here ? in : statements[i];
            iterations[i] = here ? out : iterations[i];
            t.entries[i] = here ? entries : t.entries[i];
            carried[i] = here ? reduces : carried[i];
        }
    }
    for (int d = t.shallowest; d < s.loops; ++d) {
        if (s.reduces[d]) {
            const double* extent = view.column(s.extents[d]);
            const double depth = d;
            AUTOTUNE_ROWS {
                const double trips = extent[i];
                chain[i] *= depth >= t.depth[i] ? trips : 1.0;
            }
        }
    }
    for (int b = 0; b < s.buffers; ++b) {
        const bool contiguous = s.vector >= 0 && s.meets[b] == LanesMeet::contiguous;
        double* total = b == s.written ? accumulators : loads;
        for (int d = t.shallowest; d <= t.deepest; ++d) {
            const double* region = view.column(s.regions[b * (s.loops + 1) + d]);
            const double depth = d;
            AUTOTUNE_ROWS {
                const double vectors = contiguous ? t.vectors[i] / t.lanes[i] : 1.0;
                const double count = region[i] * vectors;
                total[i] += t.depth[i] == depth ? count : 0.0;
            }
        }
    }
    const double registers = m.vector_registers, work = s.work / m.fma_units, latency = m.latency;
    const double calls = s.calls, wide_calls = s.calls * m.wide_call, narrow = s.narrow;
    const double per_load = 1.0 / m.loads_per_cycle, per_store = 1.0 / m.stores_per_cycle;
    const double contention = m.contention, spill = m.spill, iteration = m.iteration, entry = m.entry;
    AUTOTUNE_ROWS {
        // Accumulators of a reduction stay in registers while the loops around carry it, if they fit.
        const double again = carried[i], kept = accumulators[i] <= registers + 4.0 ? again : 0.0;
        const double call = t.lanes[i] > narrow ? wide_calls : calls;
        const double issue = statements[i] * (work + t.lanes[i] / t.vectors[i] * call);
        const double load = (loads[i] + (again - kept) * accumulators[i]) * per_load;
        const double store = (1.0 - kept) * accumulators[i] * per_store;
        const double most = larger(issue, larger(load, store));
        const double busy = most + contention * (issue + load + store - most);
        const double excess = larger(accumulators[i] + 2.0 - registers, 0.0);
        const double reduces = chain[i] > 1.0 ? 1.0 : again;
        const double body = larger(busy, again * latency * chain[i]) + reduces * excess * chain[i] * spill;
        t.cycles[i] = iterations[i] * (body + iteration) + t.entries[i] * entry;
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
        // Values in locals, and no work under conditions: GCC then turns the loop into vectors.
        const double part = depth == 0 ? 1.0 / m.cores : 1.0, jump = m.row;
        const double first_way = m.way_bytes[0], second_way = m.way_bytes[1];
        AUTOTUNE_ROWS {
            const double share = divided[i] != 0.0 ? part : 1.0;
            const double count = rows[i], size = lines[i] * share, distance = apart[i];
            const double jumps = region_rows[i] > 1.0 ? jump : 0.0;
            held.footprint[i] += size;
            held.brought[i] += traffic[i] / region[i] * (region_lines[i] + region_rows[i] * jumps) * share;
            // Rows a power of two apart fall on the same few sets.
            const double several = count > 1.0 ? share : 0.0;
            const double first = larger(lines[i], count * smaller(distance, first_way)) * several;
            const double second = larger(lines[i], count * smaller(distance, second_way)) * several;
            held.conflicting[0][i] = larger(held.conflicting[0][i], first);
            held.conflicting[1][i] = larger(held.conflicting[1][i], second);
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
    bool left = true;
    for (int depth = 0; depth <= s.loops && left; ++depth) {
        hold(s, m, view, depth, held);
        left = false;
        for (int level = 0; level < 3; ++level) {
            const double capacity = m.capacity[level];
            // What fits as a whole is there already: programs are timed, and used, again and again.
            const double cold =
                depth == 0 ? smaller(1.0, larger(0.0, program_bytes / m.cores / capacity - 1.0)) : 1.0;
            const double cost = cold / m.bandwidth[level];
            const double* conflicting = held.conflicting[level < 2 ? level : 0];
            const double hashed = level < 2 && m.way_bytes[level] > 0.0 ? 1.0 : 0.0;  // 0 where it is
            const double last = depth == s.loops ? 1.0 : 0.0;
            AUTOTUNE_ROWS {
                const double worst = larger(held.footprint[i], conflicting[i] * hashed) * (1.0 - last);
                const double fits = worst <= capacity ? 1.0 : 0.0;
                t.moved[i] += fits * open[level][i] * held.brought[i] * cost;
                open[level][i] *= 1.0 - fits;
            }
            left |= any(open[level]);
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
        const double cost = element / m.foreign * (m.cores - 1.0) / m.cores, cores = m.cores;
        AUTOTUNE_ROWS {
            const double share = divided[i] != 0.0 ? 1.0 : cores;
            const double others = aligned[i] != 0.0 ? 0.0 : cost;
            t.moved[i] += region[i] * share * others;
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void score_block(const CpuStatement* statements, std::size_t count, const CpuMachine* machine,
                                        double program_bytes, double nests, View view, Scratch* scratch,
                                        double* result) {
    const CpuMachine& m = *machine;
    Scratch& t = *scratch;
    // Cycles of moves that others may hide, and of computing that they may hide behind.
    alignas(64) Block pool, idle;
    AUTOTUNE_ROWS {
        result[i] = nests * m.launch;
        pool[i] = 0.0;
        idle[i] = 0.0;
    }
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
        alignas(64) Block early;
        AUTOTUNE_ROWS { early[i] = 0.0; }
        if (s.early >= 0) {
            const double* choice = view.column(s.early);
            AUTOTUNE_ROWS { early[i] = 0.5 * choice[i]; }
        }
        const double cores = m.cores, exposed = m.overlap, hides = s.hides ? 1.0 : 0.0;
        AUTOTUNE_ROWS {
            const double busy = parallel[i] / std::ceil(parallel[i] / cores);
            const double pooled = early[i] * t.moved[i], moved = t.moved[i] - pooled;
            const double longer = larger(t.cycles[i], moved), shorter = smaller(t.cycles[i], moved);
            result[i] += (longer + exposed * shorter) / busy;
            pool[i] += pooled / busy;
            idle[i] += hides * larger(t.cycles[i] - moved, 0.0) / busy;
        }
    }
    AUTOTUNE_ROWS { result[i] += larger(pool[i] - idle[i], 0.0); }
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
    require(s.lanes >= 1.0 && s.work >= 0.0 && s.calls >= 0.0 && s.narrow >= 1.0, "lanes and work are positive");
    const auto columns = [outputs](const std::vector<std::int32_t>& found, std::int32_t lowest) {
        for (const std::int32_t column : found) {
            require(column >= lowest && column < outputs, "a statement refers to an output that does not exist");
        }
    };
    for (const auto* found : {&s.extents, &s.regions, &s.rows, &s.lines, &s.apart, &s.traffic, &s.divided}) {
        columns(*found, 0);
    }
    columns(s.aligned, -1);
    require(s.early >= -1 && s.early < outputs, "a statement refers to an output that does not exist");
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
        slots.push_back(program_->output_column(output));
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
