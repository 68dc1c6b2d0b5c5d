#include "tape_program.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace autotune {
namespace {

// Integers below this are exact in a double, and so is the floor of their rounded quotient.
constexpr double kExact = 9007199254740992.0;

// Vectors of the widest instruction set; compilers split them for the others.
constexpr int kLanes = 8;
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));
typedef std::int64_t Integers __attribute__((vector_size(kLanes * sizeof(std::int64_t))));

// Bits of a number's size. Positive doubles are ordered as their bits are.
constexpr std::int64_t kSize = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMost = std::bit_cast<std::int64_t>(kExact) - 1;

AUTOTUNE_ALWAYS_INLINE void load(const double* from, Doubles& value) { std::memcpy(&value, from, sizeof value); }
AUTOTUNE_ALWAYS_INLINE void store(const Doubles& value, double* to) { std::memcpy(to, &value, sizeof value); }

// Sets sign bits where the size of a number is 2^53 or more. By reference: vectors are no arguments of functions where
// an instruction set may lack them.
AUTOTUNE_ALWAYS_INLINE void see_inexact(const Doubles& value, Integers& inexact) {
    Integers bits;
    std::memcpy(&bits, &value, sizeof bits);
    inexact |= kMost - (bits & kSize);
}

AUTOTUNE_ALWAYS_INLINE void add(Doubles& value, const double* term, Integers& inexact) {
    Doubles other;
    load(term, other);
    value += other;
    see_inexact(value, inexact);
}

AUTOTUNE_ALWAYS_INLINE void multiply(Doubles& value, const double* factor, Integers& inexact) {
    Doubles other;
    load(factor, other);
    value *= other;
    see_inexact(value, inexact);
}

// Sets sign bits where a number is zero.
AUTOTUNE_ALWAYS_INLINE void see_zeros(const double* column, Integers& zeros) {
    for (int i = 0; i < kBlock; i += kLanes) {
        Integers bits;
        std::memcpy(&bits, column + i, sizeof bits);
        zeros |= (bits & kSize) - 1;
    }
}

AUTOTUNE_ALWAYS_INLINE bool any_negative(const Integers& signs) {
    std::int64_t all = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        all |= signs[lane];
    }
    return all < 0;
}

// What was seen in a block.
struct Checks {
    bool inexact = false;
    bool zero_divisor = false;
};

typedef std::int64_t Pair __attribute__((vector_size(16)));

// Two inputs of a whole block, transposed two rows at a time: single elements would be loaded one by one.
AUTOTUNE_ALWAYS_INLINE void transpose_pair(const std::int64_t* rows, int inputs, int input, std::int64_t* column) {
    for (int row = 0; row < kBlock; row += 2) {
        const std::int64_t* source = rows + static_cast<std::int64_t>(row) * inputs + input;
        Pair upper, lower;
        std::memcpy(&upper, source, sizeof upper);
        std::memcpy(&lower, source + inputs, sizeof lower);
        const Pair first = {upper[0], lower[0]}, second = {upper[1], lower[1]};
        std::memcpy(column + row, &first, sizeof first);
        std::memcpy(column + kBlock + row, &second, sizeof second);
    }
}

AUTOTUNE_ALWAYS_INLINE void gather_column(const std::int64_t* rows, int count, int inputs, int input,
                                          std::int64_t* column) {
    for (int row = 0; row < kBlock; ++row) {
        column[row] = rows[static_cast<std::int64_t>(row < count ? row : count - 1) * inputs + input];
    }
}

AUTOTUNE_ALWAYS_INLINE void load_block(const std::int64_t* rows, int count, int inputs, double* columns,
                                       Integers& inexact) {
    alignas(64) std::int64_t integers[2 * kBlock];
    for (int input = 0; input < inputs; input += 2) {
        const int loaded = input + 1 < inputs ? 2 : 1;
        if (loaded == 2 && count == kBlock) {
            transpose_pair(rows, inputs, input, integers);
        } else {
            gather_column(rows, count, inputs, input, integers);
            gather_column(rows, count, inputs, input + loaded - 1, integers + kBlock);
        }
        double* column = columns + static_cast<std::size_t>(input) * kBlock;
        for (int i = 0; i < loaded * kBlock; ++i) {
            column[i] = static_cast<double>(integers[i]);
        }
        for (int i = 0; i < loaded * kBlock; i += kLanes) {
            Doubles value;
            load(column + i, value);
            see_inexact(value, inexact);
        }
    }
}

