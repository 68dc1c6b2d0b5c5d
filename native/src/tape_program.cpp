#include "tape_program.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace {

// Integers up to here are exact in a double, and so is the floor of their rounded quotient.
constexpr double kExact = 9007199254740992.0;

struct Checks {
    double largest = 0.0;
    double smallest_divisor = 1.0;
};

AUTOTUNE_ALWAYS_INLINE void load_block(const std::int64_t* rows, int count, int inputs, double* slots,
                                       double* largest) {
    for (int input = 0; input < inputs; ++input) {
        double* column = slots + static_cast<std::size_t>(input) * kBlock;
        for (int row = 0; row < count; ++row) {
            column[row] = static_cast<double>(rows[static_cast<std::int64_t>(row) * inputs + input]);
        }
        for (int row = count; row < kBlock; ++row) {
            column[row] = column[count - 1];
        }
        for (int row = 0; row < kBlock; ++row) {
            const double size = std::fabs(column[row]);
            largest[row] = largest[row] < size ? size : largest[row];
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void run_block(const std::int64_t* rows, int row_count, int inputs,
                                      const Instruction* instructions, std::size_t count, std::size_t first_slot,
                                      double* slots, Checks* checks) {
    double largest[kBlock] = {};
    load_block(rows, row_count, inputs, slots, largest);
    double smallest[kBlock];
    for (int i = 0; i < kBlock; ++i) {
        smallest[i] = 1.0;
    }
    for (std::size_t index = 0; index < count; ++index) {
        const Instruction instruction = instructions[index];
        const double* a = slots + static_cast<std::size_t>(instruction.a) * kBlock;
        const double* b = slots + static_cast<std::size_t>(instruction.b) * kBlock;
        const double* c = slots + static_cast<std::size_t>(instruction.c) * kBlock;
        double* result = slots + (first_slot + index) * kBlock;
        // The result is a slot of its own: nothing it is computed from overlaps it.
        switch (instruction.op) {
            case Op::add:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] + b[i];
                    const double size = std::fabs(result[i]);
                    largest[i] = largest[i] < size ? size : largest[i];
                }
                break;
            case Op::mul:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] * b[i];
                    const double size = std::fabs(result[i]);
                    largest[i] = largest[i] < size ? size : largest[i];
                }
                break;
            case Op::floordiv:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = std::floor(a[i] / b[i]);
                    const double size = std::fabs(b[i]);
                    smallest[i] = size < smallest[i] ? size : smallest[i];
                }
                break;
            case Op::floordiv_by_power: {
                const double scale = 1.0 / b[0];
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = std::floor(a[i] * scale);
                }
                break;
            }
            case Op::mod:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] - b[i] * std::floor(a[i] / b[i]);
                    const double size = std::fabs(b[i]);
                    smallest[i] = size < smallest[i] ? size : smallest[i];
                }
                break;
            case Op::min:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = b[i] < a[i] ? b[i] : a[i];
                }
                break;
            case Op::max:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] < b[i] ? b[i] : a[i];
                }
                break;
            case Op::less:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] < b[i] ? 1.0 : 0.0;
                }
                break;
            case Op::select:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] != 0.0 ? b[i] : c[i];
                }
                break;
        }
    }
    for (int i = 0; i < kBlock; ++i) {
        checks->largest = checks->largest < largest[i] ? largest[i] : checks->largest;
        checks->smallest_divisor = smallest[i] < checks->smallest_divisor ? smallest[i] : checks->smallest_divisor;
    }
}

AUTOTUNE_DISPATCH(dispatch_block, run_block)

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    if (b == 0) {
        throw std::domain_error("a tape divides by zero");
    }
    if (b == -1) {
        std::int64_t negated;
        if (__builtin_sub_overflow(std::int64_t{0}, a, &negated)) {
            throw std::overflow_error("a tape's value passes 64 bits");
        }
        return negated;
    }
    const std::int64_t quotient = a / b;
    return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
    if (b == 0) {
        throw std::domain_error("a tape divides by zero");
    }
    if (b == -1) {
        return 0;
    }
    const std::int64_t remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

std::int64_t apply_exactly(Op op, std::int64_t a, std::int64_t b, std::int64_t c) {
    std::int64_t result = 0;
    switch (op) {
        case Op::add:
            if (__builtin_add_overflow(a, b, &result)) {
                throw std::overflow_error("a tape's value passes 64 bits");
            }
            return result;
        case Op::mul:
            if (__builtin_mul_overflow(a, b, &result)) {
                throw std::overflow_error("a tape's value passes 64 bits");
            }
            return result;
        case Op::floordiv:
        case Op::floordiv_by_power: return floor_quotient(a, b);
        case Op::mod: return floor_remainder(a, b);
        case Op::min: return b < a ? b : a;
        case Op::max: return a < b ? b : a;
        case Op::less: return a < b ? 1 : 0;
        case Op::select: return a != 0 ? b : c;
    }
    return result;
}

}  // namespace

