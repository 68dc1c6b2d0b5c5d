#include "relaxed_tape.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "smooth_math.hpp"

namespace autotune {
namespace {

// Rows at a time: fewer than other kernels take, since values, derivatives and partial derivatives of thousands of
// instructions are to stay in the second cache together.
constexpr int kRows = 32;
constexpr double kLog2 = 0.69314718055994531;

// A value and its partial derivatives.
struct Local {
    double value, a, b, c;
};

AUTOTUNE_ALWAYS_INLINE Local quotient(double a, double b) {
    const double value = a / b;
    return {value, 1.0 / b, -value / b, 0.0};
}

AUTOTUNE_ALWAYS_INLINE Local remainder(double a, double b) {
    const double floor = std::floor(a / b);
    return {a - b * floor, 1.0, -floor, 0.0};
}

// The smaller (sign = -1) or larger (sign = 1) of two; at a tie each has half of the derivative.
AUTOTUNE_ALWAYS_INLINE Local hard_extremum(double a, double b, double sign) {
    const double difference = sign * (a - b);
    const double share = difference > 0.0 ? 1.0 : (difference < 0.0 ? 0.0 : 0.5);
    return {difference > 0.0 ? a : b, share, 1.0 - share, 0.0};
}

// (a + b +- sqrt((a - b)^2 + epsilon^2)) / 2, and the share of `a` in its derivative.
AUTOTUNE_ALWAYS_INLINE Local smooth_extremum(double a, double b, double sign, double epsilon) {
    const double difference = a - b;
    const double distance = std::sqrt(difference * difference + epsilon * epsilon);
    const double ratio = distance > 0.0 ? difference / distance : 0.0;
    return {0.5 * (a + b + sign * distance), 0.5 * (1.0 + sign * ratio), 0.5 * (1.0 - sign * ratio), 0.0};
}

AUTOTUNE_ALWAYS_INLINE Local smooth_extremum_log(double a, double b, double sign, double epsilon) {
    const Local octaves = smooth_extremum(log2_positive(a), log2_positive(b), sign, epsilon);
    const double value = exp2_bounded(octaves.value);
    return {value, octaves.a * value / a, octaves.b * value / b, 0.0};
}

// 1/2 + z / (2 sqrt(1 + z^2)) in `value`, its derivative in `a`.
AUTOTUNE_ALWAYS_INLINE Local sigmoid(double z) {
    const double square = 1.0 + z * z;
    const double inverse = 1.0 / std::sqrt(square);
    return {0.5 + 0.5 * z * inverse, 0.5 * inverse / square, 0.0, 0.0};
}

AUTOTUNE_ALWAYS_INLINE Local less_log(double a, double b, const Smoothing& smoothing) {
    // Halfway between the logarithms of a and a + 1, the first whole number that is more.
    const double step = smoothing.half_step ? 0.5 : 0.0;
    const double threshold = (1.0 - step) * log2_positive(a) + step * log2_positive(a + 1.0);
    const double scale = 1.0 / smoothing.temperature;
    const Local found = sigmoid((log2_positive(b) - threshold) * scale);
    const double slope = found.a * scale / kLog2;
    return {found.value, -slope * ((1.0 - step) / a + step / (a + 1.0)), slope / b, 0.0};
}

AUTOTUNE_ALWAYS_INLINE Local less_linear(double a, double b, const Smoothing& smoothing) {
    const double scale = 1.0 / smoothing.temperature;
    const Local found = sigmoid((b - a - (smoothing.half_step ? 0.5 : 0.0)) * scale);
    return {found.value, -found.a * scale, found.a * scale, 0.0};
}

AUTOTUNE_ALWAYS_INLINE Local select_log(double condition, double when_true, double when_false) {
    // From when_false on: equal operands give exactly their value, and so do ties that depend on it.
    const double octaves = log2_positive(when_true) - log2_positive(when_false);
    const double value = when_false * exp2_bounded(condition * octaves);
    return {value, value * kLog2 * octaves, condition * value / when_true, (1.0 - condition) * value / when_false};
}

AUTOTUNE_ALWAYS_INLINE Local select_linear(double condition, double when_true, double when_false) {
    return {condition * when_true + (1.0 - condition) * when_false, when_true - when_false, condition,
            1.0 - condition};
}

struct Columns {
    const double* a;
    const double* b;
    const double* c;
    double* result;
    double* partials;
};

// The result is a slot of its own: nothing it is computed from overlaps it.
template <bool kPartials, class Function>
AUTOTUNE_ALWAYS_INLINE void for_rows(const Columns& columns, const Function& function) {
    const double* a = columns.a;
    const double* b = columns.b;
    const double* c = columns.c;
    double* result = columns.result;
    double* partials = columns.partials;
#pragma GCC ivdep
    for (int i = 0; i < kRows; ++i) {
        const Local local = function(a[i], b[i], c[i]);
        result[i] = local.value;
        if constexpr (kPartials) {
            partials[i] = local.a;
            partials[kRows + i] = local.b;
            partials[2 * kRows + i] = local.c;
        }
    }
}

#define AUTOTUNE_ROWS(expression)                                                                                  \
    for_rows<kPartials>(columns, [&](double a, double b, double c) __attribute__((always_inline)) -> Local {       \
        static_cast<void>(a), static_cast<void>(b), static_cast<void>(c);                                          \
        return expression;                                                                                         \
    })

template <bool kPartials>
AUTOTUNE_ALWAYS_INLINE void apply(Form form, const Columns& columns, const Smoothing& smoothing) {
    const double epsilon = smoothing.epsilon;
    switch (form) {
        case Form::add: return for_rows<false>(columns, [](double a, double b, double) __attribute__((always_inline)) {
            return Local{a + b, 0.0, 0.0, 0.0};
        });
        case Form::mul: return for_rows<false>(columns, [](double a, double b, double) __attribute__((always_inline)) {
            return Local{a * b, 0.0, 0.0, 0.0};
        });
        case Form::divide: return AUTOTUNE_ROWS(quotient(a, b));
        case Form::floordiv: return AUTOTUNE_ROWS((Local{std::floor(a / b), 0.0, 0.0, 0.0}));
        case Form::mod: return AUTOTUNE_ROWS(remainder(a, b));
        case Form::min: return AUTOTUNE_ROWS(hard_extremum(a, b, -1.0));
        case Form::max: return AUTOTUNE_ROWS(hard_extremum(a, b, 1.0));
        case Form::less: return AUTOTUNE_ROWS((Local{a < b ? 1.0 : 0.0, 0.0, 0.0, 0.0}));
        case Form::select:
            return AUTOTUNE_ROWS((a != 0.0 ? Local{b, 0.0, 1.0, 0.0} : Local{c, 0.0, 0.0, 1.0}));
        case Form::min_log: return AUTOTUNE_ROWS(smooth_extremum_log(a, b, -1.0, epsilon));
        case Form::max_log: return AUTOTUNE_ROWS(smooth_extremum_log(a, b, 1.0, epsilon));
        case Form::min_linear: return AUTOTUNE_ROWS(smooth_extremum(a, b, -1.0, epsilon));
        case Form::max_linear: return AUTOTUNE_ROWS(smooth_extremum(a, b, 1.0, epsilon));
        case Form::less_log: return AUTOTUNE_ROWS(less_log(a, b, smoothing));
        case Form::less_linear: return AUTOTUNE_ROWS(less_linear(a, b, smoothing));
        case Form::select_log: return AUTOTUNE_ROWS(select_log(a, b, c));
        case Form::select_linear: return AUTOTUNE_ROWS(select_linear(a, b, c));
    }
}

bool divides(Form form) { return form == Form::divide || form == Form::floordiv || form == Form::mod; }

// Forms whose derivative is zero wherever it exists.
bool is_flat(Form form) { return form == Form::floordiv || form == Form::less; }

bool is_select(Form form) {
    return form == Form::select || form == Form::select_log || form == Form::select_linear;
}

template <bool kPartials>
AUTOTUNE_ALWAYS_INLINE void run_forward(const RelaxedInstruction* instructions, std::size_t count,
                                        std::size_t first_slot, const Smoothing* smoothing, double* slots,
                                        double* partials, bool* zero_divisor) {
    double divisor_is_zero[kRows] = {};
    for (std::size_t index = 0; index < count; ++index) {
        const RelaxedInstruction instruction = instructions[index];
        const Columns columns{slots + static_cast<std::size_t>(instruction.a) * kRows,
                              slots + static_cast<std::size_t>(instruction.b) * kRows,
                              slots + static_cast<std::size_t>(instruction.c) * kRows,
                              slots + (first_slot + index) * kRows,
                              instruction.partial < 0
                                  ? nullptr
                                  : partials + static_cast<std::size_t>(instruction.partial) * kRows};
        // A form that leaves partial derivatives behind that are unused has no place for them.
        if (kPartials && instruction.partial >= 0) {
            apply<true>(instruction.form, columns, *smoothing);
        } else {
            apply<false>(instruction.form, columns, *smoothing);
        }
        if (divides(instruction.form)) {
            for (int i = 0; i < kRows; ++i) {
                divisor_is_zero[i] = columns.b[i] == 0.0 ? 1.0 : divisor_is_zero[i];
            }
        }
    }
    *zero_divisor = false;
    for (int i = 0; i < kRows; ++i) {
        *zero_divisor = *zero_divisor || divisor_is_zero[i] != 0.0;
    }
}

AUTOTUNE_ALWAYS_INLINE void run_values(const RelaxedInstruction* instructions, std::size_t count,
                                       std::size_t first_slot, const Smoothing* smoothing, double* slots,
                                       bool* zero_divisor) {
    run_forward<false>(instructions, count, first_slot, smoothing, slots, nullptr, zero_divisor);
}

AUTOTUNE_ALWAYS_INLINE void run_partials(const RelaxedInstruction* instructions, std::size_t count,
                                         std::size_t first_slot, const Smoothing* smoothing, double* slots,
                                         double* partials, bool* zero_divisor) {
    run_forward<true>(instructions, count, first_slot, smoothing, slots, partials, zero_divisor);
}

// `to` may be the same column twice in a row for one instruction, never the same as `by` or `from`.
AUTOTUNE_ALWAYS_INLINE void accumulate(double* to, const double* from, const double* by) {
#pragma GCC ivdep
    for (int i = 0; i < kRows; ++i) {
        to[i] += from[i] * by[i];
    }
}

AUTOTUNE_ALWAYS_INLINE void accumulate(double* to, const double* from) {
#pragma GCC ivdep
    for (int i = 0; i < kRows; ++i) {
        to[i] += from[i];
    }
}

AUTOTUNE_ALWAYS_INLINE void run_backward(const RelaxedInstruction* instructions, std::size_t count,
                                         std::size_t first_slot, const std::uint8_t* moves, const double* slots,
                                         const double* partials, double* adjoints) {
    const auto column = [](auto* base, std::int32_t slot) __attribute__((always_inline)) {
        return base + static_cast<std::size_t>(slot) * kRows;
    };
    for (std::size_t index = count; index-- > 0;) {
        const RelaxedInstruction instruction = instructions[index];
        if (!moves[first_slot + index]) {
            continue;
        }
        const double* adjoint = adjoints + (first_slot + index) * kRows;
        const std::int32_t operands[3] = {instruction.a, instruction.b, instruction.c};
        const int arity = is_select(instruction.form) ? 3 : 2;
        for (int operand = 0; operand < arity; ++operand) {
            if (!moves[operands[operand]]) {
                continue;
            }
            double* to = column(adjoints, operands[operand]);
            if (instruction.form == Form::add) {
                accumulate(to, adjoint);
            } else if (instruction.form == Form::mul) {
                accumulate(to, adjoint, column(slots, operands[1 - operand]));
            } else {
                accumulate(to, adjoint, column(partials, instruction.partial + operand));
            }
        }
    }
}

AUTOTUNE_DISPATCH(dispatch_values, run_values)
AUTOTUNE_DISPATCH(dispatch_partials, run_partials)
AUTOTUNE_DISPATCH(dispatch_backward, run_backward)

void require_slot(std::int32_t slot, std::int64_t known, const char* user) {
    if (slot < 0 || slot >= known) {
        throw std::invalid_argument(std::string(user) + " uses slot " + std::to_string(slot) +
                                    ", which is not computed before it");
    }
}

}  // namespace

RelaxedProgram::RelaxedProgram(int inputs, std::vector<double> constants, std::vector<RelaxedInstruction> instructions,
                               std::vector<std::int32_t> outputs, Smoothing smoothing, Simd level)
    : inputs_(inputs),
      constants_(std::move(constants)),
      instructions_(std::move(instructions)),
      outputs_(std::move(outputs)),
      smoothing_(smoothing),
      level_(level) {
    constexpr std::size_t kMost = 1u << 24;
    if (inputs < 0 || static_cast<std::size_t>(inputs) + constants_.size() + instructions_.size() > kMost) {
        throw std::invalid_argument("a tape has between 0 and 2^24 slots");
    }
    if (!(std::isfinite(smoothing.temperature) && smoothing.temperature > 0.0)) {
        throw std::invalid_argument("a temperature is positive");
    }
    if (!(std::isfinite(smoothing.epsilon) && smoothing.epsilon >= 0.0)) {
        throw std::invalid_argument("epsilon is not negative");
    }
    moves_.assign(static_cast<std::size_t>(inputs), 1);
    moves_.resize(moves_.size() + constants_.size(), 0);
    for (RelaxedInstruction& instruction : instructions_) {
        if (static_cast<int>(instruction.form) >= kForms) {
            throw std::invalid_argument("unknown form " + std::to_string(static_cast<int>(instruction.form)));
        }
        if (!is_select(instruction.form)) {
            instruction.c = instruction.a;
        }
        bool moves = false;
        for (const std::int32_t slot : {instruction.a, instruction.b, instruction.c}) {
            require_slot(slot, static_cast<std::int64_t>(moves_.size()), "an instruction");
            moves = moves || moves_[static_cast<std::size_t>(slot)] != 0;
        }
        moves = moves && !is_flat(instruction.form);
        moves_.push_back(moves ? 1 : 0);
        instruction.partial = -1;
        if (moves && instruction.form != Form::add && instruction.form != Form::mul) {
            instruction.partial = partials_;
            partials_ += 3;
        }
    }
    for (const std::int32_t slot : outputs_) {
        require_slot(slot, static_cast<std::int64_t>(moves_.size()), "an output");
    }
}

AlignedDoubles RelaxedProgram::workspace() const {
    AlignedDoubles result(static_cast<std::size_t>(slots()) * kRows);
    double* column = result.get() + static_cast<std::size_t>(inputs_) * kRows;
    for (const double constant : constants_) {
        std::fill_n(column, kRows, constant);
        column += kRows;
    }
    return result;
}

// Rows beyond `count` repeat the last one, so that they divide by nothing that it does not divide by.
void RelaxedProgram::load(const double* points, int count, double* slots) const {
    for (int input = 0; input < inputs_; ++input) {
        double* column = slots + static_cast<std::size_t>(input) * kRows;
        for (int row = 0; row < kRows; ++row) {
            column[row] = points[static_cast<std::int64_t>(std::min(row, count - 1)) * inputs_ + input];
        }
    }
}

void RelaxedProgram::check(const double* slots, int count, bool zero_divisor) const {
    if (zero_divisor) {
        throw std::domain_error("a tape divides by zero");
    }
    for (const std::int32_t output : outputs_) {
        const double* column = slots + static_cast<std::size_t>(output) * kRows;
        for (int row = 0; row < count; ++row) {
            if (!std::isfinite(column[row])) {
                throw std::overflow_error("a tape's value is not finite");
            }
        }
    }
}

void RelaxedProgram::values(const double* points, std::int64_t rows, double* result, int threads) const {
    const auto width = static_cast<std::int64_t>(outputs_.size());
    const std::size_t first_slot = static_cast<std::size_t>(inputs_) + constants_.size();
    for_row_ranges(rows, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles slots = workspace();
        for (std::int64_t begin = first; begin < last; begin += kRows) {
            const int count = static_cast<int>(std::min<std::int64_t>(kRows, last - begin));
            load(points + begin * inputs_, count, slots.get());
            bool zero_divisor = false;
            dispatch_values(level_, instructions_.data(), instructions_.size(), first_slot, &smoothing_, slots.get(),
                            &zero_divisor);
            check(slots.get(), count, zero_divisor);
            for (std::int64_t output = 0; output < width; ++output) {
                const double* column =
                    slots.get() + static_cast<std::size_t>(outputs_[static_cast<std::size_t>(output)]) * kRows;
                for (int row = 0; row < count; ++row) {
                    result[(begin + row) * width + output] = column[row];
                }
            }
        }
    });
}

