#include "pam.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace {

constexpr double kLineBytes = 64.0;
// Columns of a block of rows lie a little apart, so that reading across them does not hit one set of the cache.
constexpr int kPitch = kBlock + 16;

// log2(1 + x) for x >= 0, within a unit in the last place of a float. The mantissa m of 1 + x is taken from
// [sqrt(1/2), sqrt(2)), and log2(m) = 2 / ln 2 * atanh(s) with s = (m - 1) / (m + 1), |s| < 0.1716, as a series.
AUTOTUNE_ALWAYS_INLINE float log2_of_one_plus(double x) {
    const double value = 1.0 + x;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    // Adding this carries into the exponent exactly where the mantissa is at least sqrt(2).
    constexpr std::uint64_t kToHalf = 0x3ff0000000000000u - 0x3fe6a09e667f3bcdu;
    const std::uint64_t shifted = bits + kToHalf;
    const std::uint64_t mantissa = (shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
    // The exponent as a double without a conversion that AVX2 lacks: it is added to the mantissa of 2^52.
    const double exponent = std::bit_cast<double>((shifted >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
    const double m = std::bit_cast<double>(mantissa);
    const double s = (m - 1.0) / (m + 1.0);
    const double t = s * s;
    double series = 1.0 / 13.0;
    series = series * t + 1.0 / 11.0;
    series = series * t + 1.0 / 9.0;
    series = series * t + 1.0 / 7.0;
    series = series * t + 1.0 / 5.0;
    series = series * t + 1.0 / 3.0;
    series = series * t + 1.0;
    constexpr double kTwoOverLn2 = 2.8853900817779268;
    return static_cast<float>(exponent + kTwoOverLn2 * s * series);
}

AUTOTUNE_ALWAYS_INLINE void logarithm_block(const double* values, float* result) {
#pragma GCC ivdep
    for (int i = 0; i < kBlock; ++i) {
        result[i] = log2_of_one_plus(values[i]);
    }
}

AUTOTUNE_ALWAYS_INLINE void quotient_block(const double* values, const double* divisors, float* result) {
#pragma GCC ivdep
    for (int i = 0; i < kBlock; ++i) {
        result[i] = log2_of_one_plus(values[i] / divisors[i]);
    }
}

// What the columns of one buffer are computed from and sorted by.
struct BufferBlock {
    alignas(64) double bytes[kBlock];
    alignas(64) double lines[kBlock];
    alignas(64) float columns[kPamBufferColumns][kPitch];
};

struct Inputs {
    const double* values[kPamBufferOutputs];
};

// The columns of one buffer. Nothing that is written overlaps what is read.
AUTOTUNE_ALWAYS_INLINE void buffer_block(Inputs inputs, double width, int access, BufferBlock* block) {
    const auto [executions, region, line_bytes, line_share, contiguous, loop, serial, count, iterations, bytes_between,
                share, stride] = inputs.values;
    alignas(64) double uses[kBlock], unique[kBlock], unique_lines[kBlock];
#pragma GCC ivdep
    for (int i = 0; i < kBlock; ++i) {
        const double lines = line_bytes[i] / (kLineBytes * line_share[i]);
        const double run = contiguous[i] < kLineBytes ? contiguous[i] : kLineBytes;
        const double touched = region[i] * width / run;
        block->bytes[i] = executions[i] * width;
        block->lines[i] = lines < 1.0 ? 1.0 : lines;
        unique[i] = region[i] * width;
        unique_lines[i] = touched < 1.0 ? 1.0 : touched;
        // Without reuse, half a use is assumed.
        const double often = count[i];
        uses[i] = often > 0.0 ? often : 0.5;
    }
    logarithm_block(block->bytes, block->columns[3]);
    logarithm_block(unique, block->columns[4]);
    logarithm_block(block->lines, block->columns[5]);
    logarithm_block(unique_lines, block->columns[6]);
    quotient_block(iterations, share, block->columns[10]);
    quotient_block(bytes_between, share, block->columns[11]);
    logarithm_block(count, block->columns[12]);
    quotient_block(block->bytes, uses, block->columns[13]);
    quotient_block(unique, uses, block->columns[14]);
    quotient_block(block->lines, uses, block->columns[15]);
    quotient_block(unique_lines, uses, block->columns[16]);
    logarithm_block(stride, block->columns[17]);
#pragma GCC ivdep
    for (int i = 0; i < kBlock; ++i) {
        block->columns[7][i] = static_cast<float>(loop[i]);
        block->columns[8][i] = static_cast<float>(serial[i]);
        block->columns[9][i] = static_cast<float>(1.0 - loop[i] - serial[i]);
    }
    for (int kind = 0; kind < 3; ++kind) {
        std::fill_n(block->columns[kind], kBlock, kind == access ? 1.0f : 0.0f);
    }
}

AUTOTUNE_DISPATCH(dispatch_buffer, buffer_block)

// Position of one of a statement's buffers when they are sorted by lines, then bytes, largest first, then name.
AUTOTUNE_ALWAYS_INLINE void rank_block(const BufferBlock* blocks, int count, int own, std::int32_t* rank) {
    alignas(64) double before[kBlock] = {};
    const BufferBlock& mine = blocks[own];
    for (int other = 0; other < count; ++other) {
        const BufferBlock& theirs = blocks[other];
        const double first_by_name = other < own ? 1.0 : 0.0;
        for (int i = 0; i < kBlock; ++i) {
            const double lines = theirs.lines[i] - mine.lines[i];
            const double bytes = theirs.bytes[i] - mine.bytes[i];
            const double by_bytes = bytes > 0.0 ? 1.0 : (bytes < 0.0 ? 0.0 : first_by_name);
            before[i] += lines > 0.0 ? 1.0 : (lines < 0.0 ? 0.0 : by_bytes);
        }
    }
    for (int i = 0; i < kBlock; ++i) {
        rank[i] = static_cast<std::int32_t>(before[i]);
    }
}

AUTOTUNE_DISPATCH(dispatch_rank, rank_block)

AUTOTUNE_ALWAYS_INLINE void column_block(const double* values, double scale, bool logarithm, float* column) {
    if (logarithm) {
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            column[i] = log2_of_one_plus(scale * values[i]);
        }
    } else {
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            column[i] = static_cast<float>(scale * values[i]);
        }
    }
}

AUTOTUNE_DISPATCH(dispatch_column, column_block)

// The curve of arithmetic intensity (operations per byte touched) over operations, from the innermost loop outwards,
// read at ten equal steps of the operations. Loops that do not count are passed over.
struct Curve {
    alignas(64) double operations[kBlock];
    alignas(64) double intensity[kBlock];
    alignas(64) double total[kBlock];
    alignas(64) double started[kBlock];
    alignas(64) double found[kPamSamples][kBlock];
    alignas(64) double sample[kPamSamples][kBlock];
    alignas(64) float columns[kPamSamples][kPitch];
};

AUTOTUNE_ALWAYS_INLINE void start_curve(double operations, Curve* curve) {
    for (int i = 0; i < kBlock; ++i) {
        curve->operations[i] = operations;
        curve->total[i] = operations;
        curve->intensity[i] = 0.0;
        curve->started[i] = 0.0;
    }
    for (int k = 0; k < kPamSamples; ++k) {
        for (int i = 0; i < kBlock; ++i) {
            curve->found[k][i] = 0.0;
            curve->sample[k][i] = 0.0;
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void multiply_total(const double* extent, Curve* curve) {
    for (int i = 0; i < kBlock; ++i) {
        curve->total[i] *= extent[i];
    }
}

AUTOTUNE_ALWAYS_INLINE void extend_curve(const double* extent, const double* counts, const double* bytes,
                                         Curve* curve) {
    // What TVM allows for rounding when it looks for the first loop with enough operations.
    constexpr double kSlack = 1e-4;
    alignas(64) double operations[kBlock], slope[kBlock], base[kBlock], from[kBlock];
#pragma GCC ivdep
    for (int i = 0; i < kBlock; ++i) {
        const double before = curve->operations[i];
        const double last = curve->intensity[i];
        const double now = before * extent[i];
        const double intensity = now / bytes[i];
        const double more = now - before;
        // The first loop that counts begins the curve: nothing is interpolated up to it.
        const double rises = more > 0.0 ? curve->started[i] : 0.0;
        const double divisor = more > 0.0 ? more : 1.0;
        slope[i] = rises * ((intensity - last) / divisor);
        base[i] = rises * last + (1.0 - rises) * intensity;
        from[i] = before;
        operations[i] = now;
        curve->operations[i] = now;
        curve->intensity[i] = counts[i] * intensity + (1.0 - counts[i]) * last;
        curve->started[i] = counts[i] > curve->started[i] ? counts[i] : curve->started[i];
    }
    for (int k = 0; k < kPamSamples; ++k) {
        const double share = static_cast<double>(k + 1) / kPamSamples;
        double* found = curve->found[k];
        double* sample = curve->sample[k];
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
            const double at = share * curve->total[i];
            const double reached = operations[i] >= at - kSlack ? 1.0 : 0.0;
            const double take = reached * counts[i] * (1.0 - found[i]);
            sample[i] += take * (base[i] + slope[i] * (at - from[i]));
            found[i] += take;
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void finish_curve(Curve* curve) {
    for (int k = 0; k < kPamSamples; ++k) {
        logarithm_block(curve->sample[k], curve->columns[k]);
    }
}

AUTOTUNE_ALWAYS_INLINE void curve_block(const PamLoop* loops, std::size_t count, const TapeProgram* program,
                                        const double* slots, double operations, Curve* curve) {
    start_curve(operations, curve);
    const auto column = [program, slots](std::int32_t output) __attribute__((always_inline)) {
        return slots + static_cast<std::size_t>(program->output_column(output)) * kBlock;
    };
    for (std::size_t at = 0; at < count; ++at) {
        multiply_total(column(loops[at].extent), curve);
    }
    for (std::size_t at = count; at-- > 0;) {
        extend_curve(column(loops[at].extent), column(loops[at].counts), column(loops[at].bytes), curve);
    }
    finish_curve(curve);
}

AUTOTUNE_DISPATCH(dispatch_curve, curve_block)

}  // namespace

PamPlan::PamPlan(TapeProgram program, std::vector<std::int32_t> rows, std::vector<double> operations,
                 std::vector<PamColumn> columns, std::vector<PamBuffer> buffers, std::vector<PamLoop> loops,
                 std::vector<PamAccess> accesses, bool operations_squared)
    : program_(std::move(program)),
      rows_(std::move(rows)),
      operations_(std::move(operations)),
      columns_(std::move(columns)),
      buffers_(std::move(buffers)),
      loops_(std::move(loops)),
      accesses_(std::move(accesses)),
      operations_squared_(operations_squared) {
    check_rows();
    check_entries();
    const auto by_statement = [](const auto& left, const auto& right) { return left.statement < right.statement; };
    if (!std::is_sorted(columns_.begin(), columns_.end(), by_statement) ||
        !std::is_sorted(buffers_.begin(), buffers_.end(), by_statement) ||
        !std::is_sorted(loops_.begin(), loops_.end(), by_statement)) {
        throw std::invalid_argument("columns, buffers and loops are listed statement by statement");
    }
}

void PamPlan::check_rows() {
    if (operations_.size() != rows_.size()) {
        throw std::invalid_argument("there is one number of operations for every statement");
    }
    std::vector<std::int32_t> used;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(used), [](std::int32_t row) { return row != -1; });
    std::sort(used.begin(), used.end());
    for (std::size_t row = 0; row < used.size(); ++row) {
        if (used[row] != static_cast<std::int32_t>(row)) {
            throw std::invalid_argument("rows are 0, 1, ... each once, or -1");
        }
    }
    row_count_ = static_cast<int>(used.size());
}

void PamPlan::check_entries() const {
    const auto require = [](bool holds, const char* message) {
        if (!holds) {
            throw std::invalid_argument(message);
        }
    };
    const auto is_output = [this](std::int32_t output) { return output >= 0 && output < program_.outputs(); };
    const auto is_statement = [this](std::int32_t statement) {
        return statement >= 0 && static_cast<std::size_t>(statement) < rows_.size();
    };
    for (const PamColumn& column : columns_) {
        require(is_statement(column.statement) && is_output(column.output) && column.column >= 0 &&
                    column.column < kPamColumns,
                "a column refers to a statement, an output or a place that does not exist");
    }
    for (const PamBuffer& buffer : buffers_) {
        require(is_statement(buffer.statement) && buffer.access >= 0 && buffer.access <= 2 && buffer.width > 0 &&
                    std::all_of(buffer.outputs.begin(), buffer.outputs.end(), is_output),
                "a buffer refers to a statement, an output or a kind of access that does not exist");
    }
    for (const PamLoop& loop : loops_) {
        require(is_statement(loop.statement) && is_output(loop.extent) && is_output(loop.counts) &&
                    is_output(loop.bytes),
                "a loop refers to a statement or an output that does not exist");
    }
    require(accesses_.size() == kPamAccesses, "the data-flow block has eight accesses");
    for (const PamAccess& access : accesses_) {
        require(access.buffer >= -1 && access.buffer < static_cast<std::int32_t>(buffers_.size()) &&
                    access.place >= 0 && access.place < 3 && (access.allocation == -1 || is_output(access.allocation)),
                "an access refers to a buffer, a place or an output that does not exist");
    }
}

namespace {

// First and last entry of a list, sorted by statement, that belong to a statement.
template <class Entry>
std::pair<std::size_t, std::size_t> range_of(const std::vector<Entry>& entries, std::int32_t statement) {
    const auto before = [](const Entry& entry, std::int32_t value) { return entry.statement < value; };
    const auto first = std::lower_bound(entries.begin(), entries.end(), statement, before);
    const auto last = std::lower_bound(first, entries.end(), statement + 1, before);
    return {first - entries.begin(), last - entries.begin()};
}

}  // namespace

// Memory of one thread.
struct PamPlan::Scratch {
    explicit Scratch(const PamPlan& plan) : slots(plan.program_.workspace()), buffers(plan.buffers_.size()) {}

    AlignedDoubles slots;
    std::vector<BufferBlock> buffers;
    Curve curve;
    alignas(64) float column[kPitch];
    alignas(64) double operations[kBlock];
    std::int32_t rank[kBlock];
};

const double* PamPlan::values(const Scratch& scratch, std::int32_t output) const {
    return scratch.slots.get() + static_cast<std::size_t>(program_.output_column(output)) * kBlock;
}

void PamPlan::evaluate(const std::int64_t* matrix, std::int64_t count, float* features, float* flow,
                       int threads) const {
    for_row_ranges(count, threads, [&](std::int64_t first, std::int64_t last) {
        const auto scratch = std::make_unique<Scratch>(*this);
        for (std::int64_t begin = first; begin < last; begin += kBlock) {
            const int size = static_cast<int>(std::min<std::int64_t>(kBlock, last - begin));
            require_ok(program_.evaluate_block(matrix + begin * inputs(), size, scratch->slots.get()));
            evaluate_block(*scratch, size, features + begin * row_count_ * kPamColumns,
                           flow + begin * kPamAccesses * kPamFlowColumns);
        }
    });
}

void PamPlan::evaluate_block(Scratch& scratch, int size, float* features, float* flow) const {
    for (std::size_t at = 0; at < buffers_.size(); ++at) {
        Inputs inputs;
        for (int output = 0; output < kPamBufferOutputs; ++output) {
            inputs.values[output] = values(scratch, buffers_[at].outputs[output]);
        }
        dispatch_buffer(program_.level(), inputs, static_cast<double>(buffers_[at].width), buffers_[at].access,
                        &scratch.buffers[at]);
    }
    std::memset(features, 0, sizeof(float) * static_cast<std::size_t>(size) * row_count_ * kPamColumns);
    for (std::int32_t statement = 0; statement < static_cast<std::int32_t>(rows_.size()); ++statement) {
        if (rows_[statement] >= 0) {
            write_statement(scratch, statement, size, features + rows_[statement] * kPamColumns);
        }
    }
    std::memset(flow, 0, sizeof(float) * static_cast<std::size_t>(size) * kPamAccesses * kPamFlowColumns);
    for (int access = 0; access < kPamAccesses; ++access) {
        if (accesses_[access].buffer >= 0) {
            write_access(scratch, accesses_[access], size, flow + access * kPamFlowColumns);
        }
    }
}

void PamPlan::write_statement(Scratch& scratch, std::int32_t statement, int size, float* features) const {
    const std::size_t pitch = static_cast<std::size_t>(row_count_) * kPamColumns;
    const auto write = [&](const float* column, int place) {
        for (int row = 0; row < size; ++row) {
            features[row * pitch + place] = column[row];
        }
    };
    const auto [first_column, last_column] = range_of(columns_, statement);
    for (std::size_t at = first_column; at < last_column; ++at) {
        const PamColumn& column = columns_[at];
        dispatch_column(program_.level(), values(scratch, column.output), column.scale, column.logarithm,
                        &scratch.column[0]);
        write(scratch.column, column.column);
    }
    const auto [first_buffer, last_buffer] = range_of(buffers_, statement);
    const int buffers = static_cast<int>(last_buffer - first_buffer);
    for (int own = 0; own < buffers; ++own) {
        const BufferBlock* blocks = scratch.buffers.data() + first_buffer;
        dispatch_rank(program_.level(), blocks, buffers, own, &scratch.rank[0]);
        for (int row = 0; row < size; ++row) {
            if (scratch.rank[row] < kPamBuffers) {
                float* place = features + row * pitch + kPamFirstBuffer + scratch.rank[row] * kPamBufferColumns;
                for (int column = 0; column < kPamBufferColumns; ++column) {
                    place[column] = blocks[own].columns[column][row];
                }
            }
        }
    }
    if (operations_[statement] > 0.0) {
        const auto [first_loop, last_loop] = range_of(loops_, statement);
        dispatch_curve(program_.level(), loops_.data() + first_loop, last_loop - first_loop, &program_,
                       static_cast<const double*>(scratch.slots.get()), operations_[statement], &scratch.curve);
        for (int sample = 0; sample < kPamSamples; ++sample) {
            write(scratch.curve.columns[sample], kPamFirstSample + sample);
        }
    }
}

void PamPlan::write_access(Scratch& scratch, const PamAccess& access, int size, float* flow) const {
    const std::size_t pitch = kPamAccesses * kPamFlowColumns;
    const BufferBlock& block = scratch.buffers[access.buffer];
    const double* executions = values(scratch, buffers_[access.buffer].outputs[0]);
    for (int row = 0; row < kBlock; ++row) {
        scratch.operations[row] = executions[row] * (operations_squared_ ? executions[row] : 1.0);
    }
    dispatch_column(program_.level(), static_cast<const double*>(scratch.operations), access.operations, true,
                    &scratch.column[0]);
    for (int row = 0; row < size; ++row) {
        float* place = flow + row * pitch;
        place[0] = scratch.column[row];
        place[1 + access.place] = 1.0f;
        for (int column = 0; column < kPamBufferColumns; ++column) {
            place[4 + column] = block.columns[column][row];
        }
    }
    if (access.allocation >= 0) {
        dispatch_column(program_.level(), values(scratch, access.allocation), 1.0, true, &scratch.column[0]);
        for (int row = 0; row < size; ++row) {
            flow[row * pitch + kPamFlowColumns - 1] = scratch.column[row];
        }
    }
}

}  // namespace autotune