TapeProgram::TapeProgram(int inputs, std::vector<std::int64_t> constants, std::vector<Instruction> instructions,
                         std::vector<std::int32_t> outputs, Simd level)
    : inputs_(inputs),
      constants_(std::move(constants)),
      instructions_(std::move(instructions)),
      outputs_(std::move(outputs)),
      level_(level) {
    constexpr std::size_t kMost = 1u << 24;
    if (inputs < 0 || static_cast<std::size_t>(inputs) + constants_.size() + instructions_.size() > kMost) {
        throw std::invalid_argument("a tape has between 0 and 2^24 slots");
    }
    std::int64_t known = inputs + static_cast<std::int64_t>(constants_.size());
    for (Instruction& instruction : instructions_) {
        if (static_cast<int>(instruction.op) >= kOps) {
            throw std::invalid_argument("unknown operation " + std::to_string(static_cast<int>(instruction.op)));
        }
        if (instruction.op != Op::select) {
            instruction.c = instruction.a;
        }
        for (const std::int32_t slot : {instruction.a, instruction.b, instruction.c}) {
            if (slot < 0 || slot >= known) {
                throw std::invalid_argument("an instruction uses slot " + std::to_string(slot) + " before it is known");
            }
        }
        const std::int64_t divisor = constant_at(instruction.b);
        if (instruction.op == Op::floordiv && divisor > 0 && (divisor & (divisor - 1)) == 0) {
            instruction.op = Op::floordiv_by_power;
        }
        ++known;
    }
    for (const std::int32_t slot : outputs_) {
        if (slot < 0 || slot >= known) {
            throw std::invalid_argument("an output refers to slot " + std::to_string(slot) + ", which does not exist");
        }
    }
}

std::int64_t TapeProgram::constant_at(std::int32_t slot) const {
    const std::int64_t index = slot - static_cast<std::int64_t>(inputs_);
    const bool inside = index >= 0 && index < static_cast<std::int64_t>(constants_.size());
    return inside ? constants_[static_cast<std::size_t>(index)] : 0;
}

AlignedDoubles TapeProgram::workspace() const {
    AlignedDoubles result(static_cast<std::size_t>(slots()) * kBlock);
    double* column = result.get() + static_cast<std::size_t>(inputs_) * kBlock;
    for (const std::int64_t constant : constants_) {
        std::fill_n(column, kBlock, static_cast<double>(constant));
        column += kBlock;
    }
    return result;
}

BlockStatus TapeProgram::evaluate_block(const std::int64_t* rows, int count, double* slots) const {
    Checks checks;
    for (const std::int64_t constant : constants_) {
        checks.largest = std::max(checks.largest, std::fabs(static_cast<double>(constant)));
    }
    dispatch_block(level_, rows, count, inputs_, instructions_.data(), instructions_.size(),
                   static_cast<std::size_t>(inputs_) + constants_.size(), slots, &checks);
    if (checks.smallest_divisor == 0.0) {
        return BlockStatus::division_by_zero;
    }
    return checks.largest < kExact ? BlockStatus::ok : BlockStatus::inexact;
}

void TapeProgram::evaluate_exactly(const std::int64_t* row, std::vector<std::int64_t>& slots) const {
    slots.assign(row, row + inputs_);
    slots.insert(slots.end(), constants_.begin(), constants_.end());
    for (const Instruction& instruction : instructions_) {
        const auto value = [&slots](std::int32_t slot) { return slots[static_cast<std::size_t>(slot)]; };
        slots.push_back(
            apply_exactly(instruction.op, value(instruction.a), value(instruction.b), value(instruction.c)));
    }
}

void TapeProgram::evaluate(const std::int64_t* rows, std::int64_t count, std::int64_t* result, int threads) const {
    const std::int64_t width = outputs();
    for_row_ranges(count, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles scratch = workspace();
        std::vector<std::int64_t> exact;
        for (std::int64_t begin = first; begin < last; begin += kBlock) {
            const int size = static_cast<int>(std::min<std::int64_t>(kBlock, last - begin));
            if (evaluate_block(rows + begin * inputs_, size, scratch.get()) == BlockStatus::ok) {
                for (std::int64_t output = 0; output < width; ++output) {
                    const double* column = scratch.get() + static_cast<std::size_t>(outputs_[output]) * kBlock;
                    for (int row = 0; row < size; ++row) {
                        result[(begin + row) * width + output] = static_cast<std::int64_t>(column[row]);
                    }
                }
                continue;
            }
            for (std::int64_t row = begin; row < begin + size; ++row) {
                evaluate_exactly(rows + row * inputs_, exact);
                for (std::int64_t output = 0; output < width; ++output) {
                    result[row * width + output] = exact[static_cast<std::size_t>(outputs_[output])];
                }
            }
        }
    });
}

void require_ok(BlockStatus status) {
    if (status == BlockStatus::division_by_zero) {
        throw std::domain_error("a tape divides by zero");
    }
    if (status == BlockStatus::inexact) {
        throw std::overflow_error("a tape's value passes 2^53");
    }
}

}  // namespace autotune
