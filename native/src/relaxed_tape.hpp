// A tape over real numbers: its values and the product of a vector with its Jacobian.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "simd.hpp"

namespace autotune {

// How one operation of a tape is read over real numbers. In the order in which Python numbers them. The docs of the
// package `autotune.nest.relaxed` define each; `select` forms take the condition first.
enum class Form : std::uint8_t {
    add,
    mul,
    divide,
    floordiv,
    mod,
    min,
    max,
    less,
    select,
    min_log,
    max_log,
    min_linear,
    max_linear,
    less_log,
    less_linear,
    select_log,
    select_linear,
};
constexpr int kForms = 17;

struct Smoothing {
    double temperature;  // width of a relaxed comparison, in octaves or units
    double epsilon;      // width of a relaxed minimum or maximum, likewise
    bool half_step;      // whether a < b has its threshold between a and a + 1, or at a
};

// Operands are slots: inputs, then constants, then one slot per instruction. `partial` is the first of three columns
// of partial derivatives that the forward pass leaves behind, or -1 where the backward pass needs none.
struct RelaxedInstruction {
    Form form;
    std::int32_t a, b, c;
    std::int32_t partial;
};

class RelaxedProgram {
  public:
    // Throws std::invalid_argument for an unknown form, a slot that is not computed before it is used, or a
    // temperature or epsilon that is no width.
    RelaxedProgram(int inputs, std::vector<double> constants, std::vector<RelaxedInstruction> instructions,
                   std::vector<std::int32_t> outputs, Smoothing smoothing, Simd level);

    int inputs() const { return inputs_; }
    int outputs() const { return static_cast<int>(outputs_.size()); }
    int slots() const { return inputs_ + static_cast<int>(constants_.size() + instructions_.size()); }
    Simd level() const { return level_; }

    // Values [rows, outputs] at points [rows, inputs]. Throws std::domain_error on division by zero and
    // std::overflow_error where an output is not finite.
    void values(const double* points, std::int64_t rows, double* result, int threads) const;

    // Gradients [rows, inputs] of sum_j cotangents[row, j] * values[row, j]. Throws as values() does.
    void vector_jacobian(const double* points, const double* cotangents, std::int64_t rows, double* result,
                         int threads) const;

  private:
    AlignedDoubles workspace() const;
    void load(const double* points, int count, double* slots) const;
    void check(const double* slots, int count, bool zero_divisor) const;

    int inputs_;
    std::vector<double> constants_;
    std::vector<RelaxedInstruction> instructions_;
    std::vector<std::int32_t> outputs_;
    // Per slot, whether an input can move it: what cannot has no derivative to pass on.
    std::vector<std::uint8_t> moves_;
    Smoothing smoothing_;
    Simd level_;
    int partials_ = 0;
};

}  // namespace autotune