AUTOTUNE_ALWAYS_INLINE void run_block(const std::int64_t* rows, int row_count, int inputs,
                                      const BlockInstruction* instructions, std::size_t count, double* columns,
                                      Checks* checks) {
    Integers inexact = {}, zero_divisor = {};
    Doubles value;
    load_block(rows, row_count, inputs, columns, inexact);
    for (std::size_t index = 0; index < count; ++index) {
        const BlockInstruction& instruction = instructions[index];
        const double* a = columns + static_cast<std::size_t>(instruction.a) * kBlock;
        const double* b = columns + static_cast<std::size_t>(instruction.b) * kBlock;
        const double* c = columns + static_cast<std::size_t>(instruction.c) * kBlock;
        const double* d = columns + static_cast<std::size_t>(instruction.d) * kBlock;
        // The result is a column of its own: nothing it is computed from overlaps it.
        double* result = columns + static_cast<std::size_t>(instruction.result) * kBlock;
        switch (instruction.op) {
            case BlockOp::add:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    add(value, b + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::add3:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    add(value, b + i, inexact);
                    add(value, c + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::mul:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    multiply(value, b + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::mul3:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    multiply(value, b + i, inexact);
                    multiply(value, c + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::mul4:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    multiply(value, b + i, inexact);
                    multiply(value, c + i, inexact);
                    multiply(value, d + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::mul_add:
                for (int i = 0; i < kBlock; i += kLanes) {
                    load(a + i, value);
                    multiply(value, b + i, inexact);
                    add(value, c + i, inexact);
                    store(value, result + i);
                }
                break;
            case BlockOp::floordiv:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = std::floor(a[i] / b[i]);
                }
                see_zeros(b, zero_divisor);
                break;
            case BlockOp::floordiv_by_power: {
                const double scale = 1.0 / b[0];
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = std::floor(a[i] * scale);
                }
                break;
            }
            case BlockOp::mod:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] - b[i] * std::floor(a[i] / b[i]);
                }
                see_zeros(b, zero_divisor);
                break;
            case BlockOp::mod_by_power: {
                const double power = b[0], scale = 1.0 / power;
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] - power * std::floor(a[i] * scale);
                }
                break;
            }
            case BlockOp::min:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = b[i] < a[i] ? b[i] : a[i];
                }
                break;
            case BlockOp::max:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] < b[i] ? b[i] : a[i];
                }
                break;
            case BlockOp::less:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] < b[i] ? 1.0 : 0.0;
                }
                break;
            case BlockOp::select:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] != 0.0 ? b[i] : c[i];
                }
                break;
            case BlockOp::select_less:
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    result[i] = a[i] < b[i] ? c[i] : d[i];
                }
                break;
            case BlockOp::select_divisible: {
                const double scale = 1.0 / b[0];
#pragma GCC ivdep
                for (int i = 0; i < kBlock; ++i) {
                    const double quotient = a[i] * scale;
                    result[i] = std::floor(quotient) == quotient ? c[i] : d[i];
                }
                break;
            }
        }
    }
    checks->inexact = any_negative(inexact);
    checks->zero_divisor = any_negative(zero_divisor);
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
        case Op::floordiv: return floor_quotient(a, b);
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
        ++known;
    }
    for (const std::int32_t slot : outputs_) {
        if (slot < 0 || slot >= known) {
            throw std::invalid_argument("an output refers to slot " + std::to_string(slot) + ", which does not exist");
        }
    }
    block_ = block_program(inputs_, constants_, instructions_, outputs_);
    constants_are_exact_ = std::all_of(constants_.begin(), constants_.end(), [](std::int64_t constant) {
        return std::fabs(static_cast<double>(constant)) < kExact;
    });
}

AlignedDoubles TapeProgram::workspace() const {
    AlignedDoubles result(static_cast<std::size_t>(block_.columns) * kBlock);
    double* column = result.get() + static_cast<std::size_t>(inputs_) * kBlock;
    for (const std::int64_t constant : constants_) {
        std::fill_n(column, kBlock, static_cast<double>(constant));
        column += kBlock;
    }
    return result;
}

BlockStatus TapeProgram::evaluate_block(const std::int64_t* rows, int count, double* columns) const {
    Checks checks;
    dispatch_block(level_, rows, count, inputs_, block_.instructions.data(), block_.instructions.size(), columns,
                   &checks);
    if (checks.zero_divisor) {
        return BlockStatus::division_by_zero;
    }
    return constants_are_exact_ && !checks.inexact ? BlockStatus::ok : BlockStatus::inexact;
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
                    const double* column = scratch.get() + static_cast<std::size_t>(output_column(static_cast<int>(output))) * kBlock;
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
