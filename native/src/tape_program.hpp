// A tape ready to run: checked once, then evaluated for blocks of configurations.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "simd.hpp"

namespace autotune {

// The last one is not for tapes: a program makes it of a floordiv by a constant power of two, which needs no division.
enum class Op : std::uint8_t { add, mul, floordiv, mod, min, max, less, select, floordiv_by_power };
constexpr int kOps = 8;

// Operands are slots: inputs come first, then constants, then one slot per instruction. Only select has three: the
// condition, the value where it is not zero, and the value where it is.
struct Instruction {
    Op op;
    std::int32_t a, b, c;
};

enum class BlockStatus { ok, inexact, division_by_zero };

class TapeProgram {
  public:
    // Throws std::invalid_argument for an unknown operation or a slot that is not computed before it is used.
    TapeProgram(int inputs, std::vector<std::int64_t> constants, std::vector<Instruction> instructions,
                std::vector<std::int32_t> outputs, Simd level);

    int inputs() const { return inputs_; }
    int slots() const { return inputs_ + static_cast<int>(constants_.size() + instructions_.size()); }
    int outputs() const { return static_cast<int>(outputs_.size()); }
    Simd level() const { return level_; }
    const std::vector<std::int64_t>& constants() const { return constants_; }
    const std::vector<Instruction>& instructions() const { return instructions_; }
    // Slot of an output; the output's values in a workspace begin at output_slot(j) * kBlock.
    int output_slot(int output) const { return outputs_[static_cast<std::size_t>(output)]; }

    // Memory for evaluate_block: slots() columns of kBlock doubles, with the constants filled in.
    AlignedDoubles workspace() const;

    // Evaluates `count` <= kBlock rows of `inputs()` integers each; rows beyond `count` of the workspace repeat the
    // last one. Every value is exact unless the result says otherwise: a sum or product beyond 2^53, or an input.
    BlockStatus evaluate_block(const std::int64_t* rows, int count, double* slots) const;

    // As evaluate_block, for all rows and exactly, in 64-bit integers where doubles do not suffice; `result` has
    // outputs() values a row. Throws std::overflow_error beyond 64 bits, std::domain_error on division by zero.
    void evaluate(const std::int64_t* rows, std::int64_t count, std::int64_t* result, int threads) const;

  private:
    // Value of the constant in a slot; 0 for a slot that holds none.
    std::int64_t constant_at(std::int32_t slot) const;
    void evaluate_exactly(const std::int64_t* row, std::vector<std::int64_t>& slots) const;

    int inputs_;
    std::vector<std::int64_t> constants_;
    std::vector<Instruction> instructions_;
    std::vector<std::int32_t> outputs_;
    Simd level_;
};

// What a kernel that needs doubles throws for a status that is not ok: std::overflow_error or std::domain_error.
void require_ok(BlockStatus status);

}  // namespace autotune
