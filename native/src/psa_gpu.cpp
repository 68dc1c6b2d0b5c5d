#include "psa_gpu.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace {

constexpr int kPublishedSymbols = 6;
constexpr int kPublishedParameters = 7;
constexpr int kCorrectedSymbols = 18;
constexpr int kCorrectedParameters = 25;

AUTOTUNE_ALWAYS_INLINE double larger(double a, double b) { return a < b ? b : a; }
AUTOTUNE_ALWAYS_INLINE double smaller(double a, double b) { return b < a ? b : a; }

// Statements one after the other, each the slower of its arithmetic and its traffic.
AUTOTUNE_ALWAYS_INLINE void published(const double* const* columns, int groups, const double* gpu,
                                      double* milliseconds) {
    const double peak = gpu[0], bandwidth = gpu[1], active_blocks = gpu[2], multiprocessors = gpu[3];
    const double partitions = gpu[4], warp = gpu[5], register_cap = gpu[6];
    const double block_slots = active_blocks * multiprocessors;
    const double partition_slots = partitions * multiprocessors;
    for (int group = 0; group < groups; ++group) {
        const double* const* symbols = columns + group * kPublishedSymbols;
        const double *flop = symbols[0], *registers = symbols[1], *touched = symbols[2];
        const double *elements = symbols[3], *blocks = symbols[4], *threads = symbols[5];
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            const double warps = threads[i] / warp;
            const double whole_warps = std::ceil(warps);
            const double ratio = flop[i] / touched[i];
            const double reuse = flop[i] != 0.0 && touched[i] != 0.0 ? 1.0 + ratio : 1.0;
            const double work = flop[i] * blocks[i] * threads[i] * (1.0 + 1.0 / reuse);
            const double spilled = larger(1.0, registers[i] / register_cap);
            const bool filled = blocks[i] >= block_slots;
            const double units = filled ? blocks[i] : blocks[i] * (whole_warps < partitions ? whole_warps : partitions);
            const double slots = filled ? block_slots : partition_slots;
            const double used = units / (std::ceil(units / slots) * slots);
            const double compute = work / (peak * used * (warps / whole_warps) / spilled) / 1e6;
            const double memory = elements[i] / bandwidth * 1000.0 / 1073741824.0;
            milliseconds[i] += larger(compute, memory);
        }
    }
}

// Bytes of shared memory that the system keeps for a block.
constexpr double kReservedShared = 1024.0;
constexpr double kSlotsPerMultiplyAdd = 16.0;

AUTOTUNE_ALWAYS_INLINE double square(double a) { return a * a; }

// log2 of a whole number from 2 to 1024, rounded down: std::log2 is no vector instruction, and a loop around it would
// keep the one over rows from becoming vector code.
AUTOTUNE_ALWAYS_INLINE double steps_of(double threads) {
    const auto at_least = [threads](double power) __attribute__((always_inline)) {
        return threads >= power ? 1.0 : 0.0;
    };
    return 1.0 + at_least(4.0) + at_least(8.0) + at_least(16.0) + at_least(32.0) + at_least(64.0) + at_least(128.0) +
           at_least(256.0) + at_least(512.0) + at_least(1024.0);
}