void RelaxedProgram::vector_jacobian(const double* points, const double* cotangents, std::int64_t rows, double* result,
                                     int threads) const {
    const auto width = static_cast<std::int64_t>(outputs_.size());
    const std::size_t first_slot = static_cast<std::size_t>(inputs_) + constants_.size();
    const std::size_t size = static_cast<std::size_t>(slots()) * kRows;
    for_row_ranges(rows, threads, [&](std::int64_t first, std::int64_t last) {
        AlignedDoubles slots = workspace();
        AlignedDoubles partials(static_cast<std::size_t>(partials_) * kRows);
        AlignedDoubles adjoints(size);
        for (std::int64_t begin = first; begin < last; begin += kRows) {
            const int count = static_cast<int>(std::min<std::int64_t>(kRows, last - begin));
            load(points + begin * inputs_, count, slots.get());
            bool zero_divisor = false;
            dispatch_partials(level_, instructions_.data(), instructions_.size(), first_slot, &smoothing_, slots.get(),
                              partials.get(), &zero_divisor);
            check(slots.get(), count, zero_divisor);
            std::fill_n(adjoints.get(), size, 0.0);
            for (std::int64_t output = 0; output < width; ++output) {
                double* column =
                    adjoints.get() + static_cast<std::size_t>(outputs_[static_cast<std::size_t>(output)]) * kRows;
                for (int row = 0; row < count; ++row) {
                    column[row] += cotangents[(begin + row) * width + output];
                }
            }
            dispatch_backward(level_, instructions_.data(), instructions_.size(), first_slot, moves_.data(),
                              slots.get(), partials.get(), adjoints.get());
            for (std::int64_t input = 0; input < inputs_; ++input) {
                const double* column = adjoints.get() + static_cast<std::size_t>(input) * kRows;
                for (int row = 0; row < count; ++row) {
                    result[(begin + row) * inputs_ + input] = column[row];
                }
            }
        }
    });
}

}  // namespace autotune
