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
constexpr int kCorrectedSymbols = 8;
constexpr int kCorrectedParameters = 13;

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

// Launches one after the other; within one, arithmetic and traffic overlap as far as several blocks are resident.
AUTOTUNE_ALWAYS_INLINE void corrected(const double* const* columns, int groups, const double* gpu,
                                      double* milliseconds) {
    const double slot_rate = gpu[0], bandwidth = gpu[1], clock = gpu[2], multiprocessors = gpu[3];
    const double schedulers = gpu[4], warp = gpu[5], block_registers = gpu[6], registers_held = gpu[7];
    const double threads_held = gpu[8], blocks_held = gpu[9], shared_held = gpu[10], cache = gpu[11];
    const double launch = gpu[12];
    for (int group = 0; group < groups; ++group) {
        const double* const* symbols = columns + group * kCorrectedSymbols;
        const double *blocks = symbols[0], *threads = symbols[1], *registers = symbols[2], *shared = symbols[3];
        const double *slots = symbols[4], *loads = symbols[5], *moved = symbols[6], *distinct = symbols[7];
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            const double lanes = std::ceil(threads[i] / warp) * warp;
            // Registers are given to threads by eights; a compiler that knows the block's size spills the rest.
            const double most = smaller(255.0, std::floor(block_registers / lanes / 8.0) * 8.0);
            const double held = smaller(most, std::ceil(larger(registers[i], 16.0) / 8.0) * 8.0);
            const double spilled = larger(1.0, registers[i] / most);
            const double by_threads = smaller(blocks_held, std::floor(threads_held / lanes));
            const double by_registers = std::floor(registers_held / (held * lanes));
            const double by_shared = std::floor(shared_held / larger(shared[i], 1.0));
            const double resident = larger(1.0, smaller(by_threads, smaller(by_registers, by_shared)));
            const double rounds = std::ceil(blocks[i] / multiprocessors);
            const double together = smaller(resident, rounds);
            const double busy = smaller(1.0, together * lanes / warp / (2.0 * schedulers));
            const double arithmetic = rounds * lanes * slots[i] * spilled / (slot_rate * busy);
            const double served = rounds * lanes * loads[i] / (128.0 * clock);
            const double missed = 1.0 - smaller(1.0, cache / larger(distinct[i], 1.0));
            const double from_memory = distinct[i] + larger(0.0, moved[i] - distinct[i]) * missed;
            const double in_flight = smaller(blocks[i], resident * multiprocessors) * threads[i] * 16.0;
            const double hidden = smaller(1.0, in_flight / (bandwidth * 600e-9));
            const double fetched = moved[i] / (multiprocessors * 32.0 * clock);
            const double traffic = larger(fetched, from_memory / bandwidth) / hidden;
            const double compute = larger(arithmetic, served);
            const double alone = smaller(compute, traffic) / together;
            milliseconds[i] += 1e3 * (larger(compute, traffic) + alone + launch);
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
            columns.push_back(scratch.get() + static_cast<std::size_t>(program.output_slot(output)) * kBlock);
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