// Launches one after the other. The blocks of a multiprocessor share its pipes, and each waits for its own loads.
AUTOTUNE_ALWAYS_INLINE void corrected(const double* const* columns, int groups, const double* gpu,
                                      double* milliseconds) {
    const double bandwidth = gpu[0], clock = gpu[1], multiprocessors = gpu[2];
    const double schedulers = gpu[3], warp = gpu[4], block_registers = gpu[5], registers_held = gpu[6];
    const double threads_held = gpu[7], blocks_held = gpu[8], shared_held = gpu[9], cache = gpu[10];
    const double launch = gpu[11];
    // What is fitted to measured kernels: `Calibration` in autotune/models/pruning/psa_gpu.py.
    const double global_latency = gpu[12], wait_for_global = gpu[13], wait_for_shared = gpu[14];
    const double reduction_step = gpu[15], dependent_slot = gpu[16], block_start = gpu[17];
    const double reduction_instructions = gpu[18], shared_wavefront = gpu[19], global_wavefront = gpu[20];
    const double cache_bytes = gpu[21], spilled_tile = gpu[22], copies_at_once = gpu[23], most_chains = gpu[24];
    for (int group = 0; group < groups; ++group) {
        const double* const* symbols = columns + group * kCorrectedSymbols;
        const double *blocks = symbols[0], *threads = symbols[1], *registers = symbols[2], *shared = symbols[3];
        const double *moved = symbols[4], *distinct = symbols[5], *arithmetic = symbols[6], *others = symbols[7];
        const double *shared_fronts = symbols[8], *global_fronts = symbols[9], *barriers = symbols[10];
        const double *copied = symbols[11], *global_waits = symbols[12], *shared_waits = symbols[13];
        const double *reductions = symbols[14], *accumulators = symbols[15], *local = symbols[16];
        const double *stages = symbols[17];
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            const double warps = std::ceil(threads[i] / warp);
            const double lanes = warps * warp;
            // Registers are given to threads by eights; a compiler that knows the block's size spills the rest.
            const double most = smaller(255.0, std::floor(block_registers / lanes / 8.0) * 8.0);
            const double held = smaller(most, std::ceil(larger(registers[i], 16.0) / 8.0) * 8.0);
            const double spilled = larger(1.0, registers[i] / most);
            const double by_threads = smaller(blocks_held, std::floor(threads_held / lanes));
            const double by_registers = std::floor(registers_held / (held * lanes));
            const double by_shared = std::floor(shared_held / (shared[i] + kReservedShared));
            const double resident = larger(1.0, smaller(by_threads, smaller(by_registers, by_shared)));
            const double rounds = std::ceil(blocks[i] / multiprocessors);
            const double together = smaller(resident, rounds);
            // Blocks that end give their place to the next: half of the way between whole waves and none.
            const double waves = 0.5 * (blocks[i] / multiprocessors / together + std::ceil(rounds / together));
            const double sets = rounds <= resident ? 1.0 : waves;
            const double at_once = smaller(rounds / sets, together);

            const double slots = arithmetic[i] / kSlotsPerMultiplyAdd;
            const double started = slots * spilled + others[i] + reductions[i] * reduction_instructions;
            const double issued = warps * started / schedulers;
            const double served = warps * (shared_fronts[i] * shared_wavefront + global_fronts[i] * global_wavefront);
            const double fetched = moved[i] / blocks[i] / cache_bytes;
            const double busy = std::sqrt(square(issued) + square(served) + square(fetched));

            const double chains = smaller(most_chains, larger(1.0, accumulators[i]));
            const double computing = global_waits[i] * wait_for_global + shared_waits[i] * wait_for_shared +
                                     slots / chains * dependent_slot;
            const double copies = copied[i] / larger(1.0, barriers[i]) / copies_at_once;
            const double latency = global_latency * std::sqrt(larger(1.0, copies));
            // Copies of all rounds but the first are on their way for as long as the stages between compute.
            const double round = std::sqrt(square(at_once * busy) + square(computing)) / larger(1.0, barriers[i]);
            const double hidden = smaller(latency, (stages[i] - 1.0) * round);
            const double copying = barriers[i] * latency - larger(0.0, barriers[i] - 1.0) * hidden;
            const double waiting = block_start + copying + global_waits[i] * wait_for_global +
                                   shared_waits[i] * wait_for_shared + slots / chains * dependent_slot +
                                   reductions[i] * steps_of(threads[i]) * reduction_step;
            const double cycles = sets * std::sqrt(square(at_once * busy) + square(waiting));

            const double missed = 1.0 - smaller(1.0, cache / larger(distinct[i], 1.0));
            const double from_memory = distinct[i] + larger(0.0, moved[i] - distinct[i]) * missed;
            const double tile = local[i] > 0.0 ? spilled_tile : 1.0;
            const double seconds = std::sqrt(square(cycles * tile / clock) + square(from_memory / bandwidth));
            milliseconds[i] += 1e3 * (seconds + launch);
        }
    }
}

AUTOTUNE_DISPATCH(dispatch_published, published)
AUTOTUNE_DISPATCH(dispatch_corrected, corrected)

}  // namespace

int psa_symbols(PsaArithmetic arithmetic) {
    return arithmetic == PsaArithmetic::published ? kPublishedSymbols : kCorrectedSymbols;
}

int psa_parameters(PsaArithmetic arithmetic) {
    return arithmetic == PsaArithmetic::published ? kPublishedParameters : kCorrectedParameters;
}

PsaGpu::PsaGpu(PsaArithmetic arithmetic, std::vector<double> gpu, Simd level)
    : arithmetic_(arithmetic), gpu_(std::move(gpu)), level_(level) {
    const auto positive = [](double value) { return value > 0.0 && std::isfinite(value); };
    if (gpu_.size() != static_cast<std::size_t>(psa_parameters(arithmetic)) ||
        !std::all_of(gpu_.begin(), gpu_.end(), positive)) {
        throw std::invalid_argument("a GPU is described by " + std::to_string(psa_parameters(arithmetic)) +
                                    " positive numbers");
    }
}

void PsaGpu::score_block(const double* const* columns, int groups, const std::vector<double>& maxima, int count,
                         double* scores) const {
    double milliseconds[kBlock] = {};
    if (arithmetic_ == PsaArithmetic::published) {
        dispatch_published(level_, columns, groups, gpu_.data(), &milliseconds[0]);
    } else {
        dispatch_corrected(level_, columns, groups, gpu_.data(), &milliseconds[0]);
    }
    const double* const* limited = columns + groups * psa_symbols(arithmetic_);
    for (int row = 0; row < count; ++row) {
        bool valid = milliseconds[row] > 0.0 && std::isfinite(milliseconds[row]);
        for (std::size_t limit = 0; limit < maxima.size(); ++limit) {
            valid = valid && limited[limit][row] <= maxima[limit];
        }
        scores[row] = valid ? 1.0 / milliseconds[row] : -std::numeric_limits<double>::infinity();
    }
}

void PsaGpu::score(const TapeProgram& program, const std::int64_t* rows, std::int64_t count,
                   const std::vector<double>& maxima, double* scores, int threads) const {
    const int symbols = program.outputs() - static_cast<int>(maxima.size());
    if (symbols < 0 || symbols % psa_symbols(arithmetic_) != 0) {
        throw std::invalid_argument("a tape of symbols has " + std::to_string(psa_symbols(arithmetic_)) +
                                    " outputs a group and one for each maximum, not " +
                                    std::to_string(program.outputs()));
    }
    for_row_ranges(count, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles scratch = program.workspace();
        std::vector<const double*> columns;
        for (int output = 0; output < program.outputs(); ++output) {
            columns.push_back(scratch.get() + static_cast<std::size_t>(program.output_column(output)) * kBlock);
        }
        for (std::int64_t begin = first; begin < last; begin += kBlock) {
            const int size = static_cast<int>(std::min<std::int64_t>(kBlock, last - begin));
            require_ok(program.evaluate_block(rows + begin * program.inputs(), size, scratch.get()));
            score_block(columns.data(), symbols / psa_symbols(arithmetic_), maxima, size, scores + begin);
        }
    });
}

void PsaGpu::score_symbols(const double* symbols, std::int64_t count, int groups, double* scores, int threads) const {
    const int width = groups * psa_symbols(arithmetic_);
    for_row_ranges(count, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles scratch(static_cast<std::size_t>(width) * kBlock);
        std::vector<const double*> columns;
        for (int column = 0; column < width; ++column) {
            columns.push_back(scratch.get() + static_cast<std::size_t>(column) * kBlock);
        }
        for (std::int64_t begin = first; begin < last; begin += kBlock) {
            const int size = static_cast<int>(std::min<std::int64_t>(kBlock, last - begin));
            for (int column = 0; column < width; ++column) {
                for (int row = 0; row < kBlock; ++row) {
                    const std::int64_t source = begin + std::min(row, size - 1);
                    scratch.get()[column * kBlock + row] = symbols[source * width + column];
                }
            }
            score_block(columns.data(), groups, {}, size, scores + begin);
        }
    });
}

}  // namespace autotune
